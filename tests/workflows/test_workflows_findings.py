"""Text in two places of a run: files that are there, and nothing in them is read."""

import pytest

from transduce.config import read_run
from transduce.workflows.findings import find_same_text


@pytest.fixture
def found(tmp_path):
    for name in ("a.en", "a.de", "b.en", "b.de", "a.tsv", "b.jsonl", "c.txt"):
        (tmp_path / name).write_text("words\n")
    (tmp_path / "link.en").symlink_to("a.en")

    def find(train, dev, more=""):
        path = tmp_path / "run.toml"
        path.write_text(f"[data]\ntrain = {train}\ndev = {dev}\n{more}\n")
        return [text.replace(f"{tmp_path}/", "") for text in find_same_text(read_run(path))]

    return find


TRAIN, DEV = '{ source = "a.en", target = "a.de" }', '{ source = "b.en", target = "b.de" }'


def test_different_files(found):
    assert found(TRAIN, DEV) == []
    assert found('{ made_up = "copy" }', '{ made_up = "copy", seed = 2 }') == []
    assert found('{ pairs = "a.tsv", source_field = "x", target_field = "x" }', DEV) == []  # columns have no fields


@pytest.mark.parametrize(
    ("train", "dev", "expected"),
    [
        ('{ source = "a.en", target = "a.en" }', DEV, "data.train: a.en is both source and target"),
        ('{ source = "a.en", target = "./a.en" }', DEV, "data.train: a.en is both source and target"),
        ('{ source = "a.en", target = "link.en" }', DEV, "data.train: a.en is both source and target"),
        (f'[{DEV}, {{ source = "a.en", target = "a.en" }}]'.replace("b.", "a."), DEV, "data.train.1: a.en is both"),
        (TRAIN, '{ source = "b.en", target = "b.en" }', "data.dev: b.en is both source and target"),
        (TRAIN, '{ pairs = "b.jsonl", target_field = "source" }', "data.dev: the field 'source' of b.jsonl is both"),
        (TRAIN, TRAIN, "data.dev: a.en is trained on too (data.train): its scores"),
        (TRAIN, '{ source = "b.en", target = "a.de" }', "data.dev: a.de is trained on too (data.train)"),
        ('{ made_up = "copy" }', '{ made_up = "copy" }', "data.dev: what seed = 1 makes up is trained on too"),
    ],
)
def test_said(found, train, dev, expected):
    (text,) = found(train, dev)
    assert text.startswith(expected)


def test_of_test_too(found):
    (text,) = found(TRAIN, DEV, f"test = {TRAIN}")
    assert text.startswith("data.test: a.en is trained on too")


def test_other_lines_of_one_file(found):
    parts = [f'{{ pairs = "a.tsv", lines = [{first}, {last}] }}' for first, last in ((1, 50), (51, 60), (50, 60))]
    assert found(parts[0], parts[1]) == []
    assert len(found(parts[0], parts[2])) == 1
    assert len(found('{ pairs = "a.tsv" }', parts[2])) == 1


def test_a_preparation_that_keeps_dev_apart(found):
    assert found(TRAIN, TRAIN, 'dev_overlap = "drop"') == []
