import errno
import os

import pytest

from transduce.workflows.run_directory import hold


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
