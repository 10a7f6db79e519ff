"""Lists of what sentences may write: made, joined, and steps that score nothing else."""

import copy
import math

import pytest
import torch

from tests.models.test_native_transformer import SIZES, SOURCE, TOLERANCE, make
from transduce.kernels import AllowedTokens, LogitColumns, prepack, rank_continuations, select_outputs
from transduce.kernels.products import unpack
from transduce.models import Ensemble, NativeTransformer, Shortlist, Tokens

VOCABULARY = SIZES["vocab_size"]
# Symbol s becomes s + 1 and s + 31; symbols 17 and 2 are frequent.
TRANSLATIONS = torch.tensor([[s + 1, s + 31] if s < 31 else [-1, -1] for s in range(VOCABULARY)], dtype=torch.int32)
SHORTLIST = Shortlist(TRANSLATIONS, torch.tensor([17, 2], dtype=torch.int32), VOCABULARY)
LISTS = [
    [2, 4, 6, 7, 8, 9, 17, 34, 36, 37, 38, 39],
    [2, 4, 10, 17, 34, 40, 61],
    [2, 4, 12, 13, 17, 34, 42, 43],
]


def allowed(rows=slice(None)):
    tokens = Tokens(SOURCE.ids[rows], SOURCE.lengths[rows])
    return SHORTLIST.allowed(tokens, [(), (61, 40), ()][rows])


def test_lists_by_hand():
    found = allowed()
    lengths = found.lengths.tolist()
    assert [row[:length] for row, length in zip(found.symbols.tolist(), lengths, strict=True)] == LISTS
    assert found.symbols[1, lengths[1] :].tolist() == [2] * (len(LISTS[0]) - len(LISTS[1]))
    assert found.together().tolist() == sorted({symbol for each in LISTS for symbol in each})
    alone = allowed(slice(1, 2))
    assert alone.symbols.tolist() == [LISTS[1]]
    again = alone.join(found.keep(torch.tensor([2, 0])))
    assert again.lengths.tolist() == [7, 8, 12]
    assert again.symbols[0].tolist() == [*LISTS[1], *[2] * 5]
    assert again.symbols[2].tolist() == LISTS[0]


@pytest.mark.parametrize("format_", TOLERANCE)
def test_selected_outputs_are_the_same_numbers(format_):
    weight, bias = torch.randn(131, 13), torch.randn(131)
    whole = prepack(weight, bias, format_)
    chosen = torch.tensor([130, 0, 64, *range(1, 128, 2)])
    part = select_outputs(whole, chosen)
    assert unpack(part).equal(unpack(whole)[chosen])
    for name in ("scales", "sums", "bias"):
        assert getattr(part, name)[: len(chosen)].equal(getattr(whole, name)[chosen]), name
    assert (part.outputs, part.inputs) == (len(chosen), 13)


@pytest.mark.usefixtures("way")
def test_ranking_by_hand():
    """Two sentences over nine symbols, of which five have columns."""
    lists = AllowedTokens(torch.tensor([[1, 4, 7], [0, 7, 0]]), torch.tensor([3, 2]), 9)
    columns = LogitColumns.of(lists, torch.tensor([7, 4, 1, 0, 8]))
    logits = torch.tensor(
        [[3.0, 2.0, 1.0, 50.0, 60.0], [1.0, 5.0, 1.0, 70.0, 80.0]] + [[1.0, 90.0, 90.0, 2.0, 90.0]] * 2
    )
    so_far, must_end = torch.tensor([[0.0, -9.0], [-1.0, -torch.inf]]), torch.tensor([False, True])
    values, places = rank_continuations(logits.clone(), so_far, [4], must_end, 7, 3, columns)
    whole = torch.log_softmax(torch.tensor([[1.0, 2.0, 3.0], [1.0, 5.0, 1.0]]), dim=1)  # of symbols 1, 4 and 7
    best = torch.stack([whole[0, 2], whole[0, 0], whole[1, 0] - 9])
    torch.testing.assert_close(values[0], best)
    assert places[0].tolist() == [7, 1, 9 + 1]
    assert values[1].tolist() == [pytest.approx(-2 - math.log(1 + math.exp(-1))), -math.inf, -math.inf]
    assert places[1, 0] == 7
    spread = columns.spread(logits)
    assert spread[2].tolist() == [2, *[-torch.inf] * 6, 1, -torch.inf]


@pytest.fixture
def _built(way):
    if way == "plain":
        pytest.skip("there is nothing but the plain model")


def steps(model):
    """A walk on which sentences leave and come in again, over the vocabulary."""
    draw = torch.Generator().manual_seed(5)
    state, sentences = model.start(model.encode(SOURCE), 2, allowed=allowed()), 3
    for number in range(9):
        step = model.step(state, torch.randint(0, VOCABULARY, (2 * sentences,), generator=draw))
        yield step.over_vocabulary().float().clone()
        state = step.state
        if number == 3:
            state, sentences = state.release(torch.tensor([True, False, True])), 1
        if number == 5:
            state, sentences = state.admit(model.start(model.encode(SOURCE), 2, allowed=allowed())), 4


@torch.inference_mode()
@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("format_", TOLERANCE)
def test_steps_score_the_lists_alone(format_):
    plain = make({})
    packed = NativeTransformer(copy.deepcopy(plain), format_)
    expected, shares = list(steps(plain)), list(steps(Ensemble([plain, plain])))
    for number, (found, wanted) in enumerate(zip(steps(packed), expected, strict=True)):
        rows = [1] if 3 < number <= 5 else [1, 0, 1, 2] if number > 5 else [0, 1, 2]
        allowed = torch.zeros(len(rows), VOCABULARY, dtype=torch.bool)
        for row, sentence in zip(allowed, rows, strict=True):
            row[LISTS[sentence]] = True
        assert found.isfinite().equal(allowed.repeat_interleave(2, dim=0))
        torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE[format_])
        torch.testing.assert_close(shares[number], wanted.log_softmax(dim=1), rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("format_", TOLERANCE)
def test_only_what_lists_have_is_multiplied(format_):
    packed = NativeTransformer(make({}), format_)
    step = packed.step(packed.start(packed.encode(SOURCE), 1, allowed=allowed()), torch.tensor([1, 1, 1]))
    assert step.logits.shape == (3, len({symbol for each in LISTS for symbol in each}))
    assert step.vocabulary == VOCABULARY
