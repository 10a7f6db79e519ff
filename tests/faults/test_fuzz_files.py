"""Damaged files of every kind: each ends in a clear error or a result; never in a crash, a hang or all the memory."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.command import run_program

HERE = Path(__file__).parent
PROGRAM = f"""
import os, runpy, sys
os.environ |= {{"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}}
sys.path.insert(0, {str(HERE)!r})
runpy.run_path({str(HERE / "families.py")!r}, run_name="__main__")
"""
SECONDS = 5  # for one case, on a machine that does other things too
KINDS = (
    *("model", "bpe", "wordpiece", "words", "characters", "unigram", "sentencepiece-bpe"),
    *("store", "run", "corpora"),
)


def fuzz(kind, folder, cases, seed):
    """What came of each case, in a process that may die."""
    arguments = (kind, str(folder), str(cases), str(seed))
    run = run_program(PROGRAM, *arguments, seconds=60 + SECONDS * cases)
    reports = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
    assert run.returncode == 0, f"{kind}: {reports[-1:]} ended the process with {run.returncode}: {run.stderr[-2000:]}"
    return {case: outcome for case, outcome in reports if outcome != "begins"}


def check(kind, folder, cases, seed):
    outcomes = fuzz(kind, folder, cases, seed)
    wrong = [outcome for outcome in outcomes.values() if outcome not in ("refused", "read")]
    assert not wrong, f"{len(wrong)} cases of {kind}, the first of them: {wrong[0]}"
    count = Counter(outcomes.values())
    assert count.total() == cases
    assert count["refused"] > cases / 10


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_or_read(kind, tmp_path):
    check(kind, tmp_path, 24, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_damaged_files(kind, tmp_path):
    check(kind, tmp_path, 1500, 10_000)
