"""Everything that runs on a CUDA device, without one: no tensor may be left on the CPU, whatever the model is."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from tests.model_variants import VARIANTS
from tests.pretended_cuda import CPU, CUDA, CudaTensor, MixedDevicesError, pretended_cuda
from tests.sparing import every, one_each
from transduce.config import ConvolutionalConfig, SpecialIds, TrainConfig, preset
from transduce.data import Store, write_store
from transduce.inference.engine import Engine
from transduce.models import Shortlist, Transformer, build
from transduce.search import Containing, LengthPenalty, NoRepeat, Prefixes, Sampling, SearchSettings, Without
from transduce.search.coverage import Coverage
from transduce.training import (
    Corpora,
    DevOutputs,
    Hooks,
    Progress,
    Report,
    Training,
    list_checkpoints,
    load_newest,
    make_optimizer,
    train,
)
from transduce.training.session import Sums

pytest_plugins = ["model_variants"]

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
VOCABULARY = 17
SMALL = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 12, "d_ff": 20, "heads": 2, "vocab_size": VOCABULARY}
SOURCES = [[5, 7, 11], [13], [4, 6, 8, 10, 12], [9, 9]]
TARGETS = [[6, 8], [14, 4, 5, 7], [5], []]
CONVOLUTIONAL = (
    ConvolutionalConfig(
        embedding_width=12,
        output_width=7,
        encoder_convolutions=((10, 3, 2),),
        decoder_convolutions=((10, 3, 1), (8, 1, 1)),
        vocab_size=VOCABULARY,
    ),
    ConvolutionalConfig(network="bytenet", channels=6, encoder_blocks=2, decoder_blocks=2, vocab_size=VOCABULARY),
)
TRAIN = TrainConfig(
    batch_tokens=24,
    max_steps=1,
    warmup_steps=2,
    log_every=1,
    validate_every=1,
    checkpoint_every=1,
    precision="float32",
)
# Three sentences at most are in the search together, so that others come in while some are under way.
BEAM, BATCH_TOKENS, EXTRA = 3, 31, 3
EVERYTHING = {"n_best": 2, "coverage": 0.2, "diversity": 0.5, "min_length": 2}
FEATURES = {
    "greedy": {"beam_size": 1},
    "beam": {"penalty": LengthPenalty("marian", 1.0), "stopping": "full_beam"},
    "sampling": {"n_best": BEAM, "sampling": Sampling(temperature=1.3, top_k=7, top_p=0.9)},
    "prefixes": {"constraints": (Prefixes({0: [5, 7], 2: [6]}),)},
    "phrases": {"constraints": (Containing({1: [[4, 5], [9]], 2: [[8]]}, SPECIAL.end), Without([[6], [7, 9]]))},
    "no repeat": {"constraints": (NoRepeat(1),)},
}


def make(config, device, seed=3):
    """A model whose outputs are of several lengths."""
    torch.manual_seed(seed)
    model = build(config)
    if isinstance(model, Transformer):
        model.output.weight.data *= 4
    return model.to(device).eval()


def settings(**changes):
    given = {"beam_size": BEAM, "forbidden": (SPECIAL.pad, SPECIAL.begin, SPECIAL.unknown), **changes}
    return SearchSettings(SPECIAL.begin, SPECIAL.end, **given)


def engines(*configs):
    """The same models on the CPU and on CUDA."""
    return [engine(device, *configs) for device in (CPU, CUDA)]


def engine(device, *configs):
    models = [make(config, device, seed) for seed, config in enumerate(configs)]
    return Engine(models, SPECIAL, "float32", device, BATCH_TOKENS, workers=1)


def search(engine, **changes):
    found = engine.search(SOURCES, settings(**changes), EXTRA)
    return [(each.ids, pytest.approx(each.score, abs=1e-4)) for outputs in found for each in outputs]


def train_some(folder, config, train_config, device):
    """Train for one step or more, with dev translated behind them; the figures, and the weights at the end."""
    random = np.random.default_rng(7)
    sentences = [random.integers(4, VOCABULARY, size).tolist() for size in random.integers(1, 6, 62)]
    pairs = [(source, target, 0) for source, target in zip(sentences[:31], sentences[31:], strict=True)]
    folder.mkdir(exist_ok=True)
    for name, some in (("train", pairs[:27]), ("dev", pairs[27:])):
        if not (folder / name).exists():
            write_store(folder / name, some, {})
    model = make(config, device)
    optimizer, progress = make_optimizer(model, train_config), Progress()
    if list_checkpoints(folder / "checkpoints"):
        progress = load_newest(folder / "checkpoints", model, optimizer)

    def translate(model):
        outputs = Engine(model, SPECIAL, "float32", device).search(SOURCES, settings(beam_size=1), EXTRA)
        return DevOutputs({"bleu": float(sum(len(each[0].ids) for each in outputs))})

    with Report(folder / "metrics.jsonl", max_steps=train_config.max_steps, step=progress.step) as report:
        corpora = Corpora(Store(folder / "train"), Store(folder / "dev"), SPECIAL)
        hooks = Hooks(translate, lambda best: None)
        training = Training(model, optimizer, corpora, train_config, folder / "checkpoints", report, hooks)
        progress = train(training, progress)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return progress.step, [line["loss"] for line in lines], progress.best_score


@pytest.mark.parametrize("own", [*every(2, {"one vocabulary": None, "two vocabularies": VOCABULARY + 2}, 1)])
def test_a_training_is_saved_resumed_and_averaged(own, tmp_path):
    config = preset("base", {**SMALL, "source_vocab_size": own})
    found = {}
    for device, there in ((CPU, nullcontext), (CUDA, pretended_cuda)):
        with there():
            for steps in (2, 3):
                longer = {"max_steps": steps, "accumulate": 2, "symbol_dropout": 0.2, "average_last": 2}
                train_config = TRAIN.model_copy(update=longer)
                found[device, steps] = train_some(tmp_path / device.type, config, train_config, device)
    for steps in (2, 3):
        step, losses, best = found[CPU, steps]
        assert found[CUDA, steps] == (step, pytest.approx(losses, rel=1e-4), best)


@pytest.mark.parametrize("variant", [*every(5, VARIANTS, 3)], indirect=True)
def test_every_model_trains(variant, tmp_path):
    config = preset("base", {**SMALL, **variant})
    step, losses, best = train_some(tmp_path / "cpu", config, TRAIN, CPU)
    with pretended_cuda():
        assert train_some(tmp_path / "cuda", config, TRAIN, CUDA) == (step, pytest.approx(losses, rel=1e-4), best)
    assert (step, len(losses)) == (1, 2)


@pytest.mark.parametrize("variant", [*every(5, VARIANTS, 4)], indirect=True)
def test_every_model_searches_scores_and_shows_its_attention(variant):
    config = preset("base", {**SMALL, **variant})
    cpu = engine(CPU, config)
    found, scores = search(cpu, **EVERYTHING), cpu.score(SOURCES, TARGETS)
    attention = dict(cpu.attention(SOURCES, TARGETS))
    with pretended_cuda():
        cuda = engine(CUDA, config)
        assert search(cuda, **EVERYTHING) == found
        assert cuda.score(SOURCES, TARGETS) == pytest.approx(scores, abs=1e-3)
        for row, found in cuda.attention(SOURCES, TARGETS):
            assert type(found.last) is torch.Tensor
            torch.testing.assert_close(found.last, attention[row].last)
            torch.testing.assert_close(found.aligned, attention[row].aligned)


@pytest.mark.parametrize("config", CONVOLUTIONAL, ids=lambda config: config.network)
def test_convolutional_models(config, tmp_path):
    step, losses, best = train_some(tmp_path / "cpu", config, TRAIN, CPU)
    with pretended_cuda():
        assert train_some(tmp_path / "cuda", config, TRAIN, CUDA) == (step, pytest.approx(losses, rel=1e-4), best)
        cpu, cuda = engines(config)
        attends = {"coverage": 0.2 if config.network == "convs2s" else 0.0}
        assert search(cuda, **EVERYTHING | attends) == search(cpu, **EVERYTHING | attends)
        assert cuda.score(SOURCES, TARGETS) == pytest.approx(cpu.score(SOURCES, TARGETS), abs=1e-3)


@pytest.mark.parametrize(("feature", "listed"), [*one_each(FEATURES, (False, True))])
def test_every_feature_of_search(feature, listed):
    """By two models together where there are no shortlists, and by one with them."""
    changes, configs = FEATURES[feature], [preset("base", SMALL), preset("base", {**SMALL, "norm": "pre"})]
    translations = torch.arange(VOCABULARY, dtype=torch.int32).unsqueeze(1) * torch.tensor([[1, 3]]) % VOCABULARY
    shortlist = Shortlist(translations, torch.tensor([4, 7, 9], dtype=torch.int32), VOCABULARY)
    found = []
    with pretended_cuda():
        for engine in engines(*configs[: 1 if listed else 2]):
            found.append(search(engine, shortlist=shortlist.to(engine.device) if listed else None, **changes))
    assert found[0] == found[1]
    assert len(found[0]) == len(SOURCES) * (BEAM if feature == "sampling" else 1)


def test_search_in_low_precision():
    with pretended_cuda():
        engine = Engine(make(preset("base", SMALL), CUDA), SPECIAL, "auto", CUDA)
        assert engine.format == "bfloat16"
        assert len(search(engine, **EVERYTHING)) == 2 * len(SOURCES)
        assert all(score < 0 for score in engine.score(SOURCES, TARGETS))


def test_a_tensor_that_was_left_on_the_cpu_is_found(monkeypatch, tmp_path):
    config = preset("base", SMALL)
    with pretended_cuda():
        _, cuda = engines(config)
        with monkeypatch.context() as planted:
            empty = Coverage.empty
            planted.setattr(Coverage, "empty", lambda lengths, beam, device: empty(lengths, beam, CPU))
            with pytest.raises(MixedDevicesError, match=r"cpu \[.*cuda:0 \["):
                search(cuda, coverage=0.2)
        with monkeypatch.context() as planted:
            planted.setattr(Sums, "zero", lambda device: Sums(torch.zeros(1, dtype=torch.float64), 0))
            with pytest.raises(MixedDevicesError):
                train_some(tmp_path, config, TRAIN, CUDA)


def test_what_is_pretended():
    with pretended_cuda():
        x = torch.arange(6.0, device=CUDA).view(2, 3)
        assert (type(x), x.device, x.is_cuda, x.cpu().device) == (CudaTensor, CUDA, True, CPU)
        for mixed in (
            lambda: x + torch.zeros(3),
            lambda: torch.cat([x, torch.zeros(2, 3)]),
            lambda: x.index_select(0, torch.tensor([1])),
            lambda: torch.zeros(3)[torch.tensor([1], device=CUDA)],
            lambda: torch.zeros(()).add_(torch.ones((), device=CUDA)),
            lambda: torch.zeros(2, 3).add_(x),
            lambda: x.new_zeros(2, 3, device="cpu") * x,
        ):
            with pytest.raises(MixedDevicesError):
                mixed()
        # What CUDA's own operations take.
        assert (x * torch.tensor(2.0)).tolist() == [[0, 2, 4], [6, 8, 10]]
        assert x[torch.tensor([1])].tolist() == [[3, 4, 5]]
        assert torch.zeros(2, 3).copy_(x).tolist() == x.tolist()
        x[:, [0, 2]] = -1.0
        x[0] += torch.ones(3, device=CUDA)
        assert x.cpu().tolist() == [[0, 2, 0], [-1, 4, -1]]
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
