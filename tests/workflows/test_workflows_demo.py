import random

import pytest

from transduce.cli.demo import demo as demo_verb
from transduce.data.phrases import FAMILIES, PHRASES, make_phrases
from transduce.workflows.demo import DEMO_TEXT, demo
from transduce.workflows.run_directory import RunDirectory


def test_tests_hold_no_value_of_the_training_and_no_combination_twice():
    corpus = make_phrases(2003, 101, 1)
    parts = [corpus.train, corpus.dev, corpus.unseen_values, corpus.unseen_combinations]
    assert [len(part) for part in parts] == [2003, 101, 101, 101]
    sources = [source for part in parts for source, _ in part]
    assert len(set(sources)) == len(sources)

    def value(source):
        (found,) = {
            source.removeprefix(before).removesuffix(behind)
            for before, behind in (phrase.split("{}") for phrase, _ in PHRASES)
            if source.startswith(before) and source.endswith(behind)
        }
        return found

    values = [value(source) for source in sources]
    assert len(set(values)) == len(values)


def test_phrases_take_a_value_of_every_kind():
    assert all(source.count("{}") == target.count("{}") == 1 for source, target in PHRASES)
    kinds = [kind for family in FAMILIES for kind in family]
    assert len(PHRASES) * len(kinds) >= 400
    for kind in kinds:
        english, german = kind(random.Random(7))
        assert english
        assert german


def test_the_same_seed_gives_the_same_corpus():
    assert make_phrases(31, 7, 3) == make_phrases(31, 7, 3)
    assert make_phrases(31, 7, 3) != make_phrases(31, 7, 4)


def test_the_demo_goes_the_whole_path(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.workflows.demo._TRAIN_PAIRS", 307)
    monkeypatch.setattr("transduce.workflows.demo._TEST_PAIRS", 11)
    said = []
    scores = demo(RunDirectory(tmp_path / "demo"), said.append, minutes=0.05)
    assert set(scores) == {"unseen values", "unseen combinations"}
    assert all(0 <= score.exact <= 100 and score.lookup_exact < 20 for score in scores.values())
    told = "\n".join(said)
    assert "exact match" in told
    assert f"transduce translate {tmp_path / 'demo'}" in told
    said.clear()
    demo(RunDirectory(tmp_path / "demo"), said.append, minutes=0.001)  # in the place of the earlier one
    assert said[0] == f"{tmp_path / 'demo'}: an earlier demo, which is deleted"


def test_the_demo_never_takes_the_place_of_somebodys_run(trained_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(trained_run)
    monkeypatch.setattr("transduce.workflows.demo._TRAIN_PAIRS", 31)
    monkeypatch.setattr("transduce.workflows.demo._TEST_PAIRS", 3)
    with pytest.raises(Exception, match="something else than an earlier demo"):
        demo_verb()
    assert (trained_run / "best").is_dir()
    assert not (trained_run / DEMO_TEXT).exists()


pytest_plugins = ["tiny_run"]
