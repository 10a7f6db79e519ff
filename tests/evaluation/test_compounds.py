"""BLEU with split compounds: by hand, and as the published script's text gives to plain BLEU."""

import pytest

from transduce.config import BadInputError
from transduce.evaluation import corpus_score, make_scorer, paired_bootstrap


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("the well-known dog", "the well ##AT##-##AT## known dog"),
        ("state-of-the-art", "state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # Perl's global replacement reads no character twice
        ("one - two -three four-", "one - two -three four-"),
    ],
)
def test_hyphens_within_words_become_words(text, split):
    assert make_scorer("bleu", "none+compounds").tokenizer(text) == split


def test_it_is_plain_bleu_of_the_split_text():
    outputs, references = (
        ["the well-known dog runs home", "an up-to-date house"],
        ["the well-known cat runs", "an up-to-date house"],
    )
    splits = [
        [make_scorer("bleu", "none+compounds").tokenizer(line) for line in lines] for lines in (outputs, references)
    ]
    score = corpus_score("bleu", outputs, references, "none+compounds")
    plain = corpus_score("bleu", *splits, "none")
    assert score.value == pytest.approx(plain.value, abs=1e-9)
    assert score.value != pytest.approx(corpus_score("bleu", outputs, references, "none").value, abs=0.1)
    assert "tok:none+compounds|" in score.signature
    assert score.signature.replace("+compounds", "") == plain.signature


def test_punctuation_goes_before_compounds():
    """As 13a has it, which parts a hyphen behind a digit itself."""
    assert make_scorer("bleu", "13a+compounds").tokenizer("E-Mail, 3-mal.") == "E ##AT##-##AT## Mail , 3 - mal ."


def test_it_is_compared_like_any_other():
    outputs, references = ["a-bc d e f g"] * 4, ["a-bc d e f h"] * 4
    scorer = {"bleu": make_scorer("bleu", "13a+compounds")}
    (found,) = paired_bootstrap(scorer, references, outputs, references, samples=11, seed=1)
    assert found.theirs.value == pytest.approx(100)
    assert "tok:13a+compounds" in found.signature


def test_what_is_no_tokenizer_is_named():
    for name in ("14a+compounds", "+compounds", "13a+compound"):
        with pytest.raises(BadInputError, match=r"each with \+compounds behind it or without"):
            make_scorer("bleu", name)
