import errno
import os

import pytest

from transduce.config import BadInputError
from transduce.workflows.run_directory import RunDirectory, check_folders, hold


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


def test_a_name_that_is_no_utf8_is_refused_before_anything_is_written(tmp_path):
    folder = tmp_path / os.fsdecode(b"r\xe9")
    with pytest.raises(BadInputError, match=r"the name is no UTF-8: give another --out"):
        check_folders(RunDirectory(folder))
    assert not folder.exists()
