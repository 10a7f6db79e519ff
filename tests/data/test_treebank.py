"""Treebanks as corpora: files and folders, bad trees, and what a run file says of them."""

import gzip
import logging
import re
import shutil
from pathlib import Path

import pytest

from transduce.config import BadInputError, read_run
from transduce.config.corpora import Corpus
from transduce.data import corpus_paths, read_corpus, read_treebank
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.vocabulary import make_tokenizers

RECIPES = Path(__file__).parents[2] / "recipes"

pytest_plugins = ["tiny_treebank"]

GOOD = "(S (NP-SBJ (DT The) (NN dog)) (VP (VBZ barks)) (-RRB- -RRB-))"


def read(root, **settings):
    return list(read_corpus(Corpus(**settings), root))


def test_a_tree_is_a_pair_of_words_and_symbols(tmp_path):
    (tmp_path / "a.trees").write_text(f"{GOOD}\n", encoding="utf-8")
    source = "The dog barks )"
    assert read(tmp_path, trees="a.trees") == [(source, "(S (NP XX XX )NP (VP XX )VP XX )S")]
    assert read(tmp_path, trees="a.trees", tags="kept", functions=True, tag="<x>") == [
        (f"<x> {source}", "(S (NP-SBJ DT NN )NP-SBJ (VP VBZ )VP -RRB- )S")
    ]
    assert read(tmp_path, trees="a.trees", linearization="shift_reduce")[0][1].startswith("NT(S) NT(NP) SHIFT")


def test_folders_are_read_in_the_order_of_their_names(treebank):
    corpus = read_run(treebank / "run.toml").data.train[0]
    paths = corpus_paths(corpus, treebank)
    assert [path.name for path in paths[:3]] == ["wsj_0200.mrg", "wsj_0201.mrg", "wsj_0300.mrg"]
    assert len(paths) == 40
    assert len(list(read_treebank(corpus, treebank))) == 240


def test_lines_are_trees(treebank):
    first, second = read(treebank, trees="wsj/02/wsj_0200.mrg", lines=[2, 3])
    assert [first, second] == read(treebank, trees="wsj/02/wsj_0200.mrg")[1:3]


def test_compressed(tmp_path):
    (tmp_path / "a.trees.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert len(read(tmp_path, trees=".")) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(S (NN a)", "unbalanced"),
        ("(S (NN a)))", "too many"),
        ("(S (NN a)) (S (NN b))", "two trees on a line"),
        ("(S (NP) (NN a))", "is empty"),
        ("(S a)) ", "too many"),
        ("(S (NP (NN a) b))", "the word b has no part-of-speech tag"),
        ("( (S (NP (-NONE- *))))", "nothing but null elements"),
    ],
)
def test_bad_trees_are_named_or_left_out(tmp_path, caplog, line, reason):
    path = tmp_path / "a.trees"
    path.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=rf"a\.trees line 3: tree 2: .*{reason}.*bad_trees = \"drop\""):
        read(tmp_path, trees="a.trees")
    caplog.set_level(logging.WARNING)
    assert len(read(tmp_path, trees="a.trees", bad_trees="drop")) == 2
    assert "line 3: tree 2" in caplog.text
    assert "1 of 3 trees of the file are left out" in caplog.text


def test_files_without_trees(tmp_path):
    (tmp_path / "empty.trees").write_text("\n\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "README").write_text(GOOD, encoding="utf-8")
    with pytest.raises(BadInputError, match=r"empty\.trees: has no tree"):
        read(tmp_path, trees="empty.trees")
    with pytest.raises(BadInputError, match=r"folder: there is no file of trees in this folder: they are named"):
        read(tmp_path, trees="folder")
    with pytest.raises(BadInputError, match="no such file"):
        read(tmp_path, trees="nothing.trees")


def test_settings_of_trees_need_trees_and_agree(treebank, tmp_path):
    text = (treebank / "run.toml").read_text(encoding="utf-8")
    for changed, message in (
        (text.replace('"wsj/22", tags = "kept"', '"wsj/22"'), "tags differs between treebanks"),
        (text.replace('trees = "wsj/22"', 'source = "a", target = "b"'), "tags is for treebanks"),
        (
            text.replace('trees = "wsj/22", tags = "kept"', 'source = "a", target = "b"'),
            "best_metric = .* is for treebanks",
        ),
        (text.replace('trees = "wsj/22"', 'pairs = "a.tsv", trees = "wsj/22"'), "a treebank"),
    ):
        path = Path(tmp_path) / "run.toml"
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(BadInputError, match=message):
            read_run(path)


def test_the_recipe_of_the_penn_treebank_finds_its_sections(treebank):
    """And its tokenizer, which both sides share, knows every symbol of the trees as one token."""
    config = read_run(RECIPES / "parsing-wsj.toml", [f"data.root={treebank}", "tokenizer.vocab_size=400"])
    assert [len(list(read_corpus(each, treebank))) for each in (*config.data.train, config.data.dev)] == [240, 12]
    target = make_tokenizers(config).target
    for _, symbols in read_corpus(config.data.dev, treebank):
        [ids] = target.encode([symbols])
        assert [token.strip() for token in target.tokens(ids)] == symbols.split()


def test_tags_of_a_shared_vocabulary_are_refused(treebank, tmp_path):
    run = (treebank / "run.toml").read_text(encoding="utf-8")
    start = run.index("[tokenizer.source]")
    path = tmp_path / "run.toml"
    path.write_text(run[:start] + "[tokenizer]\nvocab_size = 400\n\n" + run[run.index("[model]") :], encoding="utf-8")
    config = read_run(path, [f"data.root={treebank}"])
    with pytest.raises(BadInputError, match="give the target one of its own"):
        make_tokenizers(config)


def test_words_need_word_pieces(treebank, tmp_path):
    run = (treebank / "run.toml").read_text(encoding="utf-8").replace('tags = "kept"', "words = true")
    (tmp_path / "run.toml").write_text(run, encoding="utf-8")
    with pytest.raises(BadInputError, match=r'words = true: .* take kind = "bpe"'):
        make_tokenizers(read_run(tmp_path / "run.toml", [f"data.root={treebank}"]))


def test_the_report_of_a_preparation_counts_bad_trees(treebank, tmp_path):
    for section in ("wsj/02", "wsj/22", "wsj/23"):
        shutil.copytree(treebank / section, tmp_path / section)
    (tmp_path / "wsj/02/bad.mrg").write_text("(S (NP) (NN a))\n(S (NN a)\n", encoding="utf-8")
    run = (treebank / "run.toml").read_text(encoding="utf-8")
    own = re.sub(r"trees = \[[^]]*\]", 'trees = ["wsj/02"], bad_trees = "drop"', run)
    (tmp_path / "run.toml").write_text(own, encoding="utf-8")
    report = "\n".join(prepare(read_run(tmp_path / "run.toml"), RunDirectory(tmp_path / "run")).report)
    assert "12 of 14 pairs kept" in report
    assert "2 dropped: no tree" in report
    assert re.search(r"bad\.mrg line 1: tree 1: the phrase \(NP\) is empty", report)
    assert re.search(r"bad\.mrg line 2: tree 2: unbalanced", report)
