import errno
import fcntl
import os
from pathlib import Path

import pytest

from transduce.config import BadInputError
from transduce.config.disk import SameFolder, keep_alone, new_directory, replace_directory, write_whole
from transduce.config.errors import explain


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
    assert [file.name for file in tmp_path.iterdir()] == ["figures.json"]
    write_whole(path, "second")
    assert [file.name for file in tmp_path.iterdir()] == ["figures.json"]
    assert path.read_text() == "second"


def test_a_file_keeps_its_rights_and_a_link_its_place(tmp_path):
    (tmp_path / "kept").mkdir()
    path, link = tmp_path / "kept" / "keys", tmp_path / "link"
    path.write_text("first")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "second")
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("second", 0o640)


def test_what_is_no_file_of_a_disk_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through it")
    assert os.read(reader, 100) == b"through it"
    os.close(reader)
    assert pipe.is_fifo()


def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path):
    with pytest.raises(BadInputError, match="is a folder"):
        write_whole(tmp_path, "text")
    path = tmp_path / "nothing" / "page.html"
    with pytest.raises(FileNotFoundError) as refused:
        write_whole(path, "text")
    assert refused.value.filename == str(path)
    assert [*tmp_path.iterdir()] == []


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_that_is_mounted_is_written_into(tmp_path, monkeypatch):
    """Nothing takes its name, as the system says for real where a container mounts a single file."""

    def replace(self, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self), None, str(target))

    path = tmp_path / "out.txt"
    path.write_text("older and longer")
    monkeypatch.setattr(Path, "replace", replace)
    write_whole(path, "new\n")
    assert path.read_text() == "new\n"
    assert [each.name for each in tmp_path.iterdir()] == ["out.txt"]


def test_a_full_disk_is_told_by_the_name_that_was_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_whole(path, "older")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space") as refused:
        patch.setattr("os.fsync", full_disk)
        write_whole(path, "text")
    assert str(explain(refused.value)) == f"{path}: No space left on device: make room on this disk"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.html", "older")]
    with pytest.raises(OSError, match="No space") as refused, new_directory(tmp_path / "out") as folder:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "inside"))
    assert refused.value.filename == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            FileNotFoundError(2, "No such file", "no-such/a"),
            2,
            f"no-such/a: No such file: make the folder {Path.cwd()}/",
        ),
        (PermissionError(13, "Permission denied", "a"), 2, "a: Permission denied: give this user the right to it, or"),
        (OSError(errno.ENOSPC, "full", "a"), 1, "a: full: make room on this disk"),
        (OSError("without a number"), 1, "without a number"),
    ],
)
def test_an_error_of_the_system_has_its_place_and_what_to_do(error, status, message):
    explained = explain(error)
    assert explained.status == status
    assert str(explained).startswith(message)


def test_what_a_network_s_file_system_cannot_lock_is_kept_from_nobody(tmp_path, monkeypatch):
    """NFS locks for writing only what is open for writing, and says EBADF of the rest (flock(2))."""

    def lock(descriptor, _):
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE:
            raise OSError(errno.EBADF, "Bad file descriptor")
        locked.append(descriptor)

    locked = []
    (tmp_path / "file").touch()
    monkeypatch.setattr(fcntl, "flock", lock)
    for path in (tmp_path / "file", tmp_path):
        with keep_alone(path):
            pass
    assert len(locked) == 1


def test_what_a_shell_has_opened_is_written_to(tmp_path):
    """Another file of that name would leave the shell's own behind."""
    with (tmp_path / "opened").open("w") as opened:
        write_whole(Path(f"/dev/fd/{opened.fileno()}"), "text")
        assert os.fstat(opened.fileno()).st_size == 4
    assert [file.name for file in tmp_path.iterdir()] == ["opened"]


def test_a_folder_that_was_deleted_is_no_longer_the_same(tmp_path):
    (tmp_path / "run").mkdir()
    same = SameFolder(tmp_path / "run")
    same.check()
    (tmp_path / "run").rename(tmp_path / "aside")  # so that its number is taken
    with pytest.raises(OSError, match="was deleted since"):
        same.check()
    (tmp_path / "run").mkdir()
    with pytest.raises(OSError, match="was deleted since"):
        same.check()


NEIGHBOURS = ["out.older", "out.unfinished", "out.unproven"]


def test_a_new_directory_touches_nothing_else(tmp_path):
    for name in NEIGHBOURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    with new_directory(tmp_path / "out") as folder:
        (folder / "file").write_text("whole")
        assert not (tmp_path / "out").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", *NEIGHBOURS]
    assert (tmp_path / "out" / "file").read_text() == "whole"
    assert all((tmp_path / name / "mine").read_text() == "mine" for name in NEIGHBOURS)


def test_a_new_directory_that_fails_is_gone(tmp_path):
    with pytest.raises(ZeroDivisionError), new_directory(tmp_path / "deep" / "out") as folder:
        (folder / "file").write_text("half")
        raise ZeroDivisionError
    assert [file.name for file in (tmp_path / "deep").iterdir()] == []


def test_what_has_come_to_stand_there_meanwhile_stays(tmp_path):
    """Two writers: the first to finish is whole, and the second is told."""
    with (
        pytest.raises(BadInputError, match="out: exists and is not empty"),
        new_directory(tmp_path / "out") as late,
    ):
        with new_directory(tmp_path / "out") as early:
            (early / "first").write_text("1")
            (late / "second").write_text("2")
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["first"]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["first"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_new_directory_at_a_link_is_where_it_leads(tmp_path):
    (tmp_path / "disk").mkdir()
    for name, target in (("empty", "disk/a"), ("dangling", "disk/b")):
        (tmp_path / name).symlink_to(tmp_path / target)
    (tmp_path / "disk" / "a").mkdir()
    for name in ("empty", "dangling"):
        with new_directory(tmp_path / name) as folder:
            (folder / "file").write_text(name)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / name / "file").read_text() == name
    assert sorted(file.name for file in (tmp_path / "disk").iterdir()) == ["a", "b"]


def test_the_current_folder_keeps_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match="is the current folder"), new_directory(Path()):
        pass
    assert [*tmp_path.iterdir()] == []
