"""A model that was used goes on in the child of a fork, where none of the parent's threads are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")


@pytest.mark.parametrize("how", [pytest.param("fork", marks=pytest.mark.slow), "multiprocessing"])
def test_the_child_of_a_fork_translates_as_its_parent_does(how):
    program = Path(__file__).with_name("forking.py")
    environment = os.environ | {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"}
    ended = subprocess.run(
        [sys.executable, program, how], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
