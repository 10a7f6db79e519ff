import random

import pytest

from transduce.evaluation import Gleu


def test_by_hand():
    """Of [1 2 3 4 5] and [1 2 3 9], 1, 2, 3, 12, 23 and 123 match: 6 of 14 n-grams, and of 10."""
    assert Gleu([1, 2, 3, 4, 5])([1, 2, 3, 9]) == 6 / 14
    assert Gleu([1, 2, 3, 9])([1, 2, 3, 4, 5]) == 6 / 14  # it is symmetrical
    assert Gleu([7, 7])([7, 7, 7]) == 3 / 6  # 7 twice and 77 once, of 3 + 2 + 1: a match is there as often as in both
    assert Gleu(["the", "cat"])(["the", "cat"]) == 1
    assert Gleu([3])([]) == 0 == Gleu([])([3])
    assert Gleu([])([]) == 1


def test_it_is_that_of_nltk():
    sentence_gleu = pytest.importorskip("nltk.translate.gleu_score").sentence_gleu
    chance = random.Random(3)
    for _ in range(300):
        reference, output = ([chance.randrange(5) for _ in range(chance.randrange(1, 13))] for _ in range(2))
        assert Gleu(reference)(output) == pytest.approx(sentence_gleu([reference], output), abs=1e-15)
