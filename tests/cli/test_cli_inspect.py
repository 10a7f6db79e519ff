import json

import pytest

from transduce.cli import main
from transduce.config import PUBLISHED

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


def test_a_preset_for_people(capsys):
    assert main._run(["inspect", "big", "--hours", "84", "--devices", "8", "--device", "P100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["big", PUBLISHED["big"].meaning]
    words = [line.split() for line in lines]
    assert ["train.max_steps", "300,000"] in words
    # Six for each of a layer's weights and symbols (2 forward, 4 backward), and the products of its attention.
    forward = 2 * 25 * 12_582_912 + 4 * 25**2 * 1024
    assert ["encoder", "layer", "6", f"{forward:,}", f"{2 * forward:,}"] in words
    assert words[-1] == ["flops_by_time", "2.3e+19"]  # Table 2


def test_the_cost_of_a_training_as_json(capsys):
    arguments = ["inspect", "base", "--json", "--hours", "12", "--devices", "8", "--rate", "9.5"]
    assert main._run([*arguments, "--target-tokens", "2500000000"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["training_cost"] == {
        "hours": 12.0,
        "devices": 8,
        "tflops_each": 9.5,
        "flops_by_time": pytest.approx(3.2832e18),
        "target_tokens": 2_500_000_000,
        "flops_counted": pytest.approx(1e8 * facts["flops"]["forward_and_backward"]),
    }


def test_table_3(capsys):
    assert main._run(["inspect", "--table3"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    first, *rows, _, fitting, own = shown.out.splitlines()
    assert first.startswith("millions of parameters paper ")
    assert len(rows) == 11
    assert rows[0].split()[:3] == ["base", "65", "63.05"]
    assert rows[-1].split()[:3] == ["big", "213", "214.17"]
    assert fitting.endswith(" shared symbols: 10 of 11 rows round to the paper's figure; the others: big 218 (+5).")
    assert own.startswith("37,000 shared symbols: 0 of 11 rows ")
    assert "table3-c-d1024 164 (-4)" in own


def test_table_3_as_json(capsys):
    assert main._run(["inspect", "--table3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"][0]["parameters"] == 63_045_632
    assert facts["fitting_vocabularies"][0] <= facts["fitting_vocabulary"] <= facts["fitting_vocabularies"][1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tinny"], "neither a model directory nor a preset (did you mean 'tiny'?)"),
        ([], "Give a MODEL or a PRESET, or --table3"),
        (["base", "--table3"], "leave out MODEL"),
        (["--table3", "--hours", "3"], "every option but --json"),
        (["--table3", "--target-tokens", "3"], "every option but --json"),
        (["base", "--hours", "3"], "--device K80|K40|M40|P100"),
        (["base", "--devices", "3"], "give --hours"),
        (["base", "--hours", "3", "--device", "V100"], "--device"),
        (["base", "--hours", "3", "--device", "P100", "--devices", "0"], "--devices"),
    ],
)
def test_wrong_combinations_are_one_line_and_a_2(capsys, arguments, named):
    assert main._run(["inspect", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert named in shown.err
