"""A training that is killed, at any moment, and goes on, ends where one that nothing happens to does."""

import random
import shutil
import time
from functools import partial

import pytest

from tests.command import run, start
from tests.faults.faults import POINTS
from tests.faults.small import command, copy_prepared, ends_alike
from transduce.training import list_checkpoints

pytest_plugins = ["tiny_run"]


@pytest.fixture(scope="module")
def train(tiny_run_file):
    return partial(command, tiny_run_file)


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """A training that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(train(folder / "run"), folder / "said") == 0, (folder / "said").read_text()
    return folder / "run"


@pytest.fixture
def root(whole, tmp_path):
    return copy_prepared(whole, tmp_path / "run")


def die_and_go_on(train, root, whole, point, count):
    said = root.with_suffix(".said")
    status = run(train(root), said, root, point, count)
    assert status == -9, f"the training has no event {count} of {point}: {said.read_text()}"
    checkpoints = list_checkpoints(root / "checkpoints")
    assert run(train(root), said) == 0, said.read_text()
    assert "damaged" not in said.read_text()
    assert ends_alike(root, whole)
    return checkpoints


@pytest.mark.parametrize(
    ("point", "count"),
    [
        *zip(POINTS[::2], (5, 3, 4), strict=True),
        *(pytest.param(*both, marks=pytest.mark.slow) for both in zip(POINTS[1::2], (23, 9), strict=True)),
    ],
)
def test_a_fault_inside_a_checkpoint_loses_at_most_an_interval(train, root, whole, point, count):
    assert die_and_go_on(train, root, whole, point, count)  # by then there is one


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("count", [1, 2, 6, 7, 8, 10, 12])
def test_a_fault_at_any_of_many_moments(train, root, whole, point, count):
    if point == "manifest" and count > 7:
        pytest.skip("seven checkpoints are written")
    die_and_go_on(train, root, whole, point, count)


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments(train, root, whole, kills):
    chance, said = random.Random(kills), root.with_suffix(".said")
    begun = time.monotonic()
    assert run(train(root), said) == 0
    duration = time.monotonic() - begun
    while True:
        shutil.rmtree(root / "checkpoints")
        ended = False
        while kills and not ended:
            process = start(train(root), said)
            process.join(chance.uniform(0.2, 1) * duration)
            ended = process.exitcode == 0
            if not ended:
                process.kill()
                process.join()
                kills -= 1
        if not ended:
            assert run(train(root), said) == 0, said.read_text()
        assert "damaged" not in said.read_text()
        assert ends_alike(root, whole)
        if not kills:
            return
