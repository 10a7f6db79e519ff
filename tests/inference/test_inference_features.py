"""What can be asked of the Translator beyond beam and penalty; the search itself is tested in tests/search."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.bundle import Bundle, load_bundle, save_bundle
from transduce.config import BadInputError, GenerationConfig, TransduceError, preset
from transduce.inference import Engine, Translator, load
from transduce.inference.alignment import align, pharaoh, words_of_output, words_of_tokens
from transduce.models import build
from transduce.search import NoRepeat, Prefixes, Restriction, Without
from transduce.text import TokenizerPair, learn_tokenizer

pytest_plugins = ["tiny_run"]

TEXTS = ["bamo dulu kari", "wemo", "luso luso gozu fepi bamo", "kari kari", "fepi wemo dulu gozu"]
EVERYTHING = {
    "beam_size": 3,
    "n_best": 2,
    "length_penalty_kind": "marian",
    "length_penalty": 0.7,
    "coverage_penalty": 0.2,
    "diversity": 0.1,
    "min_length": 2,
    "max_length": 9,
    "no_repeat_ngram": 3,
    "must_not_contain": ["hax"],
}
PREFIXES = ["", "yob ti", "ved", "", "mup"]
PHRASES = [["yob"], [], ["mup ti", "sor"], ["nal"], ["ti"]]


def ids_of(found):
    return [(each.tokens, each.alternatives and each.alternatives[0].tokens) for each in found]


@settings(max_examples=12)
@given(order=st.permutations(range(len(TEXTS))), cut=st.integers(1, len(TEXTS)), budget=st.sampled_from([1, 200, 4096]))
def test_neither_batch_nor_order_changes_an_output(translator, order, cut, budget):
    """With everything on that a beam can have: a batch, its parts, and each text alone."""
    options = {**EVERYTHING, "first_number": None}
    whole = translator.translate(TEXTS, **options, prefixes=PREFIXES, must_contain=PHRASES)
    batches = [order[:cut], order[cut:], *([index] for index in order[:2])]
    translator._engine._batch_tokens, before = budget, translator._engine._batch_tokens
    try:
        for batch in batches:
            prefixes, phrases = ([every[index] for index in batch] for every in (PREFIXES, PHRASES))
            texts = [TEXTS[index] for index in batch]
            found = translator.translate(texts, **options, prefixes=prefixes, must_contain=phrases)
            for index, output in zip(batch, found, strict=True):
                assert ids_of([output]) == ids_of([whole[index]])
                assert output.score == pytest.approx(whole[index].score, abs=1e-4)
    finally:
        translator._engine._batch_tokens = before


@settings(max_examples=12)
@given(index=st.integers(0, len(TEXTS) - 1), seed=st.integers(0, 2**53), first=st.integers(1, 10**9))
def test_a_sample_is_the_same_alone_and_in_a_batch(translator, index, seed, first):
    options = {"sampling": True, "temperature": 2.0, "top_k": 50, "top_p": 0.95, "n_best": 3, "seed": seed}
    whole = translator.translate(TEXTS, **options, first_number=first)
    (alone,) = translator.translate([TEXTS[index]], **options, first_number=first + index)
    assert ids_of([alone]) == ids_of([whole[index]])
    assert alone.score == pytest.approx(whole[index].score, abs=1e-4)


def test_samples_of_a_text_differ_and_are_sorted(translator):
    (output,) = translator.translate(["bamo dulu"], sampling=True, temperature=3.0, n_best=7)
    every = [output, *output.alternatives]
    assert len(every) == 7
    assert len({each.text for each in every}) > 3
    assert [each.score for each in every] == sorted((each.score for each in every), reverse=True)
    same = translator.translate(["bamo dulu"] * 9, sampling=True, temperature=3.0)
    assert len({each.text for each in same}) > 3


def test_a_prefix_begins_the_output(translator):
    found = translator.translate(["bamo dulu", "wemo", " "], prefixes=["nal", "", ""])
    assert [each.text.startswith("nal") for each in found] == [True, False, False]
    assert found[1].text == "yob"
    (exact,) = translator.score(["bamo dulu"], [found[0].text])
    assert found[0].log_probability == pytest.approx(exact, abs=1e-4)


def test_phrases(translator):
    first, second = translator.translate(["bamo dulu", "wemo"], must_contain=[["mup hax"], []], max_length=7)
    assert "mup hax" in first.text
    assert second.text == "yob"
    (without,) = translator.translate(["bamo dulu"], must_not_contain=["sor"])
    assert "sor" not in without.text.split()
    assert translator.translate(["bamo dulu"])[0].text == "ti sor"


def test_lengths(translator):
    (output,) = translator.translate(["bamo dulu"], min_length=4, max_length=5)
    assert 4 <= len(output.tokens) <= 5
    (cut,) = translator.translate(["bamo dulu kari"], max_length=2)
    assert (len(cut.tokens), cut.at_limit) == (2, True)
    (long,) = translator.translate(["q" * 9], beam_size=1, min_length=30, max_length=30, no_repeat_ngram=2)
    pairs = list(pairwise(long.tokens))
    assert (len(long.tokens), len(set(pairs))) == (30, 29)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam_size": 401}, "wider than the vocabulary, "),
        ({"temperature": 0.5}, "temperature = 0.5 is for sampling"),
        ({"sampling": True, "beam_size": 3}, "sampling has no beam"),
        ({"sampling": True, "diversity": 0.5}, "diversity = 0.5"),
        ({"sampling": True, "top_p": 1.5}, "top p 1.5"),
        ({"coverage_penalty": -0.1}, "coverage penalty -0.1"),
        ({"stopping": "soon"}, "stopping 'soon'"),
        ({"min_length": 5, "max_length": 4}, "min_length = 5"),
        ({"no_repeat_ngram": -1}, "no repeat ngram -1"),
        ({"prefixes": ["a", "b"]}, "2 prefixes for 1 texts"),
        ({"prefixes": "ti"}, "one string"),
        ({"must_contain": ["ti"]}, "one string"),
        ({"must_contain": [[" "]]}, "a phrase is empty"),
        ({"must_not_contain": [""]}, "a phrase is empty"),
        ({"prefixes": ["ti " * 40]}, "text 17: the search found no output of at most "),
        ({"must_contain": [["ti sor mup"] * 2 + ["nal ved yob"]], "max_length": 5}, "text 17: the search found no"),
        ({"must_contain": [["ti sor"]], "must_not_contain": ["sor"]}, "text 17"),
        ({"paragraphs": True, "prefixes": ["ti"]}, "prefix"),
        ({"paragraphs": True, "sampling": True}, "samples"),
        ({"paragraphs": True, "min_length": 90}, "'wemo': the search found"),
    ],
)
def test_what_cannot_be_met_is_named(translator, options, named):
    with pytest.raises(BadInputError, match=named):
        translator.translate(["wemo"], **options, first_number=17)


def test_an_empty_text_has_nothing(translator):
    for options in ({"prefixes": ["ti"]}, {"must_contain": [["ti"]]}):
        with pytest.raises(BadInputError, match="text 1: it is empty, and so is its output"):
            translator.translate([" "], **options)


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("prefixes", "ti", "it is empty"),
        ("prefixes", "\udfff", "prefix: character 1 is half of a surrogate pair"),
        ("must_contain", ["ti"], "it is empty"),
        ("must_contain", ["ti", " "], "must contain: a phrase is empty"),
    ],
)
def test_what_one_text_cannot_have_fails_alone(translator, name, asked, reason):
    """Where a text is empty, or what is asked of its output is no text; the others have theirs."""
    text, free = " " if "it is" in reason else "wemo", "" if name == "prefixes" else []
    found = translator.translate(["bamo", text, "wemo"], errors="return", **{name: [free, asked, free]})
    assert [each.text for each in found] == ["ti", "", "yob"]
    assert found[1].error.startswith(reason)


def test_alignments_follow_the_attention_of_the_output(translator, trained_run):
    (output,) = translator.translate(["bamo dulu kari"], return_alignment=True, return_attention=True)
    assert translator.translate(["bamo dulu kari"])[0].alignment is None
    # One layer: its own weights; every token is a word here.
    best = output.attention.mean(axis=0)[:-1, :-1].argmax(axis=1)
    assert output.alignment == tuple(sorted((int(source), target) for target, source in enumerate(best)))
    (several,) = translator.translate(["bamo dulu"], return_alignment=True, n_best=3)
    assert all(each.alignment is not None for each in several.alternatives)


def test_a_text_that_the_tokenizer_reads_nothing_of_is_aligned_with_nothing():
    assert align(torch.ones(2, 1), [], [0, 1]) == ()


def test_alignments_by_hand():
    #                        ein   ho  us  </s>
    weights = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.5, 0.2], [0.1, 0.4, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0]])
    assert align(weights, [0, 1, 1], [0, 1, 2]) == ((0, 0), (1, 1), (1, 2))
    assert pharaoh(((0, 0), (1, 2))) == "0-0 1-2"


@pytest.mark.parametrize("written", [" ", "ti \u00a0", "ti \u3000sor"])
def test_only_words_that_are_there_are_aligned(translator, written):
    """White space is none, alone, or in several symbols: what places tags by an alignment would fail with it."""
    (ids,) = translator._target.encode([written])
    forced = Prefixes({1: [*ids, translator._target.special.end]})
    output = translator.translate("bamo dulu", constraints=[forced], max_length=9, return_alignment=True)
    assert output.text == written
    assert len(output.tokens) == len(ids)
    assert {word for _, word in output.alignment} == {*range(len(written.split()))}
    monotonic = words_of_output(translator._target, ids)
    assert monotonic == sorted(monotonic)


def test_tokens_know_their_words(translator):
    tokenizer = translator._target
    text = "ti  qqzz sor\tmup"
    (ids,) = tokenizer.encode([text])
    numbers = words_of_output(tokenizer, ids)
    assert numbers == words_of_tokens(tokenizer, text)
    assert len(numbers) == len(ids)
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (0, 3)
    assert numbers.count(1) >= 2  # the unknown word is spelled


@pytest.fixture
def two(tmp_path):
    """The directories of two models with random weights that share a vocabulary."""
    tokenizer = learn_tokenizer("words", ["a b c d e"], 11)
    for seed, width in ((3, 10), (5, 14)):
        torch.manual_seed(seed)
        sizes = {"encoder_layers": 1, "decoder_layers": seed - 2, "d_model": width, "d_ff": 13, "heads": 2}
        model = build(preset("base", {**sizes, "vocab_size": tokenizer.vocab_size}))
        model.embedding.weight.data *= 2
        save_bundle(
            Bundle(model, TokenizerPair.of(tokenizer), GenerationConfig(max_extra_length=3)), tmp_path / f"model{seed}"
        )
    return tmp_path / "model3", tmp_path / "model5"


def test_an_ensemble_is_the_mean_of_the_probabilities(two):
    """One symbol at a time, by hand: log((p1 + p2) / 2), summed over the output."""
    together, alone = load(two, "float32"), [load(path, "float32") for path in two]
    tokenizer = together._target
    sources = tokenizer.encode(["a b", "c d e a"])
    for text, ids, output in zip(["a b", "c d e a"], sources, together.translate(["a b", "c d e a"]), strict=True):
        written = tokenizer.encode([output.text])[0]
        total = 0.0
        for end in range(len(written) + 1):
            steps = [step_probabilities(each, ids, written[:end]) for each in alone]
            symbol = (*written, tokenizer.special.end)[end]
            total += float(np.log((steps[0][symbol] + steps[1][symbol]) / 2))
        assert output.log_probability == pytest.approx(total, abs=1e-4)
        assert together.score([text], [output.text])[0] == pytest.approx(total, abs=1e-4)


def step_probabilities(translator, source, written):
    engine = translator._engine
    memory = engine._model.encode(engine._source([source]))
    target = engine._tokens([[translator._target.special.begin, *written]])
    with torch.no_grad():
        return engine._model.project(engine._model.decode(memory, target).hidden)[-1].softmax(0).numpy()


def test_an_ensemble_of_one_model_twice_is_that_model(two):
    texts = ["a b", "c", "d e e a"]
    options = {"n_best": 2, "coverage_penalty": 0.3, "return_alignment": True, "return_attention": True}
    one, twice = (load(paths, "float32").translate(texts, **options) for paths in (two[1], [two[1]] * 2))
    for single, double in zip(one, twice, strict=True):
        assert (single.tokens, single.alignment) == (double.tokens, double.alignment)
        assert single.score == pytest.approx(double.score, abs=1e-4)
        assert double.attention.shape[0] == 2 * single.attention.shape[0]


def test_models_of_different_vocabularies_are_no_ensemble(two, trained_run):
    with pytest.raises(BadInputError, match=f"^{trained_run}: has another source vocabulary than {two[0]}: "):
        load([two[0], two[1], trained_run])
    with pytest.raises(BadInputError, match="no model was given"):
        load([])


def test_weights_that_are_no_numbers_are_named(trained_run):
    bundle = load_bundle(trained_run)
    bundle.model.decoder[0].feed_forward_residual.norm.weight.data[0] = float("nan")
    for options in ({}, {"sampling": True}, {"beam_size": 1}, {"must_contain": [["ti"]]}):
        with pytest.raises(TransduceError, match="no finite scores"):
            Translator(bundle, "float32").translate(["wemo"], **options)


def test_attention_in_a_batch_is_what_it_is_alone(trained_run):
    bundle = load_bundle(trained_run)
    engine = Engine(bundle.model, bundle.tokenizers.special, "float32")
    sources, targets = ([[9, 11, 13], [12], [14, 15, 16, 17]], [[13], [11, 12, 13], [9, 9]])
    for index, together in engine.attention(sources, targets):
        ((_, alone),) = engine.attention([sources[index]], [targets[index]])
        assert together.last.shape == (2, len(targets[index]) + 1, len(sources[index]) + 1)
        for name in (field.name for field in dataclasses.fields(alone)):
            torch.testing.assert_close(getattr(together, name), getattr(alone, name))


def example(heading):
    """The code that stands below a heading of the page about translating."""
    page = (Path(__file__).parents[2] / "docs" / "translating.md").read_text(encoding="utf-8")
    return page.partition(heading)[2].partition("```python")[2].partition("```")[0]


def test_the_example_of_a_constraint_does_what_it_says(translator):
    """The best of the answers is the one that scoring finds."""
    answers = ["mup hax", "ti", "sor sor ved yob", "ti nal"]
    names = {"translator": translator, "texts": TEXTS, "answers": answers}
    exec(example("### Constraints of your own"), names)
    first, *others = names["found"]
    assert [each.tokens for each in others] == [each.tokens for each in translator.translate(TEXTS)[1:]]
    log_probabilities = translator.score([TEXTS[0]] * len(answers), answers)
    scores = {
        text: each / ((5 + len(ids)) / 6) ** 0.6
        for text, each, ids in zip(answers, log_probabilities, names["options"], strict=True)
    }
    assert first.text == max(answers, key=scores.get)
    assert first.score == pytest.approx(max(scores.values()), abs=1e-4)
    assert first.text != translator.translate(TEXTS)[0].text


@pytest.mark.parametrize(
    "where", [{"beam_size": 1}, {"n_best": 3}, {"sampling": True, "n_best": 3, "temperature": 3.0}]
)
def test_a_constraint_is_told_the_numbers_of_the_texts(translator, where):
    """Text 17 may not write what it would, and text 18 may."""
    (banned,) = {tuple(ids) for ids in translator.tokenizers.target.encode(["yob"])}

    class Never:
        def symbols(self, number):
            return ()

        def start(self, number):
            return self if number == 17 else None

        def restrict(self, written, room):
            return Restriction(banned)

        def propose(self):
            return None

        def advance(self, symbol):
            return self

    options = {**where, "first_number": 17}
    free = translator.translate(["wemo", "wemo"], **options)
    first, second = translator.translate(["wemo", "wemo"], **options, constraints=[Never()])
    assert second == free[1]
    assert any("yob" in each.text for each in (free[0], *free[0].alternatives))
    assert not any("yob" in each.text for each in (first, *first.alternatives))


def test_constraints_that_are_none_are_named(translator):
    for wrong in (Without, [Without], ["yob"], 3, None, "yob"):
        with pytest.raises(BadInputError, match=r"^constraints: .* symbols\(number\) and start\(number\)"):
            translator.translate(["wemo"], constraints=wrong)
    with pytest.raises(BadInputError, match="a paragraph has no constraints of its own"):
        translator.translate(["wemo"], constraints=[NoRepeat(2)], paragraphs=True)
    with pytest.raises(BadInputError, match="names symbol 5000, but the vocabulary has those from 0 to 328:"):
        translator.translate(["wemo"], constraints=[Prefixes({1: (5000,)})])


def test_a_constraint_that_bans_nothing_changes_no_bit(translator):
    """Search stays with the ranking that makes no matrix of all log-probabilities."""
    free = translator.translate(TEXTS)
    assert translator.translate(TEXTS, constraints=[Without([(9, 9, 9, 9)]), Prefixes({99: (9,)})]) == free


def test_phrases_of_one_text_leave_the_search_of_another_as_it_is(translator):
    """Diverse, too: hypotheses are kept in banks where a text has phrases, and nowhere else."""
    options = {"diversity": 3.0, "n_best": 3, "beam_size": 3}
    free, mixed = (
        translator.translate(TEXTS, **options, must_contain=[[], phrases, [], [], []]) for phrases in ([], ["ti"])
    )
    for index in (0, 2, 3, 4):
        every = [[each.tokens for each in (found[index], *found[index].alternatives)] for found in (free, mixed)]
        assert every[0] == every[1]
