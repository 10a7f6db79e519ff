"""Recurrent models: step by step as all at once, in any batch, causally, and their gradients as differences have it."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.recurrent_variants import SOURCE_ROWS, TARGET_ROWS, VARIANTS, make, tokens
from tests.sparing import every, one_each
from transduce.config import RecurrentConfig
from transduce.kernels import derive, has_low_precision_products
from transduce.layers import Dropout, MixtureOfExperts
from transduce.layers.recurrent import RecurrentLayer
from transduce.layers.recurrent_attention import RecurrentAttention
from transduce.layers.recurrent_stack import ExpertsBetween
from transduce.models import LAST_CROSS, AttentionRequest, build, heads_of
from transduce.models.contract import choose_counted
from transduce.models.quantize import quantize
from transduce.models.recurrent import RecurrentModel
from transduce.models.recurrent_decoder import RecurrentDecoder

pytest_plugins = ["recurrent_variants"]

SEEDS = derive(torch.tensor(1), torch.tensor([41, 43, 47, 53]))
LABELS = tokens(*TARGET_ROWS).ids.roll(-1, 1)
# What takes long has a third of them: LSTM and GRU cells go by turns.
THIRDS = [[*every(3, {name: name for name in VARIANTS}, first)] for first in range(3)]


def learn(model, *batches):
    """The summed objective, and its gradient, of the pairs in these batches."""
    model.zero_grad()
    total = 0.0
    for rows in batches:
        source = tokens(*(SOURCE_ROWS[row] for row in rows), seeds=SEEDS[rows])
        target = tokens(*(TARGET_ROWS[row] for row in rows), seeds=SEEDS[rows])
        objective = model(source, target, LABELS[rows][:, : target.ids.shape[1]]).objective
        objective.backward()
        total += objective.item()
    return total, {name: weight.grad.clone() for name, weight in model.named_parameters()}


@torch.no_grad()
def test_step_by_step_is_all_at_once(recurrent_variant):
    model = make(recurrent_variant).eval()
    memory, target = model.encode(tokens(*SOURCE_ROWS)), tokens(*TARGET_ROWS)
    decoded = model.decode(memory, target, attention=LAST_CROSS)
    state, logits, weights = model.start(memory, 1), [], []
    for column in target.ids.T:
        step = model.step(state, column, attention=LAST_CROSS)
        state = step.state
        logits.append(step.logits)
        weights += [step.attention[0]] if step.attention else []
    layout = target.layout()
    torch.testing.assert_close(layout.flatten(torch.stack(logits, dim=1)), model.project(decoded.hidden))
    assert (not weights) == (recurrent_variant.get("attention") == "none") == (not decoded.attention.cross)
    if weights:
        found = decoded.attention.cross[0]
        assert found.shape == (4, 1, 6, 7)
        torch.testing.assert_close(torch.cat(weights, dim=1)[layout.real], found[:, 0][layout.real])
        torch.testing.assert_close(found.sum(3)[:, 0][layout.real], torch.ones(16, dtype=found.dtype))
        assert not found[1, 0, :, 3:].any()  # padding


@pytest.mark.parametrize("recurrent_variant", THIRDS[1], indirect=True)
def test_any_batches_in_any_order_learn_the_same(recurrent_variant):
    model = make(recurrent_variant, dropout=0.3).train()
    loss, gradients = learn(model, [0, 1, 2, 3])
    for batches in ([[3, 1, 0, 2]], [[0, 1], [2, 3]], [[2], [3], [1], [0]]):
        found, others = learn(model, *batches)
        assert found == pytest.approx(loss, rel=1e-6)
        torch.testing.assert_close(others, gradients, rtol=1e-4, atol=1e-6)
    assert abs(learn(model.eval(), [0, 1, 2, 3])[0] - loss) > 1e-2
    assert all(each.any() for each in gradients.values())


def test_a_linear_score_takes_no_loop_and_learns_what_one_does(recurrent_cell, monkeypatch):
    model = make(VARIANTS["bahdanau, linear"], cell=recurrent_cell, dropout=0.3).train()
    with monkeypatch.context() as without:
        without.delattr(RecurrentDecoder, "_loop_through_first")
        loss, gradients = learn(model, [0, 1, 2, 3])
    monkeypatch.setattr(RecurrentAttention, "is_constant", False)
    found, others = learn(model, [0, 1, 2, 3])
    assert found == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(others, gradients)


def test_gradients_are_those_of_differences(recurrent_variant):
    """Along one random direction of all weights together, in float64."""
    model = make(recurrent_variant, dropout=0.2).train()
    source, target = tokens(*SOURCE_ROWS, seeds=SEEDS), tokens(*TARGET_ROWS, seeds=SEEDS)
    labels = target.layout().flatten(LABELS)

    def loss():
        decoded = model.decode(model.encode(source), target)
        entropy = cross_entropy(model.project(decoded.hidden), labels, reduction="sum")
        return entropy if decoded.auxiliary_loss is None else entropy + decoded.auxiliary_loss.sum()

    torch.manual_seed(7)
    names, weights = zip(*model.named_parameters(), strict=True)
    along = [torch.randn_like(weight) for weight in weights]
    gradients = torch.autograd.grad(loss(), weights)
    sums = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            for weight, direction in zip(weights, along, strict=True):
                weight.add_(step * direction)
            sums.append(loss().item())
    expected = (sums[0] - sums[1]) / 2e-5
    found = sum((gradient * direction).sum().item() for gradient, direction in zip(gradients, along, strict=True))
    assert found == pytest.approx(expected, rel=1e-6), names


@pytest.mark.parametrize("recurrent_variant", THIRDS[0], indirect=True)
def test_no_output_depends_on_what_follows_it(recurrent_variant):
    model = make(recurrent_variant).eval()
    target = tokens(*TARGET_ROWS)
    layout = target.layout()
    y = model.embedding(layout.flatten(target.ids)).detach().requires_grad_()
    hidden, *_ = model.decoder(model.encode(tokens(*SOURCE_ROWS)), y, layout)
    for token in range(layout.tokens):
        (gradient,) = torch.autograd.grad(hidden[token].square().sum(), y, retain_graph=True)
        row = int(torch.searchsorted(layout.offsets, token, right=True)) - 1
        read = torch.arange(layout.tokens)
        expected = (read >= layout.offsets[row]) & (read <= token)
        assert torch.equal(gradient.abs().sum(dim=1) > 0, expected)


def test_the_source_is_read_to_its_end_from_both_sides():
    """Every output depends on every symbol of its own source, and on none of another."""
    model = make(VARIANTS["bahdanau"]).eval()
    source = tokens(*SOURCE_ROWS)
    embedded = []
    model.source_dropout.register_forward_hook(lambda _, __, x: embedded.append(x.retain_grad()) or embedded.append(x))
    memory = model.encode(source)
    memory.hidden[:7].sum().backward()  # those of the first row
    assert torch.equal(embedded[1].grad.abs().sum(dim=1) > 0, torch.arange(17) < 7)


@torch.no_grad()
def test_sentences_come_and_go_as_if_alone(recurrent_variant):
    """Two beams, reordered; then a third sentence comes in, and the first leaves."""
    model = make(recurrent_variant).eval()
    rows = [[4, 6], [3, 9], [11, 12], [21, 22]]

    def alone(number, *steps):
        """The last logits of one sentence, which reads these columns and is reordered in between."""
        state = model.start(model.encode(tokens(SOURCE_ROWS[number])), 2)
        for column, order in steps:
            step = model.step(state, torch.tensor(column), attention=LAST_CROSS)
            state = step.state.reorder(torch.tensor(order))
        return step.logits

    both = model.start(model.encode(tokens(SOURCE_ROWS[1], SOURCE_ROWS[2])), 2)
    step = model.step(both, torch.tensor(rows[0] + rows[1]))
    state = step.state.reorder(torch.tensor([1, 0, 3, 3]))
    state = state.admit(model.start(model.encode(tokens(SOURCE_ROWS[0])), 2))
    step = model.step(state, torch.tensor(rows[2] + rows[2] + rows[0]), attention=LAST_CROSS)
    expected = torch.cat(
        [
            alone(1, (rows[0], [1, 0]), (rows[2], [0, 1])),
            alone(2, (rows[1], [1, 1]), (rows[2], [0, 1])),
            alone(0, (rows[0], [0, 1])),
        ]
    )
    torch.testing.assert_close(step.logits, expected)
    state = step.state.release(torch.tensor([True, False, False]))
    step = model.step(state, torch.tensor(rows[3] + rows[3]))
    expected = torch.cat(
        [
            alone(2, (rows[1], [1, 1]), (rows[2], [0, 1]), (rows[3], [0, 1])),
            alone(0, (rows[0], [0, 1]), (rows[3], [0, 1])),
        ]
    )
    torch.testing.assert_close(step.logits, expected)
    none = step.state.release(torch.tensor([True, True]))
    assert model.step(none, torch.empty(0, dtype=torch.long)).logits.shape == (0, 31)


@pytest.mark.parametrize("name", ["experts, gnmt", "experts, feeding"])
@pytest.mark.parametrize("balance", ["pair", "batch"])
def test_experts_are_counted_and_balanced_as_of_all_symbols_at_once(name, balance):
    """Whether a mixture is given them all, or in a loop a column at a time: with noise, which follows from seeds."""
    model = make(VARIANTS[name], expert_balance=balance, importance_loss=0.3, load_loss=0.7).train()
    source, target = tokens(*SOURCE_ROWS, seeds=SEEDS), tokens(*TARGET_ROWS, seeds=SEEDS)
    weights = torch.tensor([1.0, 0.0, 2.0, -1.0], dtype=torch.float64)  # the second pair counts for nothing
    counted = choose_counted(source, target, weights)
    read = {}
    for path, module in model.named_modules():
        if isinstance(module, ExpertsBetween):
            module.register_forward_hook(
                lambda _, given, __, path=path: read.setdefault(path, []).append(given[0].detach())
            )
    decoded = model.decode(model.encode(counted[0]), counted[1])
    loads, loss = [], 0.0
    for path, given in read.items():
        layout = (counted[0] if path.startswith("encoder") else counted[1]).layout()
        symbols = given[0] if len(given) == 1 else layout.flatten(torch.stack(given, dim=1))
        _, routing = model.get_submodule(path).mixture.route(symbols, layout)
        loads.append(routing.loads.tolist())
        loss = loss + routing.balance_loss
    assert decoded.loads.tolist() == loads
    sides = [2 * sum(map(len, rows[:1] + rows[2:])) for rows in (SOURCE_ROWS, TARGET_ROWS)]
    assert decoded.loads.sum(dim=1).tolist() == [sides[not path.startswith("encoder")] * 1 for path in read]
    torch.testing.assert_close(decoded.auxiliary_loss, loss.repeat_interleave(target.lengths))
    own = model(source, target, LABELS, weights)
    assert own.loads.equal(decoded.loads)
    assert own.auxiliary.item() == pytest.approx(
        decoded.auxiliary_loss[target.layout().flatten(weights.unsqueeze(1).expand_as(LABELS)) != 0].sum().item(),
        rel=1e-6,
    )
    assert len(read) == {"experts, gnmt": 2, "experts, feeding": 4}[name]


def test_every_random_decision_of_experts_has_a_number_of_its_own():
    model = make(VARIANTS["experts, feeding"])
    decisions = [
        module.number
        for path, module in model.named_modules()
        if isinstance(module, Dropout | MixtureOfExperts) and ".experts." not in path
    ]
    # Embeddings, readout, 4 + 3 layers, and two of each of 2 + 2 mixtures.
    assert sorted(decisions) == list(range(2 + 1 + 7 + 2 * 4))


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("recurrent_variant", THIRDS[2], indirect=True)
def test_the_kernels_learn_what_torch_s_cells_do(recurrent_variant, monkeypatch):
    model = make(recurrent_variant, dropout=0.3).float().train()
    found = learn(model, [0, 1, 2, 3])
    with torch.autocast("cpu", torch.bfloat16):
        rounded = learn(model, [0, 1, 2, 3])
    for kernels in ("recurrence", "additive"):
        monkeypatch.setattr(f"transduce.kernels.{kernels}.has_native", lambda *_: False)
    expected, gradients = learn(model, [0, 1, 2, 3])
    assert found[0] == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(found[1], gradients, rtol=1e-3, atol=1e-5)
    assert rounded[0] == pytest.approx(expected, rel=1e-2)
    assert rounded[0] != found[0]
    for name, gradient in gradients.items():
        assert (rounded[1][name] - gradient).norm() < 0.1 * gradient.norm() + 1e-3, name


@torch.no_grad()
@pytest.mark.parametrize(
    ("recurrent_variant", "way"),
    [*one_each(VARIANTS, ["bfloat16", "int8 emulated", "int8", "bfloat16 emulated"])],
    indirect=["recurrent_variant"],
)
def test_a_narrow_format_is_near_at_known_targets_and_step_by_step(recurrent_variant, way, monkeypatch):
    format_, *emulated = way.split()
    if emulated:
        monkeypatch.setattr("transduce.models.quantize.has_low_precision_products", lambda: True)
    plain = make(recurrent_variant).float().eval()
    small = quantize(make(recurrent_variant).float().eval(), format_)
    assert {weight.dtype for weight in small.parameters()} == {torch.float32}
    layers = [each for each in small.modules() if isinstance(each, RecurrentLayer)]
    formats = {each.format for layer in layers for each in layer.prepacked}
    assert formats == ({"bfloat16"} if emulated or has_low_precision_products() else set())
    source, target = tokens(*SOURCE_ROWS), tokens(*TARGET_ROWS)
    expected = plain.project(plain.decode(plain.encode(source), target).hidden)
    memory = small.encode(source)
    found = small.project(small.decode(memory, target).hidden)
    state, logits = small.start(memory, 1), []
    for column in target.ids.T:
        step = small.step(state, column)
        state = step.state
        assert {part.dtype for layer in state.cells for part in layer} == {torch.float32}
        logits.append(step.logits)
    scale = expected.std()
    for each in (found, target.layout().flatten(torch.stack(logits, dim=1))):
        assert (each - expected).std() < 0.1 * scale


def test_a_step_has_no_attention_but_the_source_s():
    model = make(VARIANTS["bahdanau"]).eval()
    state = model.start(model.encode(tokens([3, 2])), 1)
    with pytest.raises(ValueError, match="encoder-decoder attention alone"):
        model.step(state, torch.tensor([1]), attention=AttentionRequest(decoder="all"))
    assert heads_of(model) == []


def test_it_is_built_and_says_how_wide_it_is():
    config = RecurrentConfig(hidden_size=7, embedding_size=5, readout_size=11, vocab_size=13, tied_projection=False)
    model = build(config)
    assert isinstance(model, RecurrentModel)
    assert model.width == 11
    assert [type(each).__name__ for each in model.layers()] == ["RecurrentStackLayer", "RecurrentDecoder"]
    memory = model.encode(tokens([3, 2]))
    assert (memory.hidden.shape, memory.summary.shape) == ((2, 14), (1, 14))
