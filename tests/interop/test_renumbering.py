import time

import pytest
import torch

from transduce.config import BadInputError
from transduce.interop.renumbering import Renumbering
from transduce.text.tokenizer import SPECIAL_SYMBOLS

# As in OPUS-MT: </s> first, <unk>, two words, and the padding, which outputs begin with.
MARIAN = ["</s>", "<unk>", "a", "b", "<pad>"]
ROWS = torch.tensor([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0], [3.0, 13.0], [4.0, 14.0]])


def marian(**changes):
    return Renumbering.of(5, **({"pad": 4, "begin": 4, "end": 0, "unknown": 1} | changes))


def test_special_symbols_come_first_and_the_others_keep_their_order():
    assert marian().symbols(MARIAN) == [*SPECIAL_SYMBOLS, "a", "b"]
    assert marian().permute(ROWS).tolist() == [[4, 14], [4, 14], [0, 10], [1, 11], [2, 12], [3, 13]]


def test_what_outputs_begin_with_is_a_copy_that_takes_no_probability():
    logits = torch.tensor([0.5, -1.0, 2.0, 0.25, -0.75])
    ours = marian().permute(logits) + marian().bias(torch.zeros(5))
    shares, expected = ours.softmax(0), logits.softmax(0)
    assert shares[1] < 1e-40
    assert shares[[2, 3, 4, 5, 0]].tolist() == expected.tolist()
    assert marian().needs_bias


def test_a_bias_goes_along():
    assert marian().bias(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).tolist() == [5, 5 - 100, 1, 2, 3, 4]


def test_a_begin_symbol_of_its_own_stays_one():
    # As in BART: <s> 0, <pad> 1, </s> 2, <unk> 3.
    own = Renumbering.of(6, pad=1, begin=0, end=2, unknown=3)
    assert own.rows == (1, 0, 2, 3, 4, 5)
    assert not own.needs_bias


def test_fairseq_begins_with_its_end_symbol_and_leaves_its_own_begin_symbol_unused():
    fairseq = Renumbering.of(6, pad=1, begin=2, end=2, unknown=3, unused=(0,))
    assert fairseq.rows == (1, 2, 2, 3, 4, 5)
    assert fairseq.symbols(["<s>", "<pad>", "</s>", "<unk>", "a", "b"]) == [*SPECIAL_SYMBOLS, "a", "b"]
    assert fairseq.ours.tolist() == [-1, 0, 2, 3, 4, 5]


def test_what_is_missing_has_rows_of_zeros_and_is_never_written():
    bare = marian(pad=None, begin=0, unknown=None)
    assert bare.rows == (-1, 0, 0, -1, 1, 2, 3, 4)
    assert bare.permute(ROWS)[[0, 3]].tolist() == [[0, 0], [0, 0]]
    assert bare.bias(torch.zeros(5)).tolist() == [-100, -100, 0, -100, 0, 0, 0, 0]


def test_copies_come_last():
    more = marian(copies=(1, 1))
    assert more.symbols(MARIAN, ["c", "d"]) == [*SPECIAL_SYMBOLS, "a", "b", "c", "d"]
    assert more.permute(ROWS)[-2:].tolist() == [[1, 11], [1, 11]]
    assert more.bias(torch.zeros(5))[-2:].tolist() == [-100, -100]
    assert more.ours.tolist() == marian().ours.tolist()


@pytest.mark.parametrize("changes", [{}, {"copies": (1,)}, {"begin": 2, "pad": 3}])
def test_there_and_back_is_the_same(changes):
    there = marian(**changes)
    assert torch.equal(there.restore(there.permute(ROWS)), ROWS)
    assert torch.equal(there.restore(there.bias(ROWS[:, 0])), ROWS[:, 0])
    assert there.theirs[there.ours].tolist() == [0, 1, 2, 3, 4]


def test_what_ours_has_left_out_comes_back_as_zeros():
    there = marian(unused=(2,))
    assert there.restore(there.permute(ROWS)).tolist() == [[0, 10], [1, 11], [0, 0], [3, 13], [4, 14]]


@pytest.mark.parametrize("changes", [{"end": 5}, {"pad": -1}, {"unknown": 10**12}])
def test_an_id_outside_the_vocabulary_is_refused(changes):
    with pytest.raises(BadInputError, match=r"has the id .* where the vocabulary has 5 symbols"):
        marian(**changes)


def test_a_word_with_the_name_of_a_special_symbol_is_refused():
    with pytest.raises(BadInputError, match="two symbols of the vocabulary are '<s>'"):
        marian().symbols(["</s>", "<unk>", "<s>", "b", "<pad>"])


def test_a_symbol_that_is_there_twice_is_found_in_a_large_vocabulary():
    names = ["</s>", "<unk>", *(f"w{number}" for number in range(20_000)), "w19999"]
    numbers = Renumbering.of(len(names), pad=None, begin=None, end=0, unknown=1)
    began = time.process_time()
    with pytest.raises(BadInputError, match="two symbols of the vocabulary are 'w19999'"):
        numbers.symbols(names)
    assert time.process_time() - began < 0.5
