"""The most probable continuations, against all of them sorted."""

import math

import pytest
import torch

from transduce.kernels import Choices, rank_continuations

SENTENCES, BEAM, SYMBOLS, END = 3, 2, 131, 7
BANNED = [0, 5]


def problem(*, must_end=(False, False, True)):
    torch.manual_seed(3)
    logits = 3 * torch.randn(SENTENCES * BEAM, SYMBOLS)
    return logits, -torch.rand(SENTENCES, BEAM), BANNED, torch.tensor(must_end), END


def by_hand(logits, so_far, banned, must_end, end, choices=None):
    """Every allowed continuation of each sentence, best first; ``choices`` are each row's, or None."""
    for sentence in range(SENTENCES):
        every = []
        for beam in range(BEAM):
            row = logits[sentence * BEAM + beam].double()
            total = math.log(sum(math.exp(each) for each in row.tolist()))
            every += [
                (so_far[sentence, beam].item() + row[symbol].item() - total, beam * SYMBOLS + symbol)
                for symbol in range(SYMBOLS)
                if symbol not in banned and (not must_end[sentence] or symbol == end)
                if not choices or (own := choices[sentence * BEAM + beam]) is None or symbol in own
            ]
        yield sorted(every, reverse=True)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [1, 4, 11])
def test_the_best_come_first(count):
    expected = list(by_hand(*problem()))
    values, places = rank_continuations(*problem(), count)
    for sentence, best in enumerate(expected):
        possible = min(count, len(best))
        assert values[sentence, :possible].tolist() == pytest.approx([value for value, _ in best[:possible]], abs=1e-5)
        assert places[sentence, :possible].tolist() == [place for _, place in best[:possible]]
        assert values[sentence, possible:].isneginf().all()


@pytest.mark.usefixtures("way")
def test_rows_have_choices_of_their_own():
    some, one, none = [2, 5, 90, 130], [11], []  # the second of the first is banned
    which, rows = [0, -1, 2, 1, 0, 3], [some, None, none, one, some, [END, 8]]
    first, symbols = torch.tensor([0, 4, 5, 5, 7]), torch.tensor([*some, *one, *none, END, 8])
    values, places = rank_continuations(*problem(), 6, choices=Choices(torch.tensor(which), first, symbols))
    for sentence, best in enumerate(by_hand(*problem(), rows)):
        possible = min(6, len(best))
        assert values[sentence, :possible].tolist() == pytest.approx([value for value, _ in best[:possible]], abs=1e-5)
        assert places[sentence, :possible].tolist() == [place for _, place in best[:possible]]
        assert values[sentence, possible:].isneginf().all()


@pytest.mark.usefixtures("way")
def test_hypotheses_that_do_not_count():
    logits, so_far, *rest = problem(must_end=(False, False, False))
    so_far[:, 1] = -math.inf
    values, places = rank_continuations(logits, so_far, *rest, 4)
    assert values.isfinite().all()
    assert (places < SYMBOLS).all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("symbol", [*range(16), 70, SYMBOLS - 1])
def test_what_is_no_number_shows(symbol):
    logits, *rest = problem()
    logits[2, symbol] = math.nan
    values, _ = rank_continuations(logits, *rest, 4)
    assert values[1].isnan().any()
    assert values[0].isfinite().all()


@pytest.mark.usefixtures("way")
def test_what_cannot_come_is_ranked_behind_all_that_can():
    logits, *rest = problem()
    logits[:, 20:120] = -math.inf
    values, places = rank_continuations(logits.clone(), *rest, 4)
    for sentence, best in enumerate(by_hand(logits, *rest)):
        possible = min(4, len(best))
        assert values[sentence, :possible].tolist() == pytest.approx([value for value, _ in best[:possible]], abs=1e-5)
        assert places[sentence, :possible].tolist() == [place for _, place in best[:possible]]
    logits[:] = -math.inf
    assert rank_continuations(logits, *rest, 4)[0].isnan().any()
