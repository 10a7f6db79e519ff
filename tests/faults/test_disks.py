"""Disks that take no more while a training runs."""

import os
import shutil
import subprocess
import time

import pytest

from tests.command import run, start
from transduce.training import list_checkpoints

pytest_plugins = ["tiny_run"]


@pytest.fixture
def disk(tmp_path):
    """A folder that is a disk of its own, in memory, of 2 MB; and what mounts it otherwise."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        return subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)

    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    if error := mount("-t", "tmpfs", "-o", "size=2m", "tmpfs").stderr:
        pytest.skip(f"no disk can be mounted here: {error}")
    yield folder, mount
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def train(tiny_run_file):
    def command(root, steps, every=2):
        settings = {"max_steps": steps, "validate_every": 10**6, "checkpoint_every": every, "log_every": 1}
        given = [f"--set=train.{key}={value}" for key, value in settings.items()]
        return ["train", str(tiny_run_file), "--out", str(root), "--resume", *given]

    return command


def steps_of(root):
    return [step for step, _ in list_checkpoints(root / "checkpoints")]


def wait_for(said, text, process):
    for _ in range(6000):
        if said.exists() and text in said.read_text():
            return
        assert process.exitcode is None, said.read_text()
        time.sleep(0.01)
    raise AssertionError(said.read_text())


def test_a_full_disk_is_named_and_the_training_goes_on_until_there_is_room(disk, train, tmp_path):
    root, said = disk[0] / "run", tmp_path / "said"
    assert run(train(root, 2), said) == 0, said.read_text()
    whole = {path: path.read_bytes() for path in (root / "checkpoints" / "step-2").iterdir()}
    filler = disk[0] / "filler"
    free = shutil.disk_usage(disk[0]).free
    filler.write_bytes(bytes(free - 100_000))  # a checkpoint takes 400 kB
    process = start(train(root, 10**6, every=3), said)
    wait_for(said, "step-3.unfinished", process)
    wait_for(said, "step 5 ", process)  # it goes on
    assert steps_of(root) == [2]
    assert {path: path.read_bytes() for path in whole} == whole
    filler.unlink()
    for _ in range(6000):
        if steps_of(root)[-1] > 2:
            break
        time.sleep(0.01)
    process.kill()
    process.join()
    message = next(line for line in said.read_text().splitlines() if "could not be written" in line)
    assert message.startswith(f"warning: {root}/checkpoints/step-3.unfinished")
    assert "No space left on device; step-2 is whole and stays" in message
    assert message.endswith("make room on this disk")
    assert steps_of(root)[1] > 3


def test_where_the_last_checkpoint_finds_no_room_the_training_fails(disk, train, tmp_path):
    root, said = disk[0] / "run", tmp_path / "said"
    assert run(train(root, 2), said) == 0, said.read_text()
    filler = disk[0] / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk[0]).free - 100_000))
    assert run(train(root, 4), said) == 1
    last = said.read_text().splitlines()[-1]
    assert last.startswith("error: ")
    assert "No space left on device; step-2 is whole and stays" in last
    assert last.endswith("make room on this disk, then --resume trains them again")
    assert steps_of(root) == [2]
    filler.unlink()
    assert run(train(root, 4), said) == 0
    assert steps_of(root) == [2, 4]


def test_a_disk_that_becomes_read_only_is_named(disk, train, tmp_path):
    folder, mount = disk
    root, said = tmp_path / "run", tmp_path / "said"
    root.mkdir()
    (root / "checkpoints").symlink_to(folder)  # on a disk of their own, which nothing else holds open
    assert run(train(root, 2), said) == 0, said.read_text()
    assert mount("-o", "remount,ro").returncode == 0
    assert run(train(root, 5), said) == 1
    lines = [line for line in said.read_text().splitlines() if "could not be written" in line]
    assert [line.partition(":")[0] for line in lines] == ["warning", "warning", "error"]
    assert "Read-only file system; step-2 is whole and stays" in lines[0]
    assert "step 5 " in said.read_text()  # it went on
    assert mount("-o", "remount,rw").returncode == 0
    assert steps_of(root) == [2]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(train, tmp_path):
    root, said = tmp_path / "run", tmp_path / "said"
    assert run(train(root, 2), said) == 0, said.read_text()
    (root / "checkpoints").chmod(0o555)
    assert run(train(root, 5), said) == 1
    (root / "checkpoints").chmod(0o755)
    assert "Permission denied; step-2 is whole and stays" in said.read_text()
    assert "let this user write there" in said.read_text()
    assert steps_of(root) == [2]
