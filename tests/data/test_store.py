import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from transduce.config import BadInputError
from transduce.data import Store, store, write_store

PAIRS = [([7, 11], [13], 0), ([], [17, 19, 23], 2), ([29], [], 255), ([], [], 2), ([2**31 - 1, 0], [31], 0)]
ORIGIN = {"data": "somewhere", "files": "ümlaut"}


def contents(opened):
    sides = [opened.pair(index) for index in range(len(opened))]
    corpora = [number for block in opened.blocks for number in block.corpora.tolist()]
    return [(source.tolist(), target.tolist(), number) for (source, target), number in zip(sides, corpora, strict=True)]


def complaint(path):
    with pytest.raises(BadInputError) as caught:
        Store(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "prepare" in message  # the way out
    return message


def damage(opened):
    with pytest.raises(BadInputError) as caught:
        opened.verify()
    assert "prepare the run again" in str(caught.value)
    return str(caught.value)


def write_arrow(path, metadata, names=("source", "target"), kind="int32", number="uint8"):
    ids, numbers = pa.list_(getattr(pa, kind)()), getattr(pa, number)()
    schema = pa.schema([*((name, ids) for name in names), ("corpus", numbers)], metadata)
    with ipc.new_file(str(path), schema) as writer:
        columns = [*(pa.array([[3]], ids) for _ in names), pa.array([7], numbers)]
        writer.write_batch(pa.record_batch(columns, schema=schema))


class TestRoundTrip:
    def test_pairs_lengths_and_origin(self, tmp_path):
        write_store(tmp_path / "train.arrow", PAIRS, ORIGIN)
        opened = Store(tmp_path / "train.arrow")
        assert contents(opened) == PAIRS
        assert opened.origin == ORIGIN
        (block,) = opened.blocks
        assert block.source.lengths().tolist() == [2, 0, 1, 0, 2]
        assert block.target.lengths().tolist() == [1, 3, 0, 0, 1]
        assert (opened.longest, opened.tokens) == ((2, 3), (5, 5))
        assert [opened.count(corpus) for corpus in (0, 1, 2, 255)] == [2, 0, 2, 1]
        opened.verify()

    @pytest.mark.parametrize("count", [2, 3, 4, 6, 7])  # less than a block, one, more, exactly two, two and a rest
    def test_more_rows_than_one_block(self, tmp_path, monkeypatch, count):
        monkeypatch.setattr(store, "_ROWS_PER_BLOCK", 3)
        pairs = [([index] * index, [100 + index] * (count - index), index % 3) for index in range(count)]
        write_store(tmp_path / "train.arrow", iter(pairs), {})
        opened = Store(tmp_path / "train.arrow")
        assert contents(opened) == pairs
        assert [opened.rows(number).tolist() for number in range(len(opened.blocks))] == [
            list(range(first, min(first + 3, count))) for first in range(0, count, 3)
        ]
        assert opened.longest == (count - 1, count)
        opened.verify()

    @pytest.mark.parametrize("pairs", [[], [([], [], 0)], [([], [], 1)] * 3])
    def test_nothing(self, tmp_path, pairs):
        write_store(tmp_path / "train.arrow", pairs, {})
        opened = Store(tmp_path / "train.arrow")
        assert len(opened) == len(pairs)
        assert contents(opened) == pairs

    @given(pairs=st.lists(st.tuples(*[st.lists(st.integers(0, 2**31 - 1))] * 2, st.integers(0, 255))))
    def test_any_pairs(self, tmp_path_factory, pairs):
        path = tmp_path_factory.getbasetemp() / "any.arrow"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "_ROWS_PER_BLOCK", 3)
            write_store(path, pairs, {})
            assert contents(Store(path)) == pairs


class TestWhole:
    def test_a_crash_while_writing_leaves_the_older_store(self, tmp_path, monkeypatch):
        monkeypatch.setattr(store, "_ROWS_PER_BLOCK", 2)
        path = tmp_path / "train.arrow"
        write_store(path, PAIRS, ORIGIN)

        def broken():
            yield from PAIRS[:3]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_store(path, broken(), {"another": "origin"})
        assert contents(Store(path)) == PAIRS
        assert Store(path).origin == ORIGIN
        write_store(path, PAIRS[:1], {})  # what the crash left behind is in nobody's way
        assert contents(Store(path)) == PAIRS[:1]
        assert [file.name for file in tmp_path.iterdir()] == ["train.arrow"]

    def test_a_full_disk_is_told_with_the_file_and_left_empty(self, tmp_path, monkeypatch):
        monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left") as caught:
            write_store(tmp_path / "train.arrow", PAIRS, ORIGIN)
        assert caught.value.filename == str(tmp_path / "train.arrow")
        assert [*tmp_path.iterdir()] == []

    def test_a_crash_before_there_was_any_leaves_none(self, tmp_path):
        with pytest.raises(ZeroDivisionError):
            write_store(tmp_path / "train.arrow", (([1], [1 // 0], 0) for _ in range(3)), {})
        assert [*tmp_path.iterdir()] == []
        assert "no such store" in complaint(tmp_path / "train.arrow")


class TestUnreadable:
    def test_missing(self, tmp_path):
        assert "no such store" in complaint(tmp_path / "train.arrow")

    def test_a_directory(self, tmp_path):
        complaint(tmp_path)

    def test_truncated_anywhere(self, tmp_path):
        path = tmp_path / "train.arrow"
        write_store(path, PAIRS, ORIGIN)
        whole = path.read_bytes()
        for length in range(0, len(whole), 29):
            path.write_bytes(whole[:length])
            complaint(path)

    def test_offsets_that_lead_out_of_the_file(self, tmp_path):
        # Read as they stand, they would end the process with a segmentation fault.
        path = tmp_path / "train.arrow"
        write_store(path, [([1, 2, 3, 4, 5], [7], 0), ([8], [9], 0)], {})
        whole, column = path.read_bytes(), np.array([0, 5, 6, 1, 2, 3, 4, 5, 8], np.int32).tobytes()
        assert whole.count(column[:12]) == 1
        for wrong in (2**30, -(2**30)):
            path.write_bytes(whole.replace(column[:12], np.array([0, wrong, 6], np.int32).tobytes()))
            opened = Store(path)
            assert all(set(opened.pair(row)[0].tolist()) <= {1, 2, 3, 4, 5, 8} for row in range(2))
            assert "block 0 is damaged" in damage(opened)

    def test_any_byte_of_the_arrays_that_changed_is_noticed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(store, "_ROWS_PER_BLOCK", 2)
        path = tmp_path / "train.arrow"
        write_store(path, [([101, 102], [103], 5), ([104], [], 5), ([105], [106], 6)], {})
        whole = path.read_bytes()
        for value, block in ((101, 0), (102, 0), (103, 0), (104, 0), (105, 1), (106, 1)):
            array = np.int32(value).tobytes()
            assert whole.count(array) == 1
            path.write_bytes(whole.replace(array, np.int32(107).tobytes()))
            opened = Store(path)  # which reads none of it
            assert f"block {block} is damaged (its checksum" in damage(opened)

    @pytest.mark.parametrize("wrong", ["{}", "[]", "{", '{"longest": 3}'])
    def test_a_damaged_description_of_a_block(self, tmp_path, monkeypatch, wrong):
        monkeypatch.setattr("transduce.data.block.Facts.to_json", lambda _: wrong)
        write_store(tmp_path / "train.arrow", PAIRS, ORIGIN)
        assert "a damaged store" in complaint(tmp_path / "train.arrow")

    def test_a_store_of_an_older_version_has_no_checksums_and_is_read(self, tmp_path):
        path = tmp_path / "train.arrow"
        write_arrow(path, {"version": "2", "origin": "{}"})
        opened = Store(path)
        opened.verify()
        assert (opened.longest, opened.tokens, opened.count(7)) == ((1, 1), (1, 1), 1)

    def test_another_kind_of_file(self, tmp_path):
        path = tmp_path / "train.arrow"
        path.write_text("a line of text\n" * 17)
        complaint(path)

    @pytest.mark.parametrize(
        ("metadata", "changes"),
        [
            ({"version": "1", "origin": "{}"}, {}),
            ({"version": "3", "origin": "{}"}, {}),
            (None, {}),
            ({"version": "2", "origin": "{}"}, {"names": ("source", "labels")}),
            ({"version": "2", "origin": "{}"}, {"names": ("source",)}),
            ({"version": "2", "origin": "{}"}, {"kind": "int64"}),
            ({"version": "2", "origin": "{}"}, {"number": "int32"}),
            ({"version": "2"}, {}),
        ],
    )
    def test_another_version(self, tmp_path, metadata, changes):
        path = tmp_path / "train.arrow"
        write_arrow(path, metadata, **changes)
        assert "another version" in complaint(path)

    def test_what_this_version_looks_like(self, tmp_path):
        # Holds the cases above to what they say: with nothing changed, the same file is a store.
        path = tmp_path / "train.arrow"
        write_arrow(path, {"version": "2", "origin": "{}"})
        assert contents(Store(path)) == [([3], [3], 7)]


def test_sizes_are_of_both_sides_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.data.store._ROWS_PER_BLOCK", 2)
    pairs = [([4] * source, [5] * target, 0) for source, target in ((1, 2), (3, 5), (7, 11), (13, 17), (19, 23))]
    write_store(tmp_path / "store", pairs, {})
    store = Store(tmp_path / "store")
    assert len(store.blocks) == 3
    assert store.sizes(np.array([4, 0, 2, 3, 0])).tolist() == [42, 3, 18, 30, 3]
    assert store.sizes(np.zeros(0, np.int64)).tolist() == []
