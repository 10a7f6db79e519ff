import json

from transduce.cli import main

pytest_plugins = ["tiny_run"]


def test_base_as_json(capsys):
    assert main._run(["inspect", "base", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    facts = json.loads(shown.out)
    # tests/workflows counts them by hand; Table 3 of the paper says 65 million.
    assert facts["parameters"]["total"] == 63_045_632
    assert facts["configuration"]["d_model"] == 512
    assert facts["flops"]["forward_and_backward"] > 0


def test_for_people(trained_run, capsys):
    assert main._run(["inspect", str(trained_run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(trained_run)
    assert [line for line in lines if line and not line.startswith(" ")][1:] == [
        "configuration",
        "parameters",
        "flops",
        "memory",
    ]
    assert any(line.split() == ["d_model", "32"] for line in lines)


def test_numbers_and_switches_are_told_apart(capsys):
    assert main._run(["inspect", "tiny"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["attention_bias", "False"] in lines
    assert ["vocab_size", "37,000"] in lines
