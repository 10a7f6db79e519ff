import logging
import os

import pytest

from transduce.training.report import Journal


@pytest.fixture
def full(monkeypatch):
    """A disk that takes no more than so many bytes a call, none at all for 0."""
    call, room = os.write, [1000]

    def write(descriptor, data):
        if not room[0]:
            raise OSError(28, "No space left on device")
        return call(descriptor, data[: room[0]])

    monkeypatch.setattr("os.write", write)
    return room


def test_lines_wait_until_there_is_room(tmp_path, full, caplog):
    caplog.set_level(logging.WARNING)
    path = tmp_path / "lines"
    path.write_text("old\ngone\ncut")
    journal = Journal(path, lambda line: line == "old")
    journal.write("one")
    full[0] = 0
    journal.write("two")
    journal.write("three")
    assert path.read_text() == "old\none\n"
    assert caplog.messages == [f"{path}: cannot be written: No space left on device; its lines wait in memory"]
    full[0] = 3
    journal.write("four")
    journal.flush()
    journal.close()
    assert path.read_text() == "old\none\ntwo\nthree\nfour\n"
    assert len(caplog.messages) == 1


def test_what_never_found_room_is_counted(tmp_path, full, caplog):
    journal = Journal(tmp_path / "lines", bool)
    full[0] = 0
    for line in ("one", "two"):
        journal.write(line)
    journal.close()
    assert caplog.messages[-1] == f"{tmp_path / 'lines'}: 2 lines could not be written and are lost"


def test_a_torn_line_is_dropped_whatever_bytes_it_has(tmp_path):
    (tmp_path / "lines").write_bytes(b'{"step": 1}\n{"step": 2, "split": "\xff\xfe')
    Journal(tmp_path / "lines", lambda line: line == '{"step": 1}').close()
    assert (tmp_path / "lines").read_text() == '{"step": 1}\n'
