"""Sentences to trees by a trained model."""

import json
import shutil
from typing import NamedTuple

import nltk
import pytest

from tests.sparing import one_each
from transduce.config import BadInputError, SpecialIds, read_run
from transduce.inference import Parser, draw, from_nltk, load, split_words, to_nltk
from transduce.inference.parsing import TreeVocabulary
from transduce.text import BadTreeError, escape, parse_brackets
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run", "tiny_treebank"]

SENTENCES = ["Luso fepi .", "ti bamo sor ti dulu gozu Wemo .", "ti kari fepi ti bamo ."]
ODD = [
    ["REDUCE", "WORD", "XX"],
    ["Hi"],
    ["."] * 7,
    ["("],
    ["f(x)", ")", "-LRB-"],
    [],
    [*["ti", "bamo", "sor"] * 40, "Luso", "fepi", "."],
]


@pytest.fixture(scope="module")
def translator(trained_parser):
    return load(trained_parser, "float32")


@pytest.fixture(scope="module")
def parser(translator):
    return Parser(translator)


def test_the_grammar_was_learned(translator):
    trees = translator.parse(SENTENCES)
    assert str(trees[0]).replace("\n", "") == "(S (NP (NNP Luso)) (VP (VBZ fepi)) (. .))"
    assert [tree.leaves() for tree in trees] == [sentence.split() for sentence in SENTENCES]
    assert all(isinstance(tree, nltk.Tree) for tree in trees)


@pytest.mark.parametrize("beam", [1, 4, 16])
def test_every_sentence_has_one_tree_over_its_words(parser, beam):
    found = parser.parse(ODD, beam)
    for each, words in zip(found, ODD, strict=True):
        assert (each.tree is None) == (not words)
        assert each.error is None
        assert not each.repaired
        if words:
            assert to_nltk(each.tree).leaves() == [escape(word) for word in words]
            assert parse_brackets(str(each.tree)) == each.tree


def test_words_stand_in_brackets_to_the_letter_but_for_brackets(parser):
    (found,) = parser.parse([["f(x)", "a/b", "-LRB-", "[1]"]])
    assert found.tree.words == ["f-LRB-x-RRB-", "a/b", "-LRB-", "[1]"]


def test_alone_and_together_are_the_same(parser):
    together = parser.parse([*ODD, *ODD[::-1]])
    assert together == [parser.parse([words])[0] for words in [*ODD, *ODD[::-1]]]


def test_several_trees_come_best_first(parser):
    (found,) = parser.parse([SENTENCES[1].split()], 4, n_best=4)
    several = [found, *found.alternatives]
    assert len({str(each.tree) for each in several}) == 4
    assert [each.score for each in several] == sorted((each.score for each in several), reverse=True)


def test_without_the_constraint_trees_are_repaired(parser):
    sentences = [SENTENCES[0].split(), *ODD[1:5]]
    free, kept = parser.parse(sentences, well_formed=False), parser.parse(sentences)
    assert (free[0].tree, free[0].repaired) == (kept[0].tree, False)
    assert any(each.repaired for each in free[1:])
    assert [len(each.tree.words) for each in free] == [len(words) for words in sentences]


def test_a_tree_that_does_not_fit_says_so(parser):
    (found,) = parser.parse([["ti", "bamo", "fepi", "."]], max_length=3)
    assert found.tree is None
    assert "does not fit" in found.error
    assert "max_length" in found.error


def test_what_contradicts_trees_is_refused_by_name(parser):
    with pytest.raises(BadInputError, match="no repeat ngram: contradicts the shape of trees"):
        parser.parse([["a"]], no_repeat_ngram=2)
    with pytest.raises(BadInputError, match="min length: contradicts"):
        parser.parse([["a"]], min_length=2)
    with pytest.raises(BadInputError, match="prefixes"):
        parser.parse([["a"]], prefixes=["(S"])


def test_what_a_models_own_settings_ask_of_texts_is_off(trained_parser, tmp_path):
    shutil.copytree(trained_parser / "best", tmp_path / "model")
    path = tmp_path / "model" / "generation_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"no_repeat_ngram": 1, "min_length": 90}))
    ours, usual = (load(model, "float32").parse(SENTENCES) for model in (tmp_path / "model", trained_parser))
    assert ours == usual


def test_words_are_leaves_to_the_letter(translator):
    words = ["(", "-LRB-", r"a\/b", "a/b", "x\N{NO-BREAK SPACE}y"]
    (tree,) = translator.parse([words])
    assert tree.leaves() == words


def test_one_string_is_refused(translator):
    with pytest.raises(BadInputError, match="one string was given"):
        translator.parse("a b")


def test_a_model_of_something_else_is_no_parser(trained_run):
    with pytest.raises(BadInputError, match="writes no trees: its vocabulary has no symbols"):
        Parser(load(trained_run))


class Twice:
    """A tokenizer with two symbols that read the same but for white space."""

    special = SpecialIds(0, 1, 2, 3)
    names = (*"abcd", "(S", ")S", ")S ", "XX")
    vocab_size = len(names)

    def tokens(self, ids):
        return [self.names[index] for index in ids]

    def encode(self, texts):
        return [[index] for index, _ in enumerate(texts)]


def test_two_symbols_that_close_one_phrase_are_refused():
    with pytest.raises(BadInputError, match=r"two symbols, 5 and 6, that both read \)S"):
        TreeVocabulary.of(Twice())


class Shared(Twice):
    """One whose texts have brackets, too, alone and before a word."""

    names = (*"abcd", "(S", ")S", "XX", "(", ")", " )", "(see", ")so")
    vocab_size = len(names)


def test_brackets_of_texts_are_no_phrases():
    symbols = TreeVocabulary.of(Shared()).symbols
    assert (symbols.opening, symbols.closing) == ({4: "S"}, {"S": 5})


def test_what_stands_before_a_sentence_is_no_word_of_its_tree(parser, translator, monkeypatch):
    read, translate = [], translator.translate

    def spy(texts, *given, **options):
        read.extend(texts)
        return translate(texts, *given, **options)

    monkeypatch.setattr(parser, "_translator", Spied(translator.tokenizers, spy))
    found = parser.parse([["ti", "kari", "."], []], prefix="<bt> ")
    assert read == ["<bt> ti kari .", ""]
    assert found[0].tree.words == ["ti", "kari", "."]
    assert found[1].tree is None


class Spied(NamedTuple):
    """A translator whose texts are looked at."""

    tokenizers: object
    translate: object


def test_trees_of_nltk_and_back():
    tree = parse_brackets("(S (NP (NN f-LRB-x-RRB-)) (VP (VBZ is)))")
    assert from_nltk(to_nltk(tree)) == tree
    escaped = parse_brackets(r"(S (NP (-LRB- -LRB-) (NN a\/b) (NN *)))")
    assert to_nltk(escaped).leaves() == ["-LRB-", r"a\/b", "*"]
    assert from_nltk(to_nltk(escaped)) == escaped
    assert to_nltk(None) == nltk.Tree("", [])
    with pytest.raises(BadTreeError, match="has no part-of-speech tag"):
        from_nltk(nltk.Tree("S", ["a", "b"]))
    with pytest.raises(BadTreeError, match="is empty"):
        from_nltk(nltk.Tree("S", [nltk.Tree("NP", [])]))


def test_running_text_and_drawings():
    assert split_words("Don't stop (here).") == ["Do", "n't", "stop", "(", "here", ")", "."]
    lines = draw(parse_brackets("(S (NP (NN dog)) (VP (VBZ barks)))")).splitlines()
    assert lines[0].strip() == "S"
    assert lines[-1].split() == ["dog", "barks"]


@pytest.mark.parametrize(
    ("more", "kind"),
    [*one_each(["", ", words = true", ', words = true, tags = "kept"'], ["brackets", "shift_reduce"])],
)
def test_a_shared_vocabulary_parses_too(treebank, tmp_path, kind, more):
    """As the paper's: word pieces and symbols of trees in one; no training is needed for outputs to be trees."""
    how = f'linearization = "{kind}"{more}'
    text = (treebank / "run.toml").read_text(encoding="utf-8").replace('tags = "kept"', how)
    start, end = text.index("[tokenizer.source]"), text.index("[model]")
    (tmp_path / "run.toml").write_text(f"{text[:start]}[tokenizer]\nvocab_size = 400\n\n{text[end:]}", encoding="utf-8")
    changes = ["train.max_steps=2", "train.warmup_steps=1", "generation.max_extra_length=300"]
    config = read_run(tmp_path / "run.toml", [f"data.root={treebank}", *changes])
    train_run(config, RunDirectory(tmp_path / "run"), resume=False)
    parser = Parser(load(tmp_path / "run", "float32"))
    for each, words in zip(parser.parse(ODD, 4), ODD, strict=True):
        assert (each.tree is None, each.error, each.repaired) == (not words, None, False)
        assert each.tree is None or len(each.tree.words) == len(words)


def test_sentences_are_lists_of_words_or_words_in_a_string(parser):
    lists, strings = [["Luso", "fepi", "."], ["Luso", "."]], ["Luso fepi .", "Luso ."]
    assert [each.tree for each in parser.parse(strings)] == [each.tree for each in parser.parse(lists)]


@pytest.mark.parametrize("words", [["Luso", ""], ["Luso", " "], ["Luso", 3]])
def test_a_word_that_is_none_is_named(parser, words):
    with pytest.raises(BadInputError, match=r"sentence 6: word 2 is .*: give a string that is not empty"):
        parser.parse([["Luso"], words], first_number=5)


def test_what_is_no_sentence_is_named(parser):
    with pytest.raises(BadInputError, match=r"sentence 2: an? int .*was given: give a string, or a list of words"):
        parser.parse([["Luso"], 5])


def test_one_string_is_no_list_of_sentences(parser):
    with pytest.raises(BadInputError, match="one string was given"):
        parser.parse("Luso fepi .")
