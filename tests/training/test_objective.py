"""Training by the score: gradients against those over all outputs that there are; a step the same however divided."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.bag_of_words import BagConfig, BagOfWords
from transduce.config import SpecialIds, TrainConfig, TransformerConfig
from transduce.data import Batch, Store, pad, write_store
from transduce.evaluation import Gleu
from transduce.models import Decoded, LossSums, Step, Tokens, TrainableModel, Transformer
from transduce.training import (
    Corpora,
    DevOutputs,
    Hooks,
    Progress,
    Report,
    Training,
    join_processes,
    list_checkpoints,
    load_checkpoint,
    make_optimizer,
    place_model,
    step_seed,
    train,
    train_step,
)
from transduce.training.micro_batches import split
from transduce.training.objective import minimum_risk_weights, reinforce_weights, weigh_outputs
from transduce.training.outputs import Outputs, draw_outputs
from transduce.training.step import to_tokens

pytest_plugins = ["together"]

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
A, B = 4, 5
LONGEST = 3  # symbols of an output of the table, end symbol counted
EVERY = [ids for length in range(LONGEST) for ids in product((A, B), repeat=length)]  # all of them: 1 + 2 + 4
REFERENCE = (A, B)
ALPHA, BETA1 = 0.7, 0.5


@dataclass(frozen=True)
class TableState:
    lengths: Tensor
    beam: int

    def reorder(self, rows: Tensor) -> "TableState":
        return self

    def release(self, finished: Tensor) -> "TableState":
        return replace(self, lengths=self.lengths[~finished])

    def admit(self, other: "TableState") -> "TableState":
        return replace(self, lengths=torch.cat([self.lengths, other.lengths]))


@final
class Table(TrainableModel):
    """A logit for every next symbol by the position and the symbol before: a, b or the end, and at last the end."""

    config: Any
    impossible: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.config = BagConfig(vocab_size=6)
        self.logits = nn.Parameter(torch.randn(LONGEST, 6, 6, generator=torch.Generator().manual_seed(3)).double())
        self.register_buffer("impossible", torch.zeros(LONGEST, 6, 6))
        self.impossible[..., [SPECIAL.pad, SPECIAL.begin, SPECIAL.unknown]] = -1e9
        self.impossible[-1, :, [A, B]] = -1e9

    @property
    def width(self) -> int:
        return 6

    def layers(self) -> Iterable[nn.Module]:
        return []

    def look(self, position: Any, symbol: Any) -> Tensor:
        return (self.logits + self.impossible)[position, symbol]

    def encode(self, source: Tokens, **_: Any) -> Tensor:
        return source.lengths

    def decode(self, memory: Tensor, target: Tokens, **_: Any) -> Decoded:
        layout = target.layout()
        return Decoded(self.look(layout.columns, layout.flatten(target.ids)))

    def project(self, hidden: Tensor) -> Tensor:
        return hidden

    def forward(self, source: Tokens, target: Tokens, labels: Tensor, weights: Tensor | None = None) -> LossSums:
        decoded = self.decode(self.encode(source), target)
        return LossSums.of(decoded, torch.eye(6).double(), target, labels, smoothing=0.0, weights=weights)

    def start(self, memory: Tensor, beam: int, allowed: Any = None) -> TableState:
        return TableState(torch.zeros(len(memory), dtype=torch.long), beam)

    def step(self, state: TableState, tokens: Tensor, **_: Any) -> Step[TableState]:
        columns = state.lengths.repeat_interleave(state.beam)
        return Step(self.look(columns, tokens), {}, replace(state, lengths=state.lengths + 1))

    def log_probability(self, ids: tuple[int, ...]) -> Tensor:
        """By a loop."""
        total, before = torch.zeros(()).double(), SPECIAL.begin
        for position, symbol in enumerate((*ids, SPECIAL.end)):
            total = total + torch.log_softmax(self.look(position, before), dim=0)[symbol]
            before = symbol
        return total


def gradient(value: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(model.parameters()), retain_graph=True))


def everything(model: Table) -> tuple[Tensor, np.ndarray]:
    """The log-probability and the reward of every output that there is."""
    return torch.stack([model.log_probability(ids) for ids in EVERY]), np.array([*map(Gleu(REFERENCE), EVERY)])


def test_the_weights_of_minimum_risk_are_the_gradient_of_the_expected_risk():
    model = Table()
    log_probability, rewards = everything(model)
    assert log_probability.exp().sum().item() == pytest.approx(1, abs=1e-12)
    risk = torch.softmax(ALPHA * log_probability, dim=0) @ torch.from_numpy(1 - rewards)
    weights, expected = minimum_risk_weights(log_probability.detach().numpy(), rewards, ALPHA)
    assert expected == pytest.approx(risk.item(), abs=1e-14)
    found = gradient(-(torch.from_numpy(weights) @ log_probability), model)
    torch.testing.assert_close(found, gradient(risk, model), rtol=1e-10, atol=1e-14)
    assert abs(found[0]).max() > 1e-3
    assert weights.sum() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("samples", [2, 3])
def test_what_reinforce_learns_in_the_mean_is_the_gradient_of_the_expected_reward(samples):
    """The mean over every way that so many outputs can be drawn, each as often as it happens: 7 or 343 x 3 of them."""
    model = Table()
    log_probability, rewards = everything(model)
    probability = log_probability.exp().detach().numpy()
    mean, without_baseline = np.zeros(len(EVERY)), np.zeros(len(EVERY))
    for drawn in product(range(len(EVERY)), repeat=samples):
        counts = np.bincount(drawn, minlength=len(EVERY)).astype(float)
        chance = math.prod(probability[each] for each in drawn)
        mean += chance * reinforce_weights(counts, rewards)
        without_baseline += chance * counts * rewards / samples
    expected = gradient(-(log_probability.exp() @ torch.from_numpy(rewards)), model)
    for weights in (mean, without_baseline):
        found = gradient(-(torch.from_numpy(weights) @ log_probability), model)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)
    assert abs(expected[0]).max() > 1e-2


def batch_of(sources: list[list[int]], targets: list[tuple[int, ...]], rows: list[int]) -> Batch:
    source, source_lengths = pad([[*ids, SPECIAL.end] for ids in sources], SPECIAL.pad)
    target, target_lengths = pad([[SPECIAL.begin, *ids] for ids in targets], SPECIAL.pad)
    labels, _ = pad([[*ids, SPECIAL.end] for ids in targets], SPECIAL.pad)
    return Batch(source, source_lengths, target, labels, target_lengths, np.array(rows))


def training_of(model: TrainableModel, **changes: Any) -> Training:
    """As far as a step by the score looks at it; the store is never read."""
    config = TrainConfig(**{"batch_tokens": 64, "precision": "float32", "adam_beta1": BETA1, **changes})
    nothing: Any = None
    corpora = Corpora(nothing, nothing, SPECIAL)
    return Training(model, make_optimizer(model, config), corpora, config, Path(), nothing, nothing)


def learn(training: Training, batches: list[Batch], seed: Tensor, tokens: int) -> tuple[Any, list[Tensor]]:
    """What a step by the score weighs, and the gradient that Adam sees: its first moment over 1 - beta_1."""
    weighed = weigh_outputs(training, batches, seed)
    optimizer = make_optimizer(training.model, training.config)
    train_step(training.model, optimizer, weighed.batches, 0.0, torch.float32, seed, tokens=tokens)
    return weighed, [optimizer.state[weight]["exp_avg"] / (1 - BETA1) for weight in training.model.parameters()]


def test_outputs_are_drawn_as_often_as_they_are_probable():
    """4,000 of them, within four standard deviations; the reference counts only as often as it was drawn."""
    model = Table()
    batch, config = batch_of([[7, 7]], [REFERENCE], [11]), TrainConfig(objective="reinforce", samples=4000)
    [[outputs]] = draw_outputs(model, [batch], SPECIAL, config, torch.float32, step_seed(1, 1))
    assert outputs.ids[0] == REFERENCE
    counts = dict(zip(outputs.ids, outputs.counts, strict=True))
    assert sum(counts.values()) == 4000
    for ids in EVERY:
        p = float(model.log_probability(ids).exp().detach())
        assert counts[ids] == pytest.approx(4000 * p, abs=4 * math.sqrt(4000 * p * (1 - p)))


def test_a_step_of_minimum_risk_is_the_gradient_of_the_risk_of_all_outputs():
    """Every output is drawn among 300."""
    model = Table()
    changes = {"objective": "minimum_risk", "samples": 300, "risk_sharpness": ALPHA}
    batch = batch_of([[7, 7], [9]], [REFERENCE, (B,)], [11, 13])
    weighed, found = learn(training_of(model, **changes), [batch], step_seed(1, 1), tokens=5)
    log_probability, rewards = everything(model)
    others = np.array([*map(Gleu((B,)), EVERY)])
    risk = torch.softmax(ALPHA * log_probability, dim=0) @ torch.from_numpy(2 - rewards - others)
    torch.testing.assert_close(found, gradient(risk / 5, model), rtol=1e-5, atol=1e-7)
    assert weighed.rewards.risk == pytest.approx(risk.item(), rel=1e-6)
    assert weighed.rewards.pairs == 2
    gold = model.log_probability(REFERENCE) + model.log_probability((B,))
    assert float(weighed.losses.nll) == pytest.approx(-gold.item(), rel=1e-6)
    assert int(weighed.losses.tokens) == 5


def test_a_step_of_reinforce_compares_each_output_with_the_mean_of_the_others():
    """By a loop over all samples, each compared with the mean of the others; a weight of the pair counts as well."""
    model = Table()
    changes = {"objective": "reinforce", "samples": 7, "likelihood_weight": 0.3}
    training, seed = training_of(model, **changes), step_seed(2, 5)
    batch = replace(batch_of([[7, 7], [9]], [REFERENCE, (B,)], [11, 13]), weights=np.array([1, 2], np.float32))
    [drawn] = draw_outputs(model, [batch], SPECIAL, training.config, torch.float32, seed)
    objective = torch.zeros(()).double()
    for outputs, reference, scale in zip(drawn, (REFERENCE, (B,)), (1, 2), strict=True):
        samples = [ids for ids, count in zip(outputs.ids, outputs.counts, strict=True) for _ in range(int(count))]
        assert len(samples) == 7
        rewards = [Gleu(reference)(ids) for ids in samples]
        for index, ids in enumerate(samples):
            others = np.mean(rewards[:index] + rewards[index + 1 :])
            objective = objective + scale * (rewards[index] - others) / 7 * model.log_probability(ids)
        objective = objective + scale * 0.3 * model.log_probability(reference)
    weighed, found = learn(training, [batch], seed, tokens=5)
    torch.testing.assert_close(found, gradient(-objective / 5, model), rtol=1e-5, atol=1e-7)
    assert weighed.rewards.risk is None
    assert weighed.rewards.reward == pytest.approx(sum(each.mean_reward for each in drawn))


def test_what_cannot_be_compared_teaches_nothing():
    """Outputs that are all alike; then a pair of weight 0 goes through, for the other processes' sake."""
    model = Table()
    with torch.no_grad():
        model.logits[..., SPECIAL.end] = 100.0  # nothing but empty outputs
    training = training_of(model, objective="reinforce", likelihood_weight=0.0)
    weighed, found = learn(training, [batch_of([[7]], [REFERENCE], [11])], step_seed(1, 1), tokens=3)
    assert [(each.weights.tolist(), each.target_tokens) for each in weighed.batches] == [([0], 0)]
    assert weighed.rewards.work.terms == (0,) * 6
    assert all(torch.equal(each, torch.zeros_like(each)) for each in found)


def test_the_reference_need_not_be_in_the_sample():
    with_it = Outputs.of(0, (A, A, B), [(A,), (), (A,)])
    assert (with_it.ids, with_it.counts.tolist()) == (((A, A, B), (A,), ()), [0, 2, 1])
    assert with_it.rewards.tolist() == [1, 1 / 6, 0]
    assert with_it.mean_reward == pytest.approx(2 / 18)
    without = with_it.without_reference()
    assert (without.ids, without.rewards.tolist()) == (((A,), ()), [1 / 6, 0])
    drawn = Outputs.of(0, (A,), [(A,), (B,)])
    assert drawn.without_reference().ids == ((A,), (B,))


VOCABULARY = 23
SIZES = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 3, "vocab_size": VOCABULARY}


def transformer() -> Transformer:
    torch.manual_seed(5)
    dropout = {"dropout": 0.3, "attention_dropout": 0.2, "label_smoothing": 0.0}
    return Transformer(TransformerConfig.model_validate(SIZES | dropout))


def bag() -> BagOfWords:
    torch.manual_seed(5)
    return BagOfWords(BagConfig(size=12, penalty=0.1, vocab_size=VOCABULARY))


def pairs(number: int) -> Batch:
    random = np.random.default_rng(7)
    sources, targets = ([random.integers(4, VOCABULARY, 1 + row % 7).tolist() for row in range(number)] for _ in "st")
    return batch_of(sources, [tuple(each) for each in targets], list(range(101, 101 + number)))


@pytest.mark.parametrize("reference", [True, False])
def test_the_risk_is_that_of_the_network_that_dropout_leaves(reference):
    """Through autograd alone, pair by pair, output by output, with the dropout that the pair has in this step."""
    model, batch, seed = transformer(), pairs(3), step_seed(1, 7)
    changes = {"samples": 5, "risk_sharpness": ALPHA, "risk_with_reference": reference}
    training = training_of(model, objective="minimum_risk", **changes)
    [drawn] = draw_outputs(model, [batch], SPECIAL, training.config, torch.float32, seed)
    model.train()
    risk = torch.zeros(())
    for place, outputs in enumerate(drawn if reference else [each.without_reference() for each in drawn]):
        source = batch.source[place, : batch.source_lengths[place] - 1].tolist()
        scores = []
        for ids in outputs.ids:
            alone = batch_of([source], [ids], [batch.rows[place]])
            read, target, labels = to_tokens(alone, torch.device("cpu"), seed)
            hidden = model.decode(model.encode(read), target).hidden
            scores.append(-nn.functional.cross_entropy(model.project(hidden), labels[0], reduction="sum"))
        shares = torch.softmax(ALPHA * torch.stack(scores), dim=0)
        risk = risk + shares @ torch.from_numpy(1 - outputs.rewards).float()
    expected = gradient(risk / batch.target_tokens, model)
    weighed, found = learn(training, [batch], seed, batch.target_tokens)
    assert weighed.rewards.risk == pytest.approx(risk.item(), rel=1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
    sizes = [len(each.source) * max(each.source.shape[1], each.target.shape[1]) for each in weighed.batches]
    room = len(batch.source) * max(batch.source.shape[1], batch.target.shape[1])
    assert all(size <= room or len(each.source) == 1 for size, each in zip(sizes, weighed.batches, strict=True))


@pytest.mark.parametrize(
    ("objective", "make"),
    [
        ("minimum_risk", transformer),
        ("reinforce", bag),
        *(pytest.param(*both, marks=pytest.mark.slow) for both in (("minimum_risk", bag), ("reinforce", transformer))),
    ],
)
def test_micro_batches_and_accumulated_batches_learn_the_same(objective, make):
    model, batch, seed = make(), pairs(11), step_seed(1, 7)
    training = training_of(model, objective=objective, samples=3)
    whole, expected = learn(training, [batch], seed, batch.target_tokens)
    assert max(float(each.abs().max()) for each in expected) > 1e-5
    for number in (2, 5, 11):
        parts, found = learn(training, split(batch, number), seed, batch.target_tokens)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-7)
        assert parts.rewards.reward == pytest.approx(whole.rewards.reward)
        assert parts.rewards.work.terms == whole.rewards.work.terms
        assert float(parts.losses.nll) == pytest.approx(float(whole.losses.nll), rel=1e-5)


def test_what_is_drawn_is_the_pairs_own_and_is_drawn_anew_at_every_step():
    model, batch, config = transformer(), pairs(5), TrainConfig(objective="reinforce", samples=4, batch_tokens=64)

    def draw(batch: Batch, step: int) -> list[Outputs]:
        return draw_outputs(model, [batch], SPECIAL, config, torch.float32, step_seed(1, step))[0]

    all_together, others = draw(batch, 1), draw(batch, 2)
    for place, one in enumerate(all_together):
        [alone] = draw(split(batch, 5)[place], 1)
        assert Counter(dict(zip(alone.ids, alone.counts, strict=True))) == dict(zip(one.ids, one.counts, strict=True))
    assert [each.ids for each in all_together] != [each.ids for each in others]
    longest = [max(map(len, (ids for ids in each.ids))) for each in all_together]
    limits = [max(each) + 20 - 1 for each in zip(batch.source_lengths, batch.target_lengths, strict=True)]
    assert all(length <= limit for length, limit in zip(longest, limits, strict=True))
    assert model.training  # nothing of the model itself has changed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("store"), np.random.default_rng(7)
    lengths = random.integers(1, 9, (53, 2))
    both = [tuple(random.integers(4, VOCABULARY, length).tolist() for length in pair) for pair in lengths]
    write_store(folder / "train", [(*pair, 0) for pair in both], {})
    write_store(folder / "dev", [(*pair, 0) for pair in both[:7]], {})
    return folder


def run_training(folder: Path, out: Path, steps: int, changes: dict[str, Any], make: Any = transformer) -> None:
    """Train in ``out`` from where it stands, as new processes would."""
    config = TrainConfig(
        batch_tokens=32, max_steps=steps, precision="float32", warmup_steps=1, learning_rate=1e-3, log_every=2,
        validate_every=2, checkpoint_every=2, hang_minutes=1, samples=3, **changes,
    )  # fmt: skip
    out.mkdir(exist_ok=True)
    with join_processes(1) as processes:
        model = make()
        place_model(model, processes, config.parallel)
        optimizer = make_optimizer(model, config)
        checkpoints = list_checkpoints(out / "checkpoints")
        progress = load_checkpoint(checkpoints[-1][1], model, optimizer) if checkpoints else Progress()
        corpora = Corpora(Store(folder / "train"), Store(folder / "dev"), SPECIAL)
        hooks = Hooks(lambda _: DevOutputs({"bleu": 1.0}), lambda _: None)
        with Report(out / "metrics.jsonl" if processes.first else None, max_steps=steps, step=progress.step) as report:
            training = Training(
                model, optimizer, corpora, config, out / "checkpoints", report, hooks, processes=processes
            )
            train(training, progress)


def lines(out: Path) -> list[dict[str, Any]]:
    read = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key != "seconds"} for line in read]


@pytest.mark.parametrize(
    ("objective", "make"), [pytest.param("minimum_risk", transformer, marks=pytest.mark.slow), ("reinforce", bag)]
)
def test_a_training_goes_on_bit_for_bit_and_several_processes_learn_the_same(
    folder, tmp_path, run_together, objective, make
):
    """Of 32 tokens, some batches have fewer pairs than the processes."""
    changes = {"objective": objective, "accumulate": 2}
    for name, steps in (("whole", 4), ("halves", 2), ("halves", 4)):
        run_training(folder, tmp_path / name, steps, changes, make)
    run_together(2, tmp_path / "together", run_training, folder, tmp_path / "two", 4, changes, make)
    whole, halves, two = (tmp_path / name for name in ("whole", "halves", "two"))
    for name in ("model", "optimizer"):
        files = [out / f"checkpoints/step-4/{name}.safetensors" for out in (whole, halves, two)]
        assert files[0].read_bytes() == files[1].read_bytes()
        one, other = load_file(files[0]), load_file(files[2])
        for key, tensor in one.items():
            torch.testing.assert_close(tensor, other[key], rtol=1e-3, atol=1e-5)
    assert lines(whole) == lines(halves)
    trained = [[line for line in lines(out) if line["split"] == "train"] for out in (whole, two)]
    assert [line["step"] for line in trained[0]] == [2, 4]
    for one, other in zip(*trained, strict=True):
        assert set(one) >= {"reward", "loss"}
        assert ("risk" in one) == (objective == "minimum_risk")
        assert 0 < one["reward"] < 0.5
        for key in {"reward", "risk", "loss", "target_tokens"} & set(one):
            assert other[key] == pytest.approx(one[key], rel=1e-4)
    states = [
        Progress.model_validate_json((out / "checkpoints/step-4/state.json").read_bytes()) for out in (whole, two)
    ]
    assert states[0].work == states[1].work
    assert states[0].work.target > 3 * states[0].target_tokens  # what was learned from, and not the references alone


@pytest.mark.parametrize("weights", [np.array([0.5, 2, 0, -1, 3], np.float32), None], ids=["of pairs", "none"])
def test_parts_of_a_batch_keep_their_weights(weights):
    """All pairs are in one part, each with the weight that it had."""
    lengths = np.array([3, 1, 4, 2, 5])
    ids = np.arange(25).reshape(5, 5)
    batch = Batch(ids, lengths, ids, ids, lengths, np.arange(5), weights)
    parts = split(batch, 3)
    rows = np.concatenate([part.rows for part in parts])
    assert sorted(rows) == list(range(5))
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    if weights is None:
        assert all(part.weights is None for part in parts)
    else:
        assert np.concatenate([part.weights for part in parts]).tolist() == weights[rows].tolist()


def test_parts_of_a_batch_keep_the_weights_of_labels():
    """Cut behind the last label that a pair of the part has."""
    lengths = np.array([3, 1, 4, 2, 5])
    ids = np.arange(25).reshape(5, 5)
    weights = ids.astype(np.float32) + 100
    for part in split(Batch(ids, lengths, ids, ids, lengths, np.arange(5), weights), 3):
        assert part.weights.shape == part.labels.shape
        assert (part.weights == part.labels + 100).all()


def test_what_stands_in_for_no_pair_counts_for_nothing_in_parts():
    ids, lengths = np.ones((1, 3), np.int64), np.array([3])
    [part] = split(Batch(ids, lengths, ids, ids, lengths, np.arange(1), np.zeros(1, np.float32)), 4)
    assert part.weights.tolist() == [0]
    assert part.target_tokens == 0
