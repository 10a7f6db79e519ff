"""What each step learns from where the text is a stream."""

from dataclasses import replace

import numpy as np
import pytest

from transduce.config import BadInputError, SpecialIds, TrainConfig, preset
from transduce.config.corpora import DataConfig
from transduce.data import Share, Store, Stream, stream, write_store
from transduce.models import build
from transduce.training import Corpora, DevOutputs, Hooks, Progress, Report, Training, Watch, make_optimizer, train
from transduce.training.step import read_step_batches
from transduce.training.windows import Interrupted

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
PAIRS = 43


class Lengths:
    """Of "3" and "5", so many symbols."""

    def encode(self, records):
        return [([7] * int(each.pair[0]), [11] * int(each.pair[1]), 0) for each in records]

    def report(self):
        return []


@pytest.fixture
def corpora(tmp_path):
    random = np.random.default_rng(3)
    lines = [f"{source}\t{target}\n" for source, target in random.integers(1, 9, (PAIRS, 2))]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.tsv").write_text("".join(lines))
    write_store(tmp_path / "dev", [([7], [11], 0)], {})
    settings = {"root": str(tmp_path), "train": {"pairs": "in"}, "dev": {"pairs": "in/1.tsv"}, "streaming": True}
    data = DataConfig.model_validate(settings | {"shuffle_window": 17, "at_end": "stop", "max_length": 9})
    return Corpora(Stream(data, Lengths(), 24, 5), Store(tmp_path / "dev"), SPECIAL)


def steps(corpora, share=Share(), progress=Progress(), pause=bool):  # noqa: B008 - they never change
    config = TrainConfig(batch_tokens=24, accumulate=share.accumulate, seed=5)
    return list(read_step_batches(corpora, config, progress, share, pause))


def rows(step):
    counted = [batch.rows[batch.counted > 0] for batch in step.batches]
    return sorted(np.concatenate([np.zeros(0, np.int64), *counted]).tolist())


def test_a_stream_that_ends_has_a_last_step(corpora):
    found = steps(corpora)
    assert sorted(row for step in found for row in rows(step)) == list(range(PAIRS))
    assert [step.last for step in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].position["stream"].ended
    assert [step.position["window"] for step in found] == sorted(step.position["window"] for step in found)
    assert found[-1].position["window"] == 2
    # From any step on, the rest is the same.
    for done in (1, len(found) // 2, len(found) - 1):
        rest = steps(corpora, progress=Progress(**found[done - 1].position))
        assert [(step.places, rows(step), step.position) for step in rest] == [
            (step.places, rows(step), step.position) for step in found[done:]
        ]
    assert steps(corpora, progress=Progress(**found[-1].position)) == []


def test_what_makes_no_whole_step_is_left_and_told(corpora, caplog):
    caplog.set_level("INFO")
    single = steps(corpora)
    assert caplog.messages == []
    triple = steps(corpora, Share(accumulate=3))
    left = len(single) % 3
    assert left != 0
    [said] = caplog.messages
    assert said.startswith(f"the training corpora end with {left} of the train.accumulate = 3 batches of a step: no ")
    assert len(triple) == len(single) // 3
    assert triple[-1].last
    expected = [sorted(row for step in single[i : i + 3] for row in rows(step)) for i in range(0, len(single) - 2, 3)]
    assert [rows(step) for step in triple] == expected


def test_a_stream_without_a_step_is_refused(corpora):
    there = len(steps(corpora))
    needed = rf"train\.accumulate = {there + 1} batches are needed, there were {there}: lower train\.accumulate or"
    with pytest.raises(BadInputError, match=rf"data\.train: the corpora end before the first step: {needed}"):
        steps(corpora, Share(accumulate=there + 1))
    # A stream that was to begin again, and is to end now.
    late = Progress(step=7, **steps(corpora)[-2].position)
    with pytest.raises(BadInputError, match=r"the corpora end before step 8: .*there was 1: "):
        steps(corpora, Share(accumulate=2), late)


@pytest.mark.parametrize(("number", "accumulate"), [(2, 1), (2, 2), (4, 2)])
def test_processes_divide_the_steps_of_a_stream(corpora, number, accumulate):
    whole = steps(corpora, Share(accumulate=accumulate))
    shares = [steps(corpora, Share(rank, number, accumulate)) for rank in range(number)]
    for step, *parts in zip(whole, *shares, strict=True):
        assert sorted(row for part in parts for row in rows(part)) == rows(step)
        assert all(part.position == step.position for part in parts)


def test_a_last_window_may_have_fewer_pairs_than_processes_share(corpora, tmp_path):
    """One pair: a process has a part without any. Only batches that are all so small are refused, at the beginning."""
    lines = tmp_path / "in" / "1.tsv"
    lines.write_text("3\t3\n" * 18)
    shares = [steps(corpora, Share(rank, 2)) for rank in range(2)]
    assert [step.position["window"] for step in shares[0]].count(1) == 1
    assert [len(rows(share[-1])) for share in shares] in ([0, 1], [1, 0])
    lines.write_text("8\t8\n" * 18)
    with pytest.raises(BadInputError, match="8 processes cannot divide the steps"):
        steps(corpora, Share(0, 8))


def test_who_waits_for_a_window_is_asked_whether_to_go_on(corpora, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr("transduce.training.windows._LOOK_SECONDS", 0.02)
    data = corpora.train.data.model_copy(update={"at_end": "wait"})
    waiting = replace(corpora, train=replace(corpora.train, data=data))
    asked = []

    def pause(ready):
        asked.append(ready)
        if asked[-3:] == [False] * 3:
            raise Interrupted
        return ready

    reading = read_step_batches(waiting, TrainConfig(batch_tokens=24), Progress(), Share(), pause)
    found = []
    with pytest.raises(Interrupted):
        found.extend(reading)
    assert asked.count(True) == 2  # of three windows, the third is not full
    asked.clear()

    def write(ready):
        asked.append(ready)
        if len(asked) == 5:
            (tmp_path / "in" / "_SUCCESS").touch()
        return ready

    config = TrainConfig(batch_tokens=24)
    assert len(list(read_step_batches(waiting, config, Progress(), Share(), write))) == len(steps(corpora))


def test_dev_may_take_as_long_as_it_will_where_a_wait_for_text_ends_the_training(corpora, tmp_path, monkeypatch):
    """What ends a process that hangs is for steps and waits: it would end one that measures a large dev."""
    monkeypatch.setattr(stream, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr("transduce.training.windows._LOOK_SECONDS", 0.02)
    watched, waited = [], ["reading the training corpora", None]
    monkeypatch.setattr(Watch, "beat", lambda _, what: watched.append(what))
    monkeypatch.setattr(Watch, "rest", lambda _: watched.append(None))
    # In place of the clock: a wait behind the first step is the end.
    monkeypatch.setattr("transduce.training.windows.is_over", lambda _, step, __: step > 0)
    monkeypatch.setattr("transduce.training.loop.is_over", lambda *_: watched[-2:] == waited)
    data = corpora.train.data.model_copy(update={"at_end": "wait"})
    waiting = replace(corpora, train=replace(corpora.train, data=data))
    model = build(preset("base", {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "heads": 2}))
    config = TrainConfig(batch_tokens=24, precision="float32")
    with Report(None, max_steps=100, step=0) as report:
        hooks = Hooks(lambda _: DevOutputs({"bleu": 0.0}), lambda _: None)
        optimizer, folder = make_optimizer(model, config), tmp_path / "checkpoints"
        progress = train(Training(model, optimizer, waiting, config, folder, report, hooks), Progress())
    assert progress.validated == progress.step > 0
