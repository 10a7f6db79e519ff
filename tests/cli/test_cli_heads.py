"""``transduce heads``: what each attention head does over a corpus."""

import json
import re
from dataclasses import replace

import pytest

from transduce.bundle import load_bundle, save_bundle
from transduce.cli import main
from transduce.config import TransformerConfig
from transduce.models import build

pytest_plugins = ["tiny_run"]

SOURCES = ["bamo dulu kari wemo", "wemo", "fepi gozu bamo luso", "kari bamo luso"]
TARGETS = ["ti sor mup yob", "yob", "nal ved ti hax", "mup ti hax"]
DIAGONAL = ["0-0 1-1 2-2 3-3", "0-0", "0-0 1-1 2-2 3-3", "0-0 1-1 2-2"]
HEADS = [(kind, 1, head) for kind in ("encoder", "decoder", "cross") for head in (1, 2)]


@pytest.fixture
def corpus(tmp_path):
    """Writes the files of a corpus, and gives the options that name them."""

    def write(**sides):
        options = []
        for name, lines in ({"source": SOURCES, "target": TARGETS} | sides).items():
            path = tmp_path / f"corpus.{name}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            options += [f"--{name}", str(path)]
        return options

    return write


def run(*arguments):
    return main._run(["heads", *map(str, arguments)])


def test_a_table_a_page_and_a_picture(trained_run, corpus, tmp_path, capfd):
    page, png = tmp_path / "a.html", tmp_path / "a.png"
    files = ["--out", page, "--png", png, "--measure", "bleu_loss"]
    assert run(trained_run, *corpus(), "--sentences", 3, "--precision", "float32", *files) == 0
    output = capfd.readouterr()
    header, *lines, blank, pairs, bleu = output.out.splitlines()
    assert re.split(r"  +", header) == [
        *("kind", "layer", "head", "entropy", "max entropy", "distance", "offset", "previous", "same", "next", "end"),
        *("agreement", "BLEU lost", "p"),
    ]
    rows = [line.split() for line in lines if line]
    assert [tuple(row[:3]) for row in rows] == [
        (kind, "1", head) for kind in ("encoder", "decoder", "cross") for head in ("1", "2", "mean")
    ]
    assert len({len(line) for line in lines if line.startswith("cross") and "mean" not in line} | {len(header)}) == 1
    assert (blank, pairs) == (
        "",
        "4 sentence pairs; the alignment is the model's own: the mean of the heads of the layer before the last",
    )
    assert re.fullmatch(r"BLEU 100\.00 with all heads, of the first 3 sentences: nrefs:1\|case:.*\|version:.*", bleu)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S)[1])
    assert (data["colour"], data["notes"]) == ("bleu_loss", [pairs, bleu])
    assert len(data["heads"]) == 6
    assert max(head["values"]["bleu_loss"] for head in data["heads"]) > 10  # without its alignment it is lost
    assert png.read_bytes().startswith(b"\x89PNG")
    assert output.err == ""


def test_the_other_formats(trained_run, corpus, capfd):
    files = [*corpus(alignment=DIAGONAL), "--no-mute"]
    assert run(trained_run, *files, "--format", "jsonl") == 0
    output = capfd.readouterr()
    rows = [json.loads(line) for line in output.out.splitlines()]
    assert [(row["kind"], row["layer"], row["head"]) for row in rows if row["head"] is not None] == HEADS
    assert [row["kind"] for row in rows if row["head"] is None] == ["encoder", "decoder", "cross"]
    assert {row["aer"] is None for row in rows if row["kind"] == "cross"} == {False}
    first, second, mean = rows[6:]
    assert mean["entropy"] == pytest.approx((first["entropy"] + second["entropy"]) / 2)
    assert not {"bleu_loss", "p_value"} & set(first)
    assert output.err == "4 sentence pairs; the alignment is the given one\n"

    assert run(trained_run, *files, "--format", "tsv") == 0
    header, *lines = (line.split("\t") for line in capfd.readouterr().out.splitlines())
    assert header == list(rows[0])
    assert [line[:3] for line in lines][:3] == [["encoder", "1", "1"], ["encoder", "1", "2"], ["encoder", "1", "mean"]]
    assert float(lines[6][3]) == first["entropy"]


def test_pairs_that_cannot_be_measured_are_named_and_left_out(trained_run, corpus, capfd):
    files = corpus(source=["bamo", "wemo dulu kari", "", "kari"], target=["ti", "yob", "ti", "mup"])
    assert run(trained_run, *files, "--max-source-length", 2, "--no-mute", "--format", "tsv") == 0
    warnings = capfd.readouterr().err.splitlines()
    assert warnings[0].startswith("warning: pair 2: source: ")
    assert "max_source_length" in warnings[0]
    assert warnings[1] == "warning: pair 3: a side is empty: there is nothing to measure: left out"
    assert warnings[2].startswith("2 sentence pairs")


@pytest.mark.parametrize(
    ("sides", "options", "named"),
    [
        ({"source": SOURCES[:3]}, [], "has 3 lines but"),
        ({"source": [], "target": []}, [], "is empty"),
        ({"source": [" "], "target": ["ti"]}, [], "no pair can be measured: pair 1: a side is empty"),
        ({"alignment": DIAGONAL[:2]}, [], "corpus.alignment: has 2 lines for 4 pairs"),
        ({"alignment": [*DIAGONAL[:3], "0:0"]}, [], "alignment line 4: '0:0' is no link: write source-target"),
        ({"alignment": [*DIAGONAL[:3], "0-3"]}, [], "alignment line 4: '0-3': the target has 3 words"),
        ({}, ["--tokenize", "nothing"], "BLEU's tokenizer 'nothing' is unknown"),
        ({}, ["--measure", "aer", "--out", "a.html"], "--measure aer: is an error rate against --alignment"),
        ({}, ["--measure", "bleu_loss", "--no-mute"], "--measure bleu_loss: is measured by muting heads"),
        ({}, ["--measure", "colour"], "colour"),
        ({}, ["--no-mute", "--sentences", "3"], "--sentences: for translating without each head, which --no-mute"),
        ({}, ["--no-mute", "--tokenize", "13a", "--beam-size", "1"], "--tokenize and --beam-size: for translating"),
        ({}, ["--sentences", "0"], "--sentences"),
    ],
)
def test_wrong_use_is_named(trained_run, corpus, tmp_path, monkeypatch, capfd, sides, options, named):
    monkeypatch.chdir(tmp_path)
    assert run(trained_run, *corpus(**sides), *options) == 2
    output = capfd.readouterr()
    assert named in output.err
    assert output.out == ""
    assert not [*tmp_path.glob("a.*")]


def test_a_picture_of_another_format_is_refused_before_anything_is_measured(trained_run, corpus, tmp_path, capfd):
    assert run(trained_run, *corpus(), "--no-mute", "--png", tmp_path / "a.xyz") == 2
    output = capfd.readouterr()
    assert "a.xyz: give a name that ends with .png" in output.err
    assert output.out == ""


def test_what_is_no_model_is_named(corpus, tmp_path, capfd):
    assert run(tmp_path, *corpus()) == 2
    assert str(tmp_path) in capfd.readouterr().err


def test_average_attention_has_no_heads_to_measure(trained_run, corpus, tmp_path, capfd):
    bundle = load_bundle(trained_run)
    changes = {"decoder_self_attention": "average"}
    model = build(TransformerConfig.model_validate(bundle.config.model_dump() | changes)).eval()
    save_bundle(replace(bundle, model=model), tmp_path / "average")
    assert run(tmp_path / "average", *corpus(), "--sentences", 1, "--format", "jsonl") == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {row["kind"] for row in rows} == {"encoder", "cross"}
