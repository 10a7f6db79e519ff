"""Attention of recurrent decoders by its formulas, one query and one position at a time."""

import itertools
import math

import pytest
import torch
from pydantic import ValidationError

from tests.sparing import every, one_each
from transduce.config import RecurrentConfig
from transduce.layers import RecurrentAttention

# States of 3, encoder's outputs of 5 (dot: 3), a hidden layer of 7; two sentences of 5 and 2 positions, four steps.
QUERY, VALUE, SIZE, LENGTHS, STEPS = 3, 5, 7, (5, 2), 4
SCORES = ["dot", "general", "additive", "concat", "linear", "location"]
LOCATION = {"attention_filters": 2, "attention_filter_width": 3}
WINDOWS = {
    "none": {},
    "median": {"attention_window": "median", "attention_window_reach": 1},
    "trainable": {"attention_window": "trainable", "attention_window_longest": 3.5, "attention_window_shift": 2.5},
}
FOCUS = {
    "softmax": {},
    "sharp": {"attention_sharpness": 2.3},
    "smooth": {"attention_smoothing": True, "attention_sharpness": 0.7},
    "top": {"attention_top_k": 1},
    "smooth top": {"attention_smoothing": True, "attention_top_k": 2},
}
COMBINATIONS = [
    (score, window, focus)
    for score, window, focus in itertools.product(SCORES, WINDOWS, FOCUS)
    if (window, focus) != ("median", "smooth top")  # two of two positions: no choice, and refused
]


def make(score="additive", **changes):
    torch.manual_seed(5)
    # The configuration asks for equal widths where states and outputs are compared as they are.
    changes = {"directions": "one"} | changes if score == "dot" else changes
    if score in ("additive", "concat", "location") or changes.get("attention_window") == "trainable":
        changes = {"attention_size": SIZE} | changes
    config = RecurrentConfig(attention_score=score, **(LOCATION if score == "location" else {}), **changes)
    attention = RecurrentAttention(config, QUERY, QUERY if score == "dot" else VALUE).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)  # biases start with 0
    return attention


def inputs(score="additive", lengths=LENGTHS, steps=STEPS):
    torch.manual_seed(7)
    width = QUERY if score == "dot" else VALUE
    values = torch.randn(len(lengths), max(lengths), width, dtype=torch.double)
    real = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return torch.randn(len(lengths), steps, QUERY, dtype=torch.double), values, real


def ask(attention, query, values, real, beam=1):
    attended = attention.attend(values, real)
    return attention(query, attended, attention.start(attended, beam))


def score_of(attention, s, h, before, j):
    """e_ij."""
    score = attention.score
    match attention.config.attention_score:
        case "dot":
            return s @ h
        case "general":
            return s @ score.value.weight @ h
        case "linear":
            return torch.cat([score.query.weight, score.value.weight], dim=1)[0] @ torch.cat([s, h])
        case "concat":
            return score.vector @ torch.tanh(torch.cat([score.query.weight, score.value.weight], 1) @ torch.cat([s, h]))
        case "additive":
            return score.vector @ torch.tanh(score.query.weight @ s + score.value.weight @ h + score.value.bias)
        case "location":
            f = torch.zeros(2, dtype=torch.double)
            for t in (-1, 0, 1):
                if 0 <= j + t < len(before):
                    f = f + score.location.filters[:, t + 1] * before[j + t]
            hidden = score.query.weight @ s + score.value.weight @ h + score.value.bias
            return score.vector @ torch.tanh(hidden + score.location.features.weight @ f)


def mlp(layers, s):
    return (layers[2].weight @ torch.tanh(layers[0].weight @ s + layers[0].bias) + layers[2].bias)[0]


def window_of(attention, s, before, centre, length):
    """What l_ij is of each position of the window, and the centre of the next step."""
    config, window = attention.config, attention.window
    match config.attention_window:
        case "none":
            return dict.fromkeys(range(length), 1.0), centre
        case "median":
            median = next(j for j in range(length) if sum(before[: j + 1]) >= 0.5)
            w = config.attention_window_reach
            return {j: 1.0 for j in range(length) if median - w <= j <= median + w - 1}, centre
        case "trainable":
            centre = centre + config.attention_window_shift * torch.sigmoid(mlp(window.shift, s))
            m = centre.clamp(0, length - 1)
            left, right = (
                config.attention_window_longest * torch.sigmoid(mlp(side, s)) for side in (window.left, window.right)
            )
            inside = {}
            for j in range(length):
                if m - left < j < m + right:
                    inside[j] = torch.exp(-((j - m) ** 2) / (2 * ((left if j < m else right) / 2) ** 2))
            return inside or {round(m.item()): 1.0}, centre


def by_formula(attention, query, values, real):
    config, contexts, weights = attention.config, [], []
    for steps, outputs, length in zip(query, values, real.sum(1).tolist(), strict=True):
        before, centre = [1.0] + [0.0] * (length - 1), torch.tensor(-1.0, dtype=torch.double)
        for s in steps:
            window, centre = window_of(attention, s, before, centre, length)
            n = {}
            for j, factor in window.items():
                e = config.attention_sharpness * score_of(attention, s, outputs[j], before, j)
                n[j] = factor * (torch.sigmoid(e) if config.attention_smoothing else torch.exp(e))
            kept = sorted(n, key=lambda j: -n[j].item())[: config.attention_top_k]
            total = sum(n[j] for j in kept)
            before = [n[j] / total if j in kept else torch.zeros((), dtype=torch.double) for j in range(length)]
            contexts.append(sum(before[j] * outputs[j] for j in range(length)))
            weights.append(torch.stack(before + [torch.zeros((), dtype=torch.double)] * (real.shape[1] - length)))
    shape = query.shape[:2]
    return torch.stack(contexts).view(*shape, -1), torch.stack(weights).view(*shape, -1)


@pytest.mark.parametrize("combination", [*every(2, {"-".join(each): each for each in COMBINATIONS})])
def test_weights_contexts_and_gradients_are_those_of_the_formulas(combination):
    score, window, focus = combination
    attention = make(score, **WINDOWS[window], **FOCUS[focus])
    query, values, real = inputs(score)
    values.requires_grad_()
    expected = by_formula(attention, query, values, real)
    found = ask(attention, query, values, real)
    torch.testing.assert_close(found[:2], expected)
    received = torch.randn_like(found[0])
    trained = [values, *attention.parameters()]
    gradients = [
        torch.autograd.grad(
            (each[0] * received).sum(), trained, retain_graph=True, materialize_grads=True, allow_unused=True
        )
        for each in (found, expected)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("score", "window"), [*one_each(SCORES, WINDOWS)])
def test_gradients_are_those_of_finite_differences(score, window):
    attention = make(score, **WINDOWS[window], attention_smoothing=True)
    query, values, real = inputs(score, steps=2)
    query, values = query.requires_grad_(), values.requires_grad_()
    assert torch.autograd.gradcheck(lambda q, v: ask(attention, q, v, real)[:2], (query, values))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("window", WINDOWS)
def test_steps_one_by_one_are_all_at_once_and_padding_changes_nothing(score, window):
    attention = make(score, **WINDOWS[window], attention_top_k=1)
    query, values, real = inputs(score)
    contexts, weights, last = ask(attention, query, values, real)
    for sentence, length in enumerate(LENGTHS):
        alone = values[sentence : sentence + 1, :length]
        attended = attention.attend(alone, torch.ones(1, length, dtype=torch.bool))
        state = attention.start(attended, 1)
        for step in range(STEPS):
            context, looked, state = attention(query[sentence : sentence + 1, step : step + 1], attended, state)
            torch.testing.assert_close(context[0, 0], contexts[sentence, step])
            torch.testing.assert_close(looked[0, 0], weights[sentence, step, :length])
        if last.centres is not None:
            torch.testing.assert_close(state.centres[0], last.centres[sentence])
    padded = values.masked_fill(~real.unsqueeze(2), 1e6)
    torch.testing.assert_close(ask(attention, query, padded, real)[0], contexts, rtol=0, atol=0)


def decode(attention, attended, state, query, beam):
    """One step of every row: contexts, and what comes after."""
    context, weights, state = attention(query.view(-1, beam, QUERY), attended, state)
    assert weights.shape[:2] == (len(query) // beam, beam)
    return context.flatten(0, 1), state


@pytest.mark.parametrize("score", ["general", "location"])
@pytest.mark.parametrize("window", WINDOWS)
def test_rows_of_a_beam_that_move_leave_and_come_go_on_as_if_each_was_alone(score, window):
    """Beam 3: two sentences take a step, are reordered, one leaves, one with a longer source comes."""
    attention = make(score, **WINDOWS[window])
    torch.manual_seed(11)
    queries = torch.randn(4, 6, QUERY, dtype=torch.double)
    _, values, real = inputs(score)
    attended = attention.attend(values, real)
    _, state = decode(attention, attended, attention.start(attended, 3), queries[0], 3)
    rows = torch.tensor([1, 1, 0, 5, 3, 4])
    _, state = decode(attention, attended, state.select(rows), queries[1], 3)
    kept = torch.tensor([1])
    attended, state = attended.select(kept), state.select(torch.tensor([3, 4, 5]))
    _, longer, all_real = inputs(score, lengths=(7,))
    late = attention.attend(longer, all_real)
    _, other = decode(attention, late, attention.start(late, 3), queries[2, :3], 3)
    attended, state = attended.join(late), state.join(other)
    found, state = decode(attention, attended, state, queries[3], 3)
    assert state.rows == 6
    for row in range(6):
        if row < 3:  # sentence 1, and its rows' way through the reordering
            history = [queries[0, rows[3 + row]], queries[1, 3 + row], queries[3, row]]
            steps, source, known = torch.stack(history), values[1:2], real[1:2]
        else:
            steps, source, known = torch.stack([queries[2, row - 3], queries[3, row]]), longer, all_real
        torch.testing.assert_close(ask(attention, steps.unsqueeze(0), source, known)[0][0, -1], found[row])


def test_sentences_that_come_with_longer_sources_may_stand_first():
    attention = make("location")
    _, values, real = inputs("location")
    _, longer, all_real = inputs("location", lengths=(7,))
    sides = [attention.attend(longer, all_real), attention.attend(values, real)]
    attended, state = sides[0].join(sides[1]), attention.start(sides[0], 1).join(attention.start(sides[1], 1))
    torch.manual_seed(13)
    query = torch.randn(3, 2, QUERY, dtype=torch.double)
    torch.testing.assert_close(attention(query, attended, state)[0][1:], ask(attention, query[1:], values, real)[0])


def test_the_query_of_a_linear_score_cancels_unless_the_weights_are_smoothed():
    query, values, real = inputs("linear")
    weights = ask(make("linear"), query, values, real)[1]
    torch.testing.assert_close(weights, weights[:, :1].expand_as(weights))
    smoothed = ask(make("linear", attention_smoothing=True), query, values, real)[1]
    assert (smoothed[:, 1:] - smoothed[:, :1]).abs().max() > 0.01


def test_a_large_inverse_temperature_is_a_hard_choice_and_a_small_one_is_a_mean():
    query, values, real = inputs()
    best = ask(make(attention_top_k=1), query, values, real)[1]
    assert set(best.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(ask(make(attention_sharpness=1e6), query, values, real)[1], best)
    mean = (real / real.sum(1, keepdim=True)).unsqueeze(1).expand_as(best).double()
    torch.testing.assert_close(ask(make(attention_sharpness=1e-9), query, values, real)[1], mean)


def test_of_equal_scores_the_first_are_kept():
    attention = make("dot", attention_top_k=2)
    values = torch.ones(1, 5, QUERY, dtype=torch.double)
    weights = ask(attention, torch.ones(1, 1, QUERY, dtype=torch.double), values, torch.ones(1, 5, dtype=torch.bool))[1]
    assert weights.tolist() == [[[0.5, 0.5, 0, 0, 0]]]


def test_the_first_step_sees_weights_that_are_all_on_the_first_position():
    attended = (attention := make("location")).attend(*inputs("location")[1:])
    assert attention.start(attended, 2).weights.tolist() == [[1, 0, 0, 0, 0]] * 4
    assert attention.start(attended, 2).centres is None
    weights = ask(make("additive", **WINDOWS["median"] | {"attention_window_reach": 3}), *inputs())[1]
    assert (weights[0, 0] > 0).tolist() == [True, True, True, False, False]  # positions -3 to 2 around position 0


def test_only_location_and_the_median_need_weights_of_the_step_before():
    needing = {
        (score, window) for score in SCORES for window in WINDOWS if make(score, **WINDOWS[window]).needs_history
    }
    assert needing == {("location", window) for window in WINDOWS} | {(score, "median") for score in SCORES}
    attended = (attention := make()).attend(*inputs()[1:])
    assert attention.start(attended, 2).weights is None


def set_mlp(layers, value):
    """Make an MLP that always gives the same number."""
    for parameter in layers.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.constant_(layers[2].bias, value)


def test_a_trainable_window_stands_where_its_shifts_have_moved_it():
    """Each step moves it by 2 sigmoid(0) = 1, from -1: to 0, 1, 2, 3; sides are 4 sigmoid(0) = 2, and end before 2."""
    attention = make("additive", attention_window="trainable", attention_window_longest=4.0, attention_window_shift=2.0)
    for layers in (attention.window.left, attention.window.right, attention.window.shift):
        set_mlp(layers, 0.0)
    torch.nn.init.zeros_(attention.score.vector)
    weights = ask(attention, *inputs())[1]
    near = math.exp(-0.5)
    expected = torch.tensor(
        [[1, near, 0, 0, 0], [near, 1, near, 0, 0], [0, near, 1, near, 0], [0, 0, near, 1, near]], dtype=torch.double
    )
    torch.testing.assert_close(weights[0], expected / expected.sum(1, keepdim=True))
    # The sentence of two positions is at its last one from the second step on.
    torch.testing.assert_close(weights[1, 1], weights[1, 3])
    assert weights[1, 3].argmax() == 1


@pytest.mark.parametrize("shift", [-800.0, 800.0])
@pytest.mark.parametrize("sides", [-800.0, -30.0, 800.0])
@pytest.mark.parametrize("focus", FOCUS)
def test_no_window_is_empty_and_no_gradient_infinite(shift, sides, focus):
    """Sides of length 0, a centre that never moves or runs out of the source: the nearest position is looked at."""
    window = {"attention_window": "trainable", "attention_window_longest": 3.5, "attention_window_shift": 1.7}
    attention = make("additive", **window, **FOCUS[focus])
    set_mlp(attention.window.shift, shift)
    set_mlp(attention.window.left, sides)
    set_mlp(attention.window.right, sides)
    query, values, real = inputs()
    contexts, weights, _ = ask(attention, query.requires_grad_(), values, real)
    torch.testing.assert_close(weights.sum(2), torch.ones_like(weights.sum(2)))
    contexts.square().sum().backward()
    assert all(each.grad.isfinite().all() for each in [query, *attention.parameters()])
    if sides < 0:
        nearest = [
            [max(0, min(length - 1, round(1.7 * step - 1 if shift > 0 else -1))) for step in range(1, 5)]
            for length in LENGTHS
        ]
        assert weights.argmax(2).tolist() == nearest


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("focus", FOCUS)
def test_scores_far_apart_and_sources_without_a_position_give_numbers(window, focus):
    if (window, focus) == ("median", "smooth top"):
        return
    attention = make("general", **WINDOWS[window], **FOCUS[focus]).float()
    query, values, real = (each.float() if each.is_floating_point() else each for each in inputs())
    real = torch.stack([real[0], torch.zeros_like(real[0])])
    query = (1e4 * query).requires_grad_()
    contexts, weights, _ = ask(attention, query, values, real)
    assert (contexts[1] == 0).all() and (weights[1] == 0).all()
    torch.testing.assert_close(weights[0].sum(1), torch.ones(STEPS))
    contexts.square().sum().backward()
    assert query.grad.isfinite().all()


def test_the_gradient_of_a_later_step_reaches_the_window_s_mlps():
    attention = make("general", **WINDOWS["trainable"] | {"attention_window_shift": 0.9})
    query, values, real = inputs("general")
    query.requires_grad_()
    ask(attention, query, values, real)[0][:, -1].sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in attention.window.parameters())
    assert query.grad[0, 0].abs().max() > 0  # the first step's shift has moved the last one's window


@pytest.mark.parametrize("score", SCORES)
def test_weights_are_float32_under_autocast(score):
    attention = make(score, **WINDOWS["trainable"], attention_smoothing=True).float()
    query, values, real = (each.float() if each.is_floating_point() else each for each in inputs(score))
    exact = ask(attention, query, values, real)[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weights = ask(attention, query, values, real)[1]
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(2), torch.ones(2, STEPS))
    torch.testing.assert_close(weights, exact, rtol=0.1, atol=0.1)


def test_queries_that_are_neither_a_beam_s_nor_consecutive_are_refused():
    attention = make()
    query, values, real = inputs()
    with pytest.raises(ValueError, match="4 queries for each of 2 sentences, after a step of 6 rows"):
        ask(attention, query, values, real, beam=3)


def test_a_dot_product_of_unequal_widths_is_refused():
    with pytest.raises(ValueError, match="3 wide, with the encoder's outputs, 5 wide"):
        RecurrentAttention(RecurrentConfig(attention_score="dot", directions="one"), 3, 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_score": "dot"}, "512 wide, with the encoder's outputs, 1024 wide, as they are: choose 'general'"),
        (
            {"attention": "none", "attention_score": "general"},
            "attention_score = 'general' is for attention = 'bahdanau'",
        ),
        ({"attention": "none", "attention_size": 100}, "attention_size = 100 is for attention with a score"),
        ({"attention_score": "linear", "attention_size": 100}, "attention_size = 100 is for attention with a score"),
        ({"attention_filters": 3}, "attention_filters = 3 is for attention_score = 'location'"),
        ({"attention_window_reach": 3}, "attention_window_reach = 3 is for attention_window = 'median'"),
        ({"attention_window_shift": 3.0}, "attention_window_shift = 3.0 is for attention_window = 'trainable'"),
        ({"attention_score": "location", "attention_filter_width": 4}, "4 is even: .* choose 5"),
        (
            {"attention_window": "median", "attention_window_reach": 3, "attention_top_k": 6},
            "attention_top_k = 6 keeps all of a window of 2 \\* attention_window_reach = 6",
        ),
        ({"attention_sharpness": 0.0}, "greater than 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        RecurrentConfig(**settings)
