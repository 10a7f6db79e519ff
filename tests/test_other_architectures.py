"""Recurrent and convolutional models take the whole way: training, resuming, search, scores, evaluation."""

import json
import shutil
from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import load_file

from tests.serving.running_server import serving
from tests.sparing import one_each
from transduce.bundle import load_bundle, save_bundle
from transduce.cli.main import _run
from transduce.config import BadInputError, read_run
from transduce.inference import load
from transduce.interop import export_ctranslate2
from transduce.models import can_run_natively, heads_of
from transduce.workflows.average import average
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]


@dataclass(frozen=True)
class Kind:
    """A [model] section, what is said of such a model, and how many layers of encoder-decoder attention it has."""

    section: str
    summary: str
    attending: int

    @property
    def architecture(self) -> str:
        return self.section.split('"')[1]


RECURRENT = 'architecture = "recurrent"\nembedding_size = 16\nhidden_size = 24\n'
CONVOLUTIONAL = 'architecture = "convolutional"\n'
CONVS2S = """network = "convs2s"
embedding_width = 24
output_width = 24
encoder_convolutions = [[24, 3, 2]]
decoder_convolutions = [[24, 3, 2]]
max_positions = 257
shared_embedding = true
tied_projection = true
"""
KINDS = {
    "bahdanau": Kind(f'{RECURRENT}cell = "gru"\nattention_size = 11\n', "1 + 1 layers of GRU", 1),
    "luong": Kind(
        f'{RECURRENT}attention = "luong"\nattention_score = "general"\ndecoder_layers = 2\n', "1 + 2 layers of LSTM", 1
    ),
    "no attention, experts": Kind(
        f'{RECURRENT}attention = "none"\ndecoder_layers = 2\n'
        'feed_forward = "mixture_of_experts"\nd_ff = 13\nexperts = 3\n',
        "1 + 2 layers of LSTM, hidden 24, 3 experts of 13",
        0,
    ),
    "convs2s": Kind(f"{CONVOLUTIONAL}{CONVS2S}", "ConvS2S, 2 + 2", 2),
    "bytenet": Kind(
        f'{CONVOLUTIONAL}network = "bytenet"\nchannels = 16\nencoder_blocks = 2\ndecoder_blocks = 2\n'
        "largest_dilation = 2\n",
        "ByteNet, 2 + 2",
        0,
    ),
}
TEXTS = ["bamo dulu", "fepi", "gozu kari luso wemo"]


@pytest.fixture(params=[*KINDS], scope="module")
def kind(request):
    return KINDS[request.param]


@pytest.fixture(scope="module")
def config(kind, tiny_run_file, tmp_path_factory):
    """The tiny run file with such a model in the Transformer's place."""
    model = f"model]\n{kind.section}"
    sections = tiny_run_file.read_text().split("\n[")
    text = "\n[".join(model if each.startswith("model]") else each for each in sections)
    changes = {
        **{"max_steps = 400": "max_steps = 8", "checkpoint_every = 200": "checkpoint_every = 4"},
        **{"warmup_steps = 60": "warmup_steps = 4", "factor = 0.4": "factor = 0.2"},
    }
    for old, new in changes.items():
        text = text.replace(old, new)
    for name in ("train", "dev"):
        text = text.replace(f'"{name}.', f'"{tiny_run_file.parent}/{name}.')
    path = tmp_path_factory.mktemp("other") / "run.toml"
    path.write_text(text.replace("log_every = 50", "log_every = 2"))
    return read_run(path)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    train_run(config, RunDirectory(folder), resume=False)
    return folder


def weights(run):
    return load_file(run / "checkpoints/step-8/model.safetensors")


def test_it_is_trained_and_resumed(config, run, kind, tmp_path):
    """Resumed from its middle, it ends bit for bit alike, and so do its metrics."""
    assert config.model.architecture == kind.architecture
    shutil.copytree(run, tmp_path / "again")
    shutil.rmtree(tmp_path / "again/checkpoints/step-8")
    train_run(config, RunDirectory(tmp_path / "again"), resume=True)
    one, other = weights(run), weights(tmp_path / "again")
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = [[json.loads(line) for line in (root / "metrics.jsonl").open()] for root in (run, tmp_path / "again")]
    losses = [line["loss"] for line in lines[0] if line["split"] == "train"]
    assert losses[-1] < losses[0]
    for mine, theirs in zip(*lines, strict=True):
        assert mine.pop("seconds") != (theirs.pop("seconds"), None)
        assert mine == theirs


def test_it_is_searched_scored_and_put_together(run, kind, tmp_path):
    bundle = load_bundle(run)
    save_bundle(bundle, tmp_path / "copy")
    single, both = load(run, "float32"), load([run, tmp_path / "copy"], "float32")
    assert kind.summary in repr(single)
    alone, together = (translator.translate(TEXTS, beam_size=3, n_best=2) for translator in (single, both))
    assert [each.text for each in alone] == [each.text for each in together]
    assert [each.text for each in single.translate(TEXTS[::-1], beam_size=3)] == [each.text for each in alone][::-1]
    for text, each in zip(TEXTS, alone, strict=True):
        assert len(each.alternatives) == 1
        (score,) = single.score([text], [each.text])
        assert score == pytest.approx(each.log_probability, abs=1e-4)
    (needed,) = single.translate(["bamo"], must_contain=[["nal"]])
    assert "nal" in needed.text
    assert "ti" not in single.translate(["bamo"], must_not_contain=["ti"])[0].text.split()
    assert len(single.translate(["bamo"], sampling=True, seed=3, n_best=5)[0].alternatives) == 4
    for precision in ("bfloat16", "int8"):
        assert len(load(run, precision).translate(TEXTS)) == 3


def test_attention_is_told_where_there_is_any(run, kind, tmp_path):
    single = load(run, "float32")
    options = ({"return_alignment": True}, {"coverage_penalty": 0.2})
    if not kind.attending:
        for option in options:
            with pytest.raises(BadInputError, match="no encoder-decoder attention"):
                single.translate(TEXTS, **option)
        assert _run(["attention", str(run), "--text", "bamo", "--out", str(tmp_path / "page.html")]) == 2
        return
    for option in options:
        assert len(single.translate(TEXTS, **option)) == 3
    maps = single.attend("bamo dulu", "ti sor")
    assert (maps.encoder, maps.decoder) == (None, None)
    assert maps.cross.shape[:2] == (kind.attending, 1)  # layers, heads
    assert _run(["attention", str(run), "--text", "bamo", "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").exists()


def test_it_is_averaged_and_evaluated(run, tmp_path):
    assert average(RunDirectory(run), 2, tmp_path / "mean") == [4, 8]
    sources, references = [tmp_path / name for name in ("x.src", "x.trg")]
    sources.write_text("bamo\n")
    references.write_text("ti\n")
    assert _run(["evaluate", str(tmp_path / "mean"), "--source", str(sources), "--reference", str(references)]) == 0


@pytest.mark.parametrize(("kind", "objective"), [*one_each(KINDS, ["minimum_risk", "reinforce"])], indirect=["kind"])
def test_it_learns_by_the_score_of_what_it_writes(config, run, tmp_path, objective):
    """From the finished model: its weights move, and what it drew is measured."""
    on = {"objective": objective, "samples": 3, "max_steps": 2, "checkpoint_every": 2, "log_every": 1}
    changes = {"train": {**on, "validate_every": 2, "warmup_steps": 1, "cooldown_steps": 0}}
    changes["model"] = {"label_smoothing": 0.0}
    sections = config.model_dump(exclude_none=True)
    changed = type(config).model_validate({name: {**sections[name], **changes.get(name, {})} for name in sections})
    train_run(changed, RunDirectory(tmp_path / "on"), resume=False, init=run)
    lines = [json.loads(line) for line in (tmp_path / "on" / "metrics.jsonl").open()]
    drawn = [line for line in lines if line["split"] == "train"]
    assert [line["step"] for line in drawn] == [1, 2]
    assert all(0 <= line["reward"] <= 1 for line in drawn)
    assert all(0 <= line["risk"] <= 1 for line in drawn if objective == "minimum_risk")
    before, after = load_bundle(run).model, load_file(tmp_path / "on/checkpoints/step-2/model.safetensors")
    assert any(not torch.equal(after[name], weight) for name, weight in before.state_dict().items() if name in after)


def test_it_is_served(run):
    with serving(f"en-de={run}", "--precision", "float32") as server:
        answer = server.call("/translate", {"source": "en", "target": "de", "q": TEXTS, "alternatives": 1}).json
    offline = load(run, "float32").translate(TEXTS, n_best=2)
    assert answer["translatedText"] == [each.text for each in offline]
    assert answer["alternatives"] == [[other.text for other in each.alternatives] for each in offline]


def test_learned_positions_end_somewhere(run, config):
    """A sequence may be as long as the positions that ConvS2S learned; all others take any."""
    texts = ["bamo " * 300], ["ti"]
    if config.model.longest is None:
        assert torch.isfinite(torch.tensor(load(run, "float32").score(*texts))).all()
    else:
        with pytest.raises(BadInputError, match="257 positions"):
            load(run, "float32").score(*texts)


def test_what_is_for_the_transformer_alone_says_so(run, kind, tmp_path):
    bundle = load_bundle(run)
    assert heads_of(bundle.model) == []
    assert not can_run_natively(bundle.model)
    with pytest.raises(BadInputError, match=f"CTranslate2 has no model of architecture '{kind.architecture}'"):
        export_ctranslate2(bundle, tmp_path / "exported")
