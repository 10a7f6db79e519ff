import errno
import os

import pytest

from transduce.config.disk import hold, replace_directory, write_whole


def test_replace_directory_moves_the_finished_one(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    replace_directory(tmp_path / "new", tmp_path / "old")
    assert [file.name for file in tmp_path.iterdir()] == ["old"]
    assert [file.name for file in (tmp_path / "old").iterdir()] == ["new"]


def test_a_file_is_replaced_when_its_successor_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    write_whole(path, "first")

    def lose_power(_):
        raise OSError("lost")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="lost"):
        patch.setattr("os.fsync", lose_power)
        write_whole(path, "second")
    assert path.read_text() == "first"
    write_whole(path, "second")
    assert [file.name for file in tmp_path.iterdir()] == ["figures.json"]
    assert path.read_text() == "second"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_folder_is_held_until_the_block_ends_whatever_ends_it(tmp_path):
    folder = tmp_path / "not there yet"

    def fail_within():
        with hold(folder):
            with pytest.raises(BlockingIOError), hold(folder):
                raise AssertionError("held twice")
            raise KeyError("within")

    for _ in range(2):
        with pytest.raises(KeyError, match="within"):
            fail_within()


def test_a_file_system_without_locks_is_no_error(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold(tmp_path), hold(tmp_path):
        pass
