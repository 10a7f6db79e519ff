"""Text in two places of a run: files that are there, and nothing in them is read."""

import pytest

from transduce.config import TrainConfig, read_run
from transduce.training.step import scheduled_rate
from transduce.workflows.findings import find_same_text, find_schedule


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


@pytest.mark.parametrize(
    ("warmup", "cooldown", "said"),
    [
        (11, 0, "train.warmup_steps = 11 of train.max_steps = 10: the schedule's peak is never reached: "),
        (
            10,
            0,
            "train.warmup_steps = 10 of train.max_steps = 10: the schedule's peak is reached in the last step alone",
        ),
        (9, 0, None),
        (1, 11, "train.cooldown_steps = 11 of train.max_steps = 10: the rate falls from the first step on, "),
        (1, 10, None),
        (6, 5, None),
        (6, 6, "train.warmup_steps = 6 and train.cooldown_steps = 6 of train.max_steps = 10: the rate begins to fall "),
    ],
)
def test_a_schedule_without_time_at_its_height_is_told(warmup, cooldown, said):
    train = TrainConfig(max_steps=10, warmup_steps=warmup, cooldown_steps=cooldown)
    found = list(find_schedule(train))
    assert [each[: len(said)] for each in found] == [said] if said else found == []
    # By the schedule itself: the peak of the paper's formula, which no cooldown has lowered.
    height = TrainConfig(max_steps=10**6, warmup_steps=warmup)
    highest = max(scheduled_rate(step, train, 16) for step in range(1, 11))
    assert (highest == scheduled_rate(warmup, height, 16)) is (said is None or warmup == 10)


def test_a_rate_of_its_own_is_named():
    train = TrainConfig(max_steps=10, warmup_steps=20, learning_rate=0.5)
    assert "train.learning_rate = 0.5 is never reached" in next(find_schedule(train))
