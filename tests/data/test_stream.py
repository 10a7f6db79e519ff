import gzip
import json
import time
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from transduce.config import BadInputError
from transduce.config.corpora import Corpus, DataConfig
from transduce.data import Store, Stream, plan_epoch, stream, write_store

TOKENS, SEED = 64, 7


class Words:
    """Numbers are their own ids; pairs that contain 13 are dropped."""

    def encode(self, records):
        kept = [record for record in records if "13" not in record.pair[0].split()]
        return [(*([int(word) for word in side.split()] for side in each.pair), each.corpus) for each in kept]

    def report(self):
        return ["some were kept"]


def sentences(first, number):
    """Every pair another one, of 1 to 5 words."""
    rows = [[first + index, *range(index % 5)] for index in range(number)]
    return [(" ".join(map(str, row)), " ".join(map(str, row[::-1]))) for row in rows]


def write(path, pairs):
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        match path.name.removesuffix(".gz").rpartition(".")[2]:
            case "jsonl":
                file.writelines(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)
            case "tsv":
                file.writelines(f"{source}\t{target}\n" for source, target in pairs)
            case _:
                raise ValueError(path)


def write_sides(folder, name, pairs):
    for side, text in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (folder / side).mkdir(parents=True, exist_ok=True)
        (folder / side / f"{name}.{side}").write_text("".join(f"{line}\n" for line in text))


def make(root, *corpora, window=10, at_end="repeat"):
    data = DataConfig.model_validate(
        {
            "root": str(root),
            "train": tuple(corpora),
            "dev": {"pairs": "dev.tsv"},
            "streaming": True,
            "shuffle_window": window,
            "at_end": at_end,
            "max_length": 16,
        }
    )
    return Stream(data, Words(), TOKENS, SEED)


def windows(made, epoch=0, index=0, position=None):
    with made.open(epoch, index, position) as queue:
        while (window := queue.take()) is not None:
            yield window


def texts(window):
    """The pairs of a window in the order of its batches, as text."""
    rows = np.concatenate(window.planned.batches)
    return [tuple(" ".join(map(str, side.tolist())) for side in window.pairs.pair(row)) for row in rows]


@pytest.fixture
def parts(tmp_path):
    """Three parts of 7, 12 and 4 pairs."""
    pairs = sentences(100, 23)
    for name, start, stop in (("a", 0, 7), ("b", 7, 19), ("c", 19, 23)):
        write(tmp_path / "parts" / f"{name}.jsonl.gz", pairs[start:stop])
    return pairs


def test_a_pass_has_every_pair_once_in_windows_of_consecutive_records(tmp_path, parts):
    found = list(windows(make(tmp_path, {"pairs": "parts"}, at_end="stop")))
    assert [window.index for window in found] == [0, 1, 2]
    for window, expected in zip(found, (parts[:10], parts[10:20], parts[20:]), strict=True):
        assert sorted(texts(window)) == sorted(expected)
        for batch in window.planned.batches:
            assert len(batch) * max(len(side) + 1 for row in batch for side in window.pairs.pair(row)) <= TOKENS
    assert texts(found[0]) != parts[:10]
    rows = np.concatenate([batch for window in found for batch in window.planned.batches])
    assert sorted(rows.tolist()) == list(range(23))


def test_passes_differ_in_order_and_repeat_in_text(tmp_path, parts):
    found = list(islice(windows(make(tmp_path, {"pairs": "parts/*.jsonl.gz"})), 6))
    assert [(window.epoch, window.index) for window in found] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert sorted(texts(found[0])) == sorted(texts(found[3]))
    assert texts(found[0]) != texts(found[3])
    assert [window.position.read for window in found] == [10, 20, 23, 33, 43, 46]


@pytest.mark.parametrize("at", range(6))
def test_a_window_is_read_again_from_its_position(tmp_path, parts, at):
    made = make(tmp_path, {"pairs": "parts"}, {"made_up": "copy", "count": 9, "seed": 3}, window=11)
    found = list(islice(windows(made), 7))
    begin = found[at]
    again = list(islice(windows(made, begin.epoch, begin.index, begin.position), 7 - at))
    for one, other in zip(found[at:], again, strict=True):
        assert (one.epoch, one.index, one.position) == (other.epoch, other.index, other.position)
        assert texts(one) == texts(other)
        assert all(np.array_equal(*pair) for pair in zip(one.planned.batches, other.planned.batches, strict=True))


def test_a_window_with_room_for_all_is_planned_as_the_store_is(tmp_path, parts):
    encoded = [
        ([int(word) for word in source.split()], [int(word) for word in target.split()], 0) for source, target in parts
    ]
    write_store(tmp_path / "store", encoded, {})
    store = Store(tmp_path / "store")
    for epoch, window in enumerate(islice(windows(make(tmp_path, {"pairs": "parts"}, window=1000)), 2)):
        planned = list(plan_epoch(store, TOKENS, SEED, epoch))
        assert all(np.array_equal(*pair) for pair in zip(planned, window.planned.batches, strict=True))
        rows = np.arange(23)
        assert window.pairs.sizes(rows).tolist() == store.sizes(rows).tolist()
        assert all(np.array_equal(store.pair(row)[1], window.pairs.pair(row)[1]) for row in rows)


def test_pairs_that_are_dropped_leave_no_gap_in_the_rows(tmp_path):
    pairs = sentences(5, 20)  # 13 is the first word of the ninth
    write(tmp_path / "a.tsv", pairs)
    first, second = windows(make(tmp_path, {"pairs": "a.tsv"}, at_end="stop"))
    assert sorted(texts(first)) == sorted(pairs[:8] + pairs[9:10])
    assert (second.position.records, second.position.pairs, second.pairs.first) == (10, 9, 9)
    write(tmp_path / "a.tsv", [("13", "13")] * 25)
    for at_end in ("stop", "repeat"):
        with pytest.raises(BadInputError, match="no pair is left to learn from"):
            list(windows(make(tmp_path, {"pairs": "a.tsv"}, at_end=at_end)))


def test_corpora_are_read_in_turns(tmp_path):
    write(tmp_path / "a.tsv", sentences(100, 6))
    write(tmp_path / "b.tsv", sentences(200, 3))
    made = make(tmp_path, {"pairs": "a.tsv"}, {"pairs": "b.tsv", "lines": (2, 3)}, at_end="stop", window=4)
    found = [sorted(int(source.split()[0]) for source, _ in texts(window)) for window in windows(made)]
    assert found == [[100, 101, 201, 202], [102, 103, 104, 105]]
    with pytest.raises(BadInputError, match=r"b.tsv: ends before line 4, which lines asks for"):
        list(windows(make(tmp_path, {"pairs": "b.tsv", "lines": (2, 4)})))


def test_no_more_than_two_windows_are_in_memory(tmp_path, parts):
    class Counting(Words):
        records = 0

        def encode(self, records):
            self.records += len(records)
            return super().encode(records)

    counting = Counting()
    made = make(tmp_path, {"pairs": "parts"}, window=5)
    made = Stream(made.data, counting, TOKENS, SEED)
    with made.open(0, 0, None) as queue:
        for _ in range(8):
            window = queue.take()
            while not queue.is_ready(1):
                pass
            assert window.position.read < counting.records <= window.position.read + 5


def test_parallel_files_belong_together_by_what_wild_cards_stand_for(tmp_path):
    write_sides(tmp_path, "2", sentences(200, 4))
    write_sides(tmp_path, "1", sentences(100, 5))
    corpus = {"source": "en/*.en", "target": "de/*.de"}
    [window] = windows(make(tmp_path, corpus, at_end="stop"))
    assert sorted(texts(window)) == sorted(sentences(100, 5) + sentences(200, 4))
    assert set(window.position.files[0]) == {"1", "2"}
    (tmp_path / "de" / "1.de").unlink()
    with pytest.raises(BadInputError, match=r"en/1.en: no file of .*de/\*.de belongs to it"):
        list(windows(make(tmp_path, corpus)))
    with pytest.raises(BadInputError, match="no file matches"):
        list(windows(make(tmp_path, {"pairs": "*.jsonl"})))
    with pytest.raises(BadInputError, match="no such file or folder"):
        list(windows(make(tmp_path, {"pairs": "none.jsonl"})))


def test_an_address_is_a_corpus_as_well(tmp_path, parts):
    table = pa.table({"en": [source for source, _ in parts], "de": [target for _, target in parts]})
    parquet.write_table(table, tmp_path / "all.parquet", row_group_size=5)
    columns = {"source_field": "en", "target_field": "de"}
    for corpus in ({"pairs": f"file://{tmp_path}/parts/*.gz"}, {"pairs": f"file://{tmp_path}/all.parquet", **columns}):
        [window] = windows(make(tmp_path / "elsewhere", corpus, at_end="stop", window=50))
        assert sorted(texts(window)) == sorted(parts)


@pytest.fixture
def growing(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "_LOOK_SECONDS", 0.005)
    write(tmp_path / "in" / "1.tsv", sentences(100, 4))
    return make(tmp_path, {"pairs": "in"}, at_end="wait", window=5)


def test_a_folder_that_grows_is_waited_for_until_success(tmp_path, growing):
    with growing.open(0, 0, None) as queue:
        assert not queue.is_ready(0.05)
        write(tmp_path / "in" / ".2.tsv", sentences(200, 7))  # not whole yet
        assert not queue.is_ready(0.05)
        (tmp_path / "in" / ".2.tsv").rename(tmp_path / "in" / "2.tsv")
        first, second = queue.take(), queue.take()
        assert sorted(texts(first)) == sorted(sentences(100, 4) + sentences(200, 1))
        assert second.position.read == 10
        assert not queue.is_ready(0.05)  # one more is there, and no end
        (tmp_path / "in" / "_SUCCESS").touch()
        third = queue.take()
        assert len(texts(third)) == third.position.window == 1
        assert queue.take() is None


def test_what_is_waited_for_is_left_at_once(growing):
    began = time.monotonic()
    with growing.open(0, 0, None) as queue:
        assert not queue.is_ready(0.02)
    assert time.monotonic() - began < 5


def test_a_file_that_comes_too_late_for_its_name_is_an_error(tmp_path, growing):
    with growing.open(0, 0, None) as queue:
        assert not queue.is_ready(0.05)
        write(tmp_path / "in" / "0.tsv", sentences(300, 3))
        with pytest.raises(BadInputError, match=r"0.tsv: came when 1.tsv was being read already"):
            queue.take()


def test_of_parallel_files_that_grow_both_sides_are_waited_for(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(stream, "_LOOK_SECONDS", 0.005)
    write_sides(tmp_path, "1", sentences(100, 2))
    write_sides(tmp_path, "2", sentences(200, 3))
    target = tmp_path / "de" / "2.de"
    target.rename(tmp_path / "de" / ".2.de")
    made = make(tmp_path, {"source": "en/*.en", "target": "de/*.de"}, at_end="wait", window=5)
    with made.open(0, 0, None) as queue:
        assert not queue.is_ready(0.05)
        awaited = f"a file of {tmp_path}/de/*.de that belongs to {tmp_path}/en/2.en"
        assert caplog.messages == [f"{tmp_path}/en/*.en: waiting for {awaited}"]
        (tmp_path / "de" / ".2.de").rename(target)
        assert len(texts(queue.take())) == 5
        for side in ("en", "de"):
            (tmp_path / side / "_SUCCESS").touch()
        assert queue.take() is None


def test_a_file_that_comes_while_a_pass_is_read_is_of_the_next_after_an_interruption_too(tmp_path, parts):
    made = make(tmp_path, {"pairs": "parts"})
    first, *_ = islice(windows(made), 1)
    write(tmp_path / "parts" / "bb.jsonl.gz", sentences(500, 5))
    write(tmp_path / "parts" / "d.jsonl.gz", sentences(600, 5))
    again = list(islice(windows(made, 0, 0, first.position), 5))
    assert [(window.epoch, window.index) for window in again] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert sorted(pair for window in again[:3] for pair in texts(window)) == sorted(parts)
    assert again[3].position.listed == (tuple(f"{name}.jsonl.gz" for name in ("a", "b", "bb", "c", "d")),)


def test_what_a_pass_began_with_must_stay_to_its_end(tmp_path, parts):
    made = make(tmp_path, {"pairs": "parts"})
    first, *_ = islice(windows(made), 1)
    (tmp_path / "parts" / "c.jsonl.gz").unlink()
    with pytest.raises(BadInputError, match=r"its file c.jsonl.gz was there when this pass began and is gone"):
        list(windows(made, 0, 0, first.position))


@pytest.mark.parametrize("change", ["gone", "longer"])
def test_what_was_read_must_be_there_when_it_is_read_again(tmp_path, parts, change):
    made = make(tmp_path, {"pairs": "parts"}, at_end="stop")
    first, *_ = windows(made)
    path = tmp_path / "parts" / "b.jsonl.gz"  # the first window ends within it
    size = path.stat().st_size
    if change == "gone":
        path.unlink()
        says = rf"its file b.jsonl.gz, of {size} bytes, was read before and is gone"
    else:
        write(path, sentences(100, 40))
        says = rf"its file b.jsonl.gz had {size} bytes when it was read before, and has {path.stat().st_size} bytes now"
    with pytest.raises(BadInputError, match=says):
        list(windows(made, 0, 0, first.position))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"duplicates": "drop"}, "duplicates = .drop. remembers every pair"),
        ({"train": {"pairs": "a.tsv", "weight": 2.0}}, "train.weight = 2 is of an epoch"),
        ({"train": {"trees": "a.trees"}}, "train.trees: all symbols of a treebank"),
        ({"streaming": False, "at_end": "stop"}, "at_end = 'stop' is for streaming = true"),
        ({"streaming": False, "shuffle_window": 7}, "shuffle_window = 7 is for streaming = true"),
    ],
)
def test_what_makes_no_sense_of_a_stream_is_refused_by_name(change, says):
    settings = {"train": {"pairs": "a.tsv"}, "dev": {"pairs": "b.tsv"}, "streaming": True}
    assert DataConfig.model_validate(settings).train == (Corpus(pairs="a.tsv"),)
    with pytest.raises(ValueError, match=says):
        DataConfig.model_validate(settings | change)
