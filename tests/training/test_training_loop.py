import json
import signal
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from transduce.config import BadInputError, SpecialIds, TrainConfig, preset
from transduce.data import Batch, EncodedPair, Store, plan_epoch, write_store
from transduce.models import Tokens, TrainableModel, build
from transduce.training import (
    Corpora,
    DevOutputs,
    Hooks,
    Progress,
    Report,
    Requests,
    Sample,
    Training,
    list_checkpoints,
    list_regular,
    load_checkpoint,
    make_optimizer,
    train,
    train_step,
)
from transduce.training.loop import _mark
from transduce.training.validation import _is_better

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
WORDS = 7  # source words are 3 to 9; each becomes the word seven above it
CONFIG = TrainConfig(
    batch_tokens=64,
    max_steps=8,
    precision="float32",
    warmup_steps=10,
    learning_rate_factor=0.3,
    log_every=2,
    validate_every=4,
    checkpoint_every=4,
)


@dataclass
class Notes:
    """What the loop told its hooks; ``bleus`` are the scores that it gets back, one after another."""

    bleus: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    saved: list[torch.Tensor] = field(default_factory=list)

    def translate_dev(self, model: TrainableModel) -> DevOutputs:
        assert not model.training
        return DevOutputs({"bleu": self.bleus.pop(0) if self.bleus else 0.0}, self.samples)

    def save_best(self, model: TrainableModel) -> None:
        self.saved.append(next(model.parameters()).detach().clone())


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    folder = tmp_path_factory.mktemp("store")
    random = np.random.default_rng(11)
    sources = [random.integers(3, 3 + WORDS, random.integers(1, 8)).tolist() for _ in range(113)]
    pairs = [(source, [word + WORDS for word in source], 0) for source in sources]
    write_store(folder / "train", pairs[:101], {})
    write_store(folder / "dev", pairs[101:], {})
    return Corpora(Store(folder / "train"), Store(folder / "dev"), SPECIAL)


def _train(
    folder: Path,
    corpora: Corpora,
    config: TrainConfig,
    notes: Notes | None = None,
    *,
    dropout: float = 0.1,
    stop_after: int | None = None,
) -> tuple[Training, Progress]:
    """Train in ``folder`` from where it stands, as a new process would."""
    notes = notes or Notes()
    checkpoints = list_checkpoints(folder / "checkpoints")
    # What a resumed training starts from must come from the checkpoint, so its fresh weights are others.
    torch.manual_seed(1000 + len(checkpoints))
    changes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 24, "heads": 2}
    model = build(preset("base", changes | {"dropout": dropout, "label_smoothing": 0.0, "vocab_size": 3 + 2 * WORDS}))
    optimizer = make_optimizer(model, config)
    progress = load_checkpoint(checkpoints[-1][1], model, optimizer) if checkpoints else Progress()
    folder.mkdir(exist_ok=True)
    with Report(folder / "metrics.jsonl", max_steps=config.max_steps, step=progress.step) as report:
        hooks = Hooks(notes.translate_dev, notes.save_best)
        requests = Requests(stop_after)
        training = Training(model, optimizer, corpora, config, folder / "checkpoints", report, hooks, requests)
        return training, train(training, progress)


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _measured(folder: Path) -> list[dict[str, Any]]:
    """All that was measured, but for the clock."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in _metrics(folder)]


def _lists(store: Store, row: int, corpus: int = 0) -> EncodedPair:
    source, target = store.pair(row)
    return source.tolist(), target.tolist(), corpus


def _stored(corpora: Corpora) -> Store:
    assert isinstance(corpora.train, Store)
    return corpora.train


def _target_lengths(store: Store) -> NDArray[np.int64]:
    """With the end symbol."""
    return np.array([len(store.pair(row)[1]) + 1 for row in range(len(store))])


def _batches_in_an_epoch(corpora: Corpora, config: TrainConfig) -> int:
    return plan_epoch(_stored(corpora), config.batch_tokens, config.seed, 0).count_batches()


def test_the_same_seed_gives_the_same_losses_and_another_does_not(tmp_path, corpora):
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        _train(tmp_path / name, corpora, CONFIG.model_copy(update={"seed": seed}))
    one, again, other = (_measured(tmp_path / name) for name in ("one", "again", "other"))
    assert one == again
    assert [line["loss"] for line in one] != [line["loss"] for line in other]


def test_a_constant_rate_stays_and_cools_down(tmp_path, corpora):
    """Up to 0.3 by step 2; of eight steps, the last three cool down by thirds."""
    changes = {"learning_rate": 0.3, "learning_rate_factor": 1.0, "warmup_steps": 2, "cooldown_steps": 3}
    _train(tmp_path / "run", corpora, CONFIG.model_copy(update={**changes, "log_every": 1}))
    rates = {line["step"]: line["learning_rate"] for line in _metrics(tmp_path / "run")}
    assert list(rates.values()) == pytest.approx([0.15, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2, 0.1])


def test_a_stop_while_the_model_that_it_begins_with_is_measured_leaves_nothing_behind(tmp_path, corpora):
    """It begins anew the next time, and measures again."""
    requests = Requests()

    def stop(_: TrainableModel) -> DevOutputs:
        requests.ask_stop(signal.SIGINT)
        return DevOutputs({})

    torch.manual_seed(1)
    model = build(preset("base", {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "heads": 2}))
    optimizer, checkpoints = make_optimizer(model, CONFIG), tmp_path / "checkpoints"
    with Report(tmp_path / "metrics.jsonl", max_steps=8, step=0) as report:
        hooks = Hooks(stop, lambda _: None)
        training = Training(model, optimizer, corpora, CONFIG, checkpoints, report, hooks, requests)
        progress = train(training, Progress(init="model", unvalidated=True))
    assert (progress.step, progress.unvalidated, requests.stopped_by) == (0, True, signal.SIGINT)
    assert (list_checkpoints(checkpoints), _metrics(tmp_path)) == ([], [])


def test_the_last_checkpoint_is_a_regular_one_although_dev_was_measured_late(tmp_path, corpora, monkeypatch):
    """A stop while dev was measured left one that was asked for, in which the mean of the newest has no part."""
    _train(tmp_path, corpora, CONFIG)
    regular, load_it = list_regular(tmp_path / "checkpoints"), load_checkpoint

    def load(*given: Any) -> Progress:
        progress: Progress = load_it(*given)
        return progress.model_copy(update={"asked": True, "unvalidated": True})

    monkeypatch.setitem(globals(), "load_checkpoint", load)
    _train(tmp_path, corpora, CONFIG)
    assert list_regular(tmp_path / "checkpoints") == regular


def test_the_time_that_is_left_is_the_clocks_where_that_ends_first(tmp_path, corpora, monkeypatch):
    said: dict[int, float | None] = {}
    monkeypatch.setattr(Report, "advance", lambda _, step, left=None: said.update({step: left}))
    endless = {"max_steps": 10**9, "validate_every": 10**9, "checkpoint_every": 10**9, "max_minutes": 0.01}
    _, progress = _train(tmp_path / "run", corpora, CONFIG.model_copy(update=endless))
    lefts = [left for left in said.values() if left is not None]
    assert len(lefts) == progress.step
    assert all(0 <= left <= 0.6 for left in lefts)
    assert lefts == sorted(lefts, reverse=True)  # a clock does nothing but run down
    assert lefts[-1] == 0


def test_batches_cut_in_two_train_the_same(tmp_path, corpora, monkeypatch):
    """Every batch of 64 tokens a side has several pairs; what is dropped of each does not depend on the others."""
    _train(tmp_path / "whole", corpora, CONFIG)

    def cut(batch: Batch) -> list[Batch]:
        middle = len(batch.source) // 2
        parts = [
            {name: part(value) for name, value in vars(batch).items() if value is not None}
            for part in (lambda x: x[:middle], lambda x: x[middle:])
        ]
        return [Batch(**part) for part in parts]

    def step(model, optimizer, batches, *rest, tokens):
        parts = [part for batch in batches for part in cut(batch)]
        return train_step(model, optimizer, parts, *rest, tokens=tokens)

    monkeypatch.setattr("transduce.training.loop.train_step", step)
    _train(tmp_path / "halves", corpora, CONFIG)
    whole, halves = ([line["loss"] for line in _metrics(tmp_path / name)] for name in ("whole", "halves"))
    assert halves == pytest.approx(whole, rel=1e-4)


def test_dropout_is_drawn_anew_at_every_step(tmp_path, corpora):
    """With a rate of almost nothing and the same batch every time, only dropout can change the loss."""
    everything = corpora.train.tokens[1] * 10
    still = CONFIG.model_copy(update={"batch_tokens": int(everything), "learning_rate_factor": 1e-12, "log_every": 1})
    _train(tmp_path / "dropout", corpora, still)
    _train(tmp_path / "none", corpora, still, dropout=0.0)
    losses = [line["loss"] for line in _metrics(tmp_path / "dropout") if line["split"] == "train"]
    assert len(set(losses)) == len(losses) == 8
    steady = [line["loss"] for line in _metrics(tmp_path / "none") if line["split"] == "train"]
    assert steady == pytest.approx([steady[0]] * 8, rel=1e-6)


def test_dropout_follows_from_the_seed(tmp_path, corpora):
    """With all pairs in one batch, nothing else does."""
    everything = int(corpora.train.tokens[1] * 10)
    first = CONFIG.model_copy(update={"batch_tokens": everything, "max_steps": 1, "log_every": 1})
    losses = []
    for seed, dropout in ((1, 0.1), (2, 0.1), (1, 0.0), (2, 0.0)):
        folder = tmp_path / f"{seed} {dropout}"
        _train(folder, corpora, first.model_copy(update={"seed": seed}), dropout=dropout)
        losses += [line["loss"] for line in _metrics(folder) if line["split"] == "train"]
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)
    assert losses[2] == pytest.approx(losses[3], rel=1e-5)


@pytest.mark.parametrize("asked", [True, False])
def test_a_checkpoint_that_was_asked_for_leaves_the_rhythm_as_it_is(asked):
    marked = _mark(Progress(seconds=95.0, checkpoint_seconds=60.0), asked=asked)
    assert (marked.asked, marked.checkpoint_seconds) == (asked, 60.0 if asked else 95.0)


@pytest.mark.parametrize("half", [4, 12, pytest.param(28, marks=pytest.mark.slow)])
def test_two_halves_equal_the_whole_bit_for_bit(tmp_path, corpora, half):
    batches = _batches_in_an_epoch(corpora, CONFIG)
    assert half % batches  # the interruption is in the middle of an epoch ...
    assert (batches > 4) and (batches < 12)  # ... of the first one, and of a later one
    whole, halves, steps = tmp_path / "whole", tmp_path / "halves", half + 4
    _train(whole, corpora, CONFIG.model_copy(update={"max_steps": steps}))
    _, middle = _train(halves, corpora, CONFIG.model_copy(update={"max_steps": half}))
    assert (middle.epoch, middle.window, middle.batch) == (half // batches, 0, half % batches)
    _, end = _train(halves, corpora, CONFIG.model_copy(update={"max_steps": steps}))
    assert end.step == steps
    assert _measured(halves) == _measured(whole)
    for name in ("model.safetensors", "optimizer.safetensors"):
        last = Path("checkpoints") / f"step-{steps}" / name
        assert (halves / last).read_bytes() == (whole / last).read_bytes()


@pytest.fixture(scope="module")
def weighted(corpora: Corpora, tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """A corpus of 40 pairs of which an epoch has a quarter, and one of 61 that it has twice."""
    path = tmp_path_factory.mktemp("weighted") / "train"
    write_store(path, [_lists(_stored(corpora), row, int(row >= 40)) for row in range(101)], {})
    return Corpora(Store(path), corpora.dev, SPECIAL, (0.25, 2.0))


def test_an_epoch_has_each_corpus_as_often_as_it_weighs(tmp_path, weighted):
    lengths = _target_lengths(weighted.train)
    twice = 2 * int(lengths[40:].sum())
    # One batch of everything is an epoch.
    config = CONFIG.model_copy(update={"batch_tokens": 10_000, "log_every": 1, "max_steps": 3})
    _, progress = _train(tmp_path, weighted, config)
    assert (progress.epoch, progress.batch) == (2, 1)
    reached = [0, *(line["target_tokens"] for line in _metrics(tmp_path) if line["split"] == "train")]
    few = [after - before - twice for before, after in pairwise(reached)]
    shortest_first = sorted(lengths[:40])
    assert all(sum(shortest_first[:10]) <= tokens <= sum(shortest_first[30:]) for tokens in few)
    assert len(set(few)) > 1  # another quarter in another epoch


def test_two_halves_of_a_weighted_training_equal_the_whole(tmp_path, weighted):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    _train(whole, weighted, CONFIG.model_copy(update={"max_steps": 16}))
    _, middle = _train(halves, weighted, CONFIG.model_copy(update={"max_steps": 12}))
    assert middle.epoch
    assert middle.batch
    _train(halves, weighted, CONFIG.model_copy(update={"max_steps": 16}))
    assert _measured(halves) == _measured(whole)


@pytest.mark.parametrize("stop", [3, pytest.param(7, marks=pytest.mark.slow), 13])
def test_a_training_in_windows_goes_on_where_it_was(tmp_path, corpora, monkeypatch, stop):
    """Blocks of 7 pairs, and windows of three of them: as for a corpus of millions, an epoch is planned in parts."""
    monkeypatch.setattr("transduce.data.store._ROWS_PER_BLOCK", 7)
    monkeypatch.setattr("transduce.data.plan._WINDOW", 21)
    write_store(tmp_path / "blocks", [_lists(corpora.train, row) for row in range(101)], {})
    parts = Corpora(Store(tmp_path / "blocks"), corpora.dev, SPECIAL)
    plan = plan_epoch(parts.train, CONFIG.batch_tokens, CONFIG.seed, 0)
    assert plan.windows == 5
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    _train(whole, parts, CONFIG.model_copy(update={"max_steps": 16, "symbol_dropout": 0.1}))
    _, middle = _train(halves, parts, CONFIG.model_copy(update={"max_steps": stop, "symbol_dropout": 0.1}))
    sizes = [len(plan.window(index).batches) for index in range(5)]
    assert middle.epoch or sum(sizes[: middle.window]) + middle.batch == stop
    _train(halves, parts, CONFIG.model_copy(update={"max_steps": 16, "symbol_dropout": 0.1}))
    # The halves also measured where they stopped.
    assert all(line in _measured(halves) for line in _measured(whole)[-2:])
    last = Path("checkpoints") / "step-16" / "model.safetensors"
    assert (halves / last).read_bytes() == (whole / last).read_bytes()


def test_a_weight_that_leaves_nothing_to_train_on_is_refused(tmp_path, corpora):
    with pytest.raises(BadInputError, match="an epoch has no pair at all"):
        _train(tmp_path, replace(corpora, weights=(0.001,)), CONFIG)


def test_a_crash_between_checkpoints_leaves_no_trace(tmp_path, corpora, monkeypatch):
    class CrashError(Exception):
        pass

    def crash(_: TrainableModel) -> DevOutputs:
        raise CrashError

    config = CONFIG.model_copy(update={"max_steps": 12, "validate_every": 6})
    _train(tmp_path / "whole", corpora, config)
    notes = Notes()
    monkeypatch.setattr(notes, "translate_dev", crash)
    with pytest.raises(CrashError):
        _train(tmp_path / "crashed", corpora, config, notes)
    assert [line["step"] for line in _metrics(tmp_path / "crashed")] == [2, 4, 6]
    assert [step for step, _ in list_checkpoints(tmp_path / "crashed" / "checkpoints")] == [4]
    _train(tmp_path / "crashed", corpora, config)
    assert _measured(tmp_path / "crashed") == _measured(tmp_path / "whole")


def test_a_tiny_model_learns_a_tiny_corpus_by_heart(tmp_path, corpora):
    write_store(tmp_path / "few", [_lists(corpora.train, row) for row in range(7)], {})
    few = Corpora(Store(tmp_path / "few"), corpora.dev, SPECIAL)
    once = dict.fromkeys(("max_steps", "validate_every", "checkpoint_every"), 100)
    config = CONFIG.model_copy(update=once | {"warmup_steps": 30, "learning_rate_factor": 0.5, "log_every": 20})
    _train(tmp_path, few, config, dropout=0.0)
    first, *_, last = [line["loss"] for line in _metrics(tmp_path) if line["split"] == "train"]
    assert first > 1.0
    assert last < 0.1  # nats a token: the right one nine times out of ten and more


def test_metrics_hold_what_is_promised(tmp_path, corpora):
    notes = Notes([12.5, 25.0], [Sample("bamo\u2028", "ti", 'a "b" \n')])
    _, progress = _train(tmp_path, corpora, CONFIG, notes)
    lines = _metrics(tmp_path)
    assert [(line["step"], line["split"]) for line in lines] == [
        (2, "train"),
        (4, "train"),
        (4, "dev"),
        (6, "train"),
        (8, "train"),
        (8, "dev"),
    ]
    promised = {"step", "split", "loss", "learning_rate", "target_tokens", "seconds"}
    own = {"train": {"gradient_norm", "skipped"}, "dev": {"bleu", "samples"}}
    assert all(line.keys() == promised | own[line["split"]] for line in lines)
    assert [line["bleu"] for line in lines if line["split"] == "dev"] == [12.5, 25.0]
    assert lines[-1]["samples"] == [{"source": "bamo\u2028", "reference": "ti", "output": 'a "b" \n'}]
    # d_model 16 gives 1/4; the warm-up of 10 steps gives 10^-1.5 a step; the factor is 0.3.
    assert lines[1]["learning_rate"] == pytest.approx(0.3 * 0.25 * 4 * 10**-1.5)
    lengths, plan = _target_lengths(corpora.train), [*plan_epoch(corpora.train, CONFIG.batch_tokens, CONFIG.seed, 0)]
    expected = [sum(int(lengths[rows].sum()) for rows in plan[:n]) for n in (2, 4, 6, 8)]
    assert [line["target_tokens"] for line in lines if line["split"] == "train"] == expected
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert progress.seconds == pytest.approx(seconds[-1], abs=1e-3)


def test_the_gradient_norm_is_the_mean_of_the_steps(tmp_path, corpora, monkeypatch):
    norms = []

    def step(*arguments, **settings):
        taken = train_step(*arguments, **settings)
        norms.append(float(taken.gradient_norm))
        return taken

    monkeypatch.setattr("transduce.training.loop.train_step", step)
    _train(tmp_path, corpora, CONFIG)
    written = [line["gradient_norm"] for line in _metrics(tmp_path) if line["split"] == "train"]
    assert written == pytest.approx([(norms[first] + norms[first + 1]) / 2 for first in (0, 2, 4, 6)])
    assert min(written) > 0


def test_dev_loss_is_the_mean_over_tokens_without_smoothing(tmp_path, corpora):
    training, _ = _train(tmp_path, corpora, CONFIG)
    model = training.model.eval()
    total, tokens = 0.0, 0
    for index in range(len(corpora.dev)):  # one by one: no padding
        source, target = (side.tolist() for side in corpora.dev.pair(index))
        with torch.no_grad():
            read = model.encode(Tokens(torch.tensor([[*source, 2]]), torch.tensor([len(source) + 1])))
            hidden = model.decode(read, Tokens(torch.tensor([[1, *target]]), torch.tensor([len(target) + 1]))).hidden
            log_probability = model.project(hidden).log_softmax(-1)
        total -= float(log_probability[range(len(target) + 1), [*target, 2]].sum())
        tokens += len(target) + 1
    dev = [line for line in _metrics(tmp_path) if line["split"] == "dev"][-1]
    assert dev["loss"] == pytest.approx(total / tokens, rel=1e-5)


def test_best_by_bleu(tmp_path, corpora):
    notes = Notes(bleus=[3.0, 7.0, 5.0, 6.0])
    training, progress = _train(tmp_path, corpora, CONFIG.model_copy(update={"max_steps": 16}), notes)
    assert (progress.best_step, progress.best_score) == (8, 7.0)
    assert len(notes.saved) == 2
    saved_then = load_file(tmp_path / "checkpoints" / "step-8" / "model.safetensors")["embedding.weight"]
    assert torch.equal(notes.saved[-1], saved_then)
    assert not torch.equal(notes.saved[-1], training.model.embedding.weight)


def test_of_equal_scores_the_lower_loss_decides(tmp_path, corpora):
    """BLEU is 0 as long as a model hardly knows anything: one that learns all the while is no reason to stop."""
    config = CONFIG.model_copy(update={"max_steps": 16, "early_stop": 2})
    notes = Notes()
    _, progress = _train(tmp_path / "whole", corpora, config, notes)
    losses = [line["loss"] for line in _metrics(tmp_path / "whole") if line["split"] == "dev"]
    assert losses == sorted(losses, reverse=True)
    assert (progress.best_step, progress.best_loss, progress.stale, len(notes.saved)) == (16, losses[-1], 0, 4)
    _train(tmp_path / "halves", corpora, config, stop_after=9)
    _, again = _train(tmp_path / "halves", corpora, config)
    assert (again.best_step, again.best_loss, again.stale) == (16, losses[-1], 0)
    # A higher one does not take the place, and is stale.
    upwards = config.model_copy(update={"max_steps": 20, "warmup_steps": 1, "learning_rate_factor": 100.0})
    _, worse = _train(tmp_path / "whole", corpora, upwards, notes)
    assert (worse.best_step, worse.best_loss, worse.stale, len(notes.saved)) == (16, losses[-1], 1, 4)


@pytest.mark.parametrize(
    ("found", "best", "better"),
    [
        ((7.0, 3.0), (None, None), True),
        ((float("nan"), 3.0), (None, None), False),
        ((7.0, 3.0), (5.0, 2.0), True),
        ((5.0, 3.0), (7.0, 9.0), False),
        ((7.0, 2.0), (7.0, 3.0), True),
        ((7.0, 3.0), (7.0, 3.0), False),
        ((7.0, 3.0), (7.0, None), True),  # an older checkpoint's, or one that was NaN
        ((7.0, float("nan")), (7.0, None), False),
        ((float("nan"), 1.0), (7.0, 3.0), False),
    ],
)
def test_what_is_better(found, best, better):
    assert _is_better(*found, *best) == better


def test_best_by_loss(tmp_path, corpora):
    notes = Notes(bleus=[9.0, 8.0, 7.0])
    config = CONFIG.model_copy(update={"max_steps": 12, "best_metric": "loss"})
    _, progress = _train(tmp_path, corpora, config, notes)
    losses = [line["loss"] for line in _metrics(tmp_path) if line["split"] == "dev"]
    assert losses == sorted(losses, reverse=True)  # it falls all the time, while BLEU does too
    assert len(notes.saved) == 3
    assert (progress.best_step, progress.best_score) == (12, pytest.approx(-losses[-1]))


def test_the_best_is_remembered_over_a_resume(tmp_path, corpora):
    _train(tmp_path, corpora, CONFIG, Notes(bleus=[50.0, 40.0]))
    notes = Notes(bleus=[45.0, 60.0])
    _, progress = _train(tmp_path, corpora, CONFIG.model_copy(update={"max_steps": 16}), notes)
    assert len(notes.saved) == 1
    assert (progress.best_step, progress.best_score) == (16, 60.0)


def test_another_best_metric_starts_anew(tmp_path, corpora):
    """50 BLEU would be better than any loss, which is kept negated: no model would ever be the best again."""
    _train(tmp_path, corpora, CONFIG, Notes(bleus=[50.0, 40.0]))
    notes = Notes(bleus=[60.0, 10.0, 20.0, 15.0])
    by_loss = CONFIG.model_copy(update={"max_steps": 16, "best_metric": "loss"})
    _, progress = _train(tmp_path, corpora, by_loss, notes)
    losses = [line["loss"] for line in _metrics(tmp_path) if line["split"] == "dev" and line["step"] > 8]
    assert losses == sorted(losses, reverse=True)
    assert len(notes.saved) == 2
    assert (progress.best_step, progress.best_score, progress.best_metric) == (16, -losses[-1], "loss")
    _, progress = _train(tmp_path, corpora, CONFIG.model_copy(update={"max_steps": 24}), notes)
    assert (progress.best_step, progress.best_score, progress.best_metric) == (20, 20.0, "bleu")


@pytest.mark.parametrize(("score", "metric"), [(31.7, "bleu"), (0.0, "bleu"), (-1.7, "loss"), (None, None)])
def test_an_old_checkpoint_s_best_score_tells_its_metric(score, metric):
    assert Progress.model_validate({"step": 4, "best_score": score}).best_metric == metric


@pytest.mark.parametrize(("metric", "best"), [("perplexity", 3), ("ter", 2), ("chrf", 1)])
def test_the_best_may_be_of_any_metric_that_dev_has(tmp_path, corpora, monkeypatch, metric, best):
    notes, values = Notes(), iter([30.0, 20.0, 25.0])

    def translate_dev(_: TrainableModel) -> DevOutputs:
        return DevOutputs({"bleu": 0.0, metric: next(values)} if best < 3 else {})

    monkeypatch.setattr(notes, "translate_dev", translate_dev)
    config = CONFIG.model_copy(update={"max_steps": 3, "validate_every": 1, "best_metric": metric})
    _, progress = _train(tmp_path, corpora, config, notes)
    assert (progress.best_step, progress.best_metric) == (best, metric)


def test_old_checkpoints_go_and_the_last_step_stays(tmp_path, corpora):
    config = CONFIG.model_copy(update={"max_steps": 9, "checkpoint_every": 2, "keep_checkpoints": 2})
    _train(tmp_path, corpora, config)
    assert [step for step, _ in list_checkpoints(tmp_path / "checkpoints")] == [8, 9]


OFTEN = CONFIG.model_copy(
    update={"max_steps": 12, "checkpoint_every": 2, "average_last": 3, "cooldown_steps": 5, "early_stop": 2}
    | {"best_metric": "loss"}
)


@pytest.fixture(scope="module")
def without_a_stop(corpora: Corpora, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Progress]:
    folder = tmp_path_factory.mktemp("whole") / "whole"
    return folder, _train(folder, corpora, OFTEN)[1]


# Before and behind a measurement, and at one of a mean, too.
@pytest.mark.parametrize("stop", [3, 5, 8, *(pytest.param(stop, marks=pytest.mark.slow) for stop in (4, 7, 11))])
def test_a_stop_anywhere_changes_neither_the_weights_nor_what_is_best(tmp_path, corpora, without_a_stop, stop):
    """Stops leave a checkpoint out of the rhythm: means, the rate's fall and the patience are as without."""
    (folder, whole), halves = without_a_stop, tmp_path / "halves"
    _, half = _train(halves, corpora, OFTEN, stop_after=stop)
    assert half.step == stop
    _, end = _train(halves, corpora, OFTEN)
    times = {"seconds": 0.0, "checkpoint_seconds": 0.0}
    assert end.model_copy(update=times) == whole.model_copy(update=times)
    dev = [[line for line in _measured(out) if line["split"] == "dev"] for out in (folder, halves)]
    assert dev[0] == dev[1]
    assert len(dev[0]) == 5  # of 4 the model alone, as three checkpoints are not there yet; of 8 and 12 the mean too
    for name in ("model.safetensors", "optimizer.safetensors"):
        last = Path("checkpoints") / "step-12" / name
        assert (halves / last).read_bytes() == (folder / last).read_bytes()


def test_going_on_reads_nothing_of_what_is_done(tmp_path, corpora, monkeypatch):
    batches = _batches_in_an_epoch(corpora, CONFIG)
    _train(tmp_path, corpora, CONFIG.model_copy(update={"max_steps": batches - 3}))
    read = []
    pair = corpora.train.pair

    def notice(row: int) -> Any:
        read.append(row)
        return pair(row)

    monkeypatch.setattr(corpora.train, "pair", notice)
    monkeypatch.setattr("transduce.training.loop.fit", lambda *_: 1)  # it looks at the widest batches, done or not
    _train(tmp_path, corpora, CONFIG.model_copy(update={"max_steps": batches}))
    plan = [*plan_epoch(corpora.train, CONFIG.batch_tokens, CONFIG.seed, 0)]
    assert sorted(read) == sorted(np.concatenate(plan[-3:]))


def test_a_best_model_that_finds_no_room_is_tried_again(tmp_path, corpora, monkeypatch, caplog):
    notes = Notes(bleus=[30.0, 20.0, 10.0])
    save, calls = notes.save_best, []

    def refuse_first(model: TrainableModel) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        save(model)

    monkeypatch.setattr(notes, "save_best", refuse_first)
    _, progress = _train(tmp_path, corpora, CONFIG.model_copy(update={"max_steps": 12}), notes)
    assert (progress.best_score, progress.best_step, progress.stale, len(calls)) == (20.0, 8, 1, 2)
    told = "the best model could not be written: No space left on device (make room on this disk); there is none yet"
    assert told in caplog.text


def test_a_damaged_checkpoint_leaves_only_the_mean_out(tmp_path, corpora, caplog):
    config = CONFIG.model_copy(update={"average_last": 2})
    _train(tmp_path, corpora, config, stop_after=4)
    _train(tmp_path, corpora, config, stop_after=6)
    weights = tmp_path / "checkpoints" / "step-4" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    _, progress = _train(tmp_path, corpora, config)
    assert progress.step == 8
    assert "no mean of 2 checkpoints is tried" in caplog.text
