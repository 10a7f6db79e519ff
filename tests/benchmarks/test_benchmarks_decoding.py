"""That the contest of decoders runs, and that all of them translate alike."""

import json

import pytest
import torch

from benchmarks import decoding
from benchmarks.decoders.contest import Setting, Speed, fastest
from benchmarks.decoders.engines import Engine, load_engine
from benchmarks.decoders.generate import can_generate
from tests.sparing import one_each
from transduce.bundle import Bundle, load_bundle, save_bundle
from transduce.config import TransformerConfig
from transduce.inference import load
from transduce.models import build

pytest_plugins = ["tiny_run"]

SOURCES = ["bamo dulu kari", "wemo", "luso gozu fepi", "kari kari", "dulu", "gozu luso gozu wemo"]
TARGETS = ["ti sor mup", "yob", "hax ved nal", "mup mup", "sor", "ved hax ved yob"]


@pytest.fixture
def contestants():
    pytest.importorskip("ctranslate2", reason="CTranslate2 is missing: pip install 'transduce[interop]'")
    pytest.importorskip("transformers")


@pytest.mark.parametrize(("norm", "beam"), [*one_each(("pre", "post"), (1, 4))])
def test_generate_finds_what_ours_finds(contestants, trained_run, tmp_path, norm, beam):
    """Of the trained model, and of a random one of the other kind, whose outputs run to its limit."""
    texts = SOURCES
    threads = torch.get_num_threads()
    trained = load_bundle(trained_run)
    model = trained_run
    if norm == "post":
        torch.manual_seed(3)
        config = trained.config.model_copy(
            update={"norm": "post", "final_norm": False, "sinusoid_layout": "concatenated"}
        )
        other = build(config).eval()
        other.embedding.weight.data[trained.tokenizers.special.end] *= 2  # it ends now and then
        save_bundle(Bundle(other, trained.tokenizers, trained.generation), tmp_path / "post")
        model = tmp_path / "post"
    theirs = load_engine(Engine("generate", "float32", 1, threads), model, tmp_path)
    ours = load(model, "float32").translate(texts, beam, length_penalty_kind="none")
    free = [row for row, one in enumerate(ours) if not one.at_limit]
    assert norm == "post" or len(free) > 3
    found = theirs(texts, beam, 4)
    assert [found[row] for row in free] == [ours[row].text for row in free]


@pytest.mark.parametrize(
    "changes",
    [
        {"d_k": 3},
        {"activation": "silu"},  # it is built with a ReLU
        {"positions": "learned"},
        {"compatibility": "dot_product"},
        {"tied_projection": False},
    ],
    ids=str,
)
def test_models_that_transformers_has_not_are_left_out(changes):
    assert can_generate(TransformerConfig())
    assert not can_generate(TransformerConfig(**changes))


def test_each_engines_best_setting_goes_on():
    narrow, wide = Engine("CTranslate2", "int8", 1, 2), Engine("CTranslate2", "int8", 2, 1)
    ours = Engine("transduce", "float32", 1, 2)
    speeds = [
        Speed(Setting(narrow, 8), [5.0], 30),
        Speed(Setting(wide, 16), [7.0], 30),
        Speed(Setting(ours, 0), [6.0], 30),
        Speed(Setting(wide, 8), [6.5], 30),
    ]
    assert fastest(speeds) == [speeds[1], speeds[2]]


@pytest.mark.slow  # a dozen processes; the engines themselves are tested above
def test_a_contest(contestants, trained_run, tmp_path, monkeypatch):
    for name, lines in (("in", SOURCES), ("out", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    test = f"made up={trained_run},{tmp_path}/in,{tmp_path}/out"
    options = ("--quick", "--threads", "1", "--beams", "4", "--out", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["", test, *options])
    decoding.main()
    figures, page = json.loads((tmp_path / "decoding.json").read_text()), (tmp_path / "decoding.md").read_text()
    (section,) = figures["sections"]
    families = {each["setting"]["engine"]["family"] for each in section["best"]}
    assert families == {"transduce", "CTranslate2", "generate"}
    exact = [each["bleu"] for each in section["best"] if each["setting"]["engine"]["precision"] == "float32"]
    assert len(exact) == 3
    assert max(exact) - min(exact) < 1e-9
    assert len(section["singles"]) == len(section["costs"]) == len(section["best"])
    assert all(each["load_seconds"] > 0 and each["peak_bytes"] > 1e7 for each in section["costs"])
    assert "## made up, beam 4, 6 lines" in page
    assert "| CTranslate2 int8 | 1 x 1, batch 4 |" in page
