"""That our search is compared with CTranslate2's, and that a line which differs is explained."""

import re

import pytest
import torch

from benchmarks import agreement
from benchmarks.agreement import WAYS, Judge, Line, explain, reason
from benchmarks.decoders.exported import ExportedModel, Found
from tests.random_bundle import random_bundle
from transduce.bundle import load_bundle
from transduce.inference import Translator, load
from transduce.interop import export_ctranslate2
from transduce.models import Transformer

pytest_plugins = ["tiny_run"]

SOURCES = ["bamo dulu kari", "wemo", "", "luso gozu fepi", "kari kari", "dulu", "gozu luso gozu wemo"]


@pytest.fixture(autouse=True)
def runtime_is_there():
    pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")


def test_the_made_up_language_is_translated_alike(trained_run, tmp_path, monkeypatch):
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SOURCES))
    monkeypatch.setattr("sys.argv", ["", f"made up={trained_run},{tmp_path}/in", "--out", str(tmp_path / "out.md")])
    agreement.main()
    page = (tmp_path / "out.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| made up")]
    assert [row[2] for row in rows] == ["greedy", "beam 4, no penalty", "beam 4, marian 1.0, full_beam"]
    for row in rows:
        assert row[3:5] == ["6", "6 (100.0%)"]
        between, median, ours, theirs = map(float, row[5:9])
        assert ours < 1e-5
        # How far the other engine's rounding takes it depends on the weights; what is between the two is that alone.
        assert max(between, theirs) < 2e-3
        assert between <= theirs + 1e-5
        assert median < 1e-3
    assert page.endswith("No line differs.\n")


def test_both_may_write_nothing(tmp_path):
    """Without a length penalty an empty output may be the most probable; CTranslate2's own least length is 1."""
    bundle = random_bundle(output_bias=True)
    assert isinstance(bundle.model, Transformer)
    assert bundle.model.output_bias is not None
    with torch.no_grad():
        bundle.model.output_bias[bundle.tokenizers.special.end] += 50
    export_ctranslate2(bundle, tmp_path)
    (source,) = bundle.tokenizers.source.encode(["w4 w5"])
    for beam in (1, 4):
        assert [each.ids for each in ExportedModel(tmp_path, "float32", 1, 1).search([source], beam, 10, 1)] == [[]]
        assert Translator(bundle, "float32").translate("w4 w5", beam, length_penalty_kind="none").text == ""


def test_a_line_that_differs_is_explained(trained_run, tmp_path):
    """A made-up output in the place of CTranslate2's: both engines score it, and ours is seen to be more probable."""
    bundle = load_bundle(trained_run)
    export_ctranslate2(bundle, tmp_path / "exported")
    runtime = ExportedModel(tmp_path / "exported", "float32", 1, 1)
    source, good, bad = bundle.tokenizers.source.encode(["bamo dulu", "ti sor", "sor sor"])
    line = Line(5, "bamo dulu", source, Found(good, 0.0), Found(bad, 0.0), at_limit=False)
    judge, way = Judge(bundle, runtime), WAYS[2]
    shown = list(explain(line, "made up", way, judge, bundle.tokenizers.target.decode))
    expected = load(trained_run, "float32").score(["bamo dulu"] * 2, ["ti sor", "sor sor"])
    assert shown[0] == "- made up, line 5: bamo dulu"
    outputs = ("ours: ti sor", good), ("CTranslate2's: sor sor", bad)
    for row, (output, ids), score in zip(shown[1:3], outputs, expected, strict=True):
        assert row.startswith(f"  - {output} (")
        # What our float32 model, CTranslate2's and float64 give it, divided by |y|.
        given = [float(number) for number in re.findall(r"-\d+\.\d+", row)]
        assert given == pytest.approx([score / (len(ids) + 1)] * 3, abs=1e-3)
    assert "ours is more probable" in shown[3]


@pytest.mark.parametrize(
    ("ahead", "at_limit", "said"),
    [
        (0.4, True, "at the length limit"),
        (-0.0004, False, "a tie"),
        (0.3, False, "ours is more probable"),
        (-0.2, False, "CTranslate2's is more probable"),
    ],
)
def test_reasons(ahead, at_limit, said):
    assert reason(ahead, at_limit=at_limit).startswith(said)
