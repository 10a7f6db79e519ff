"""What this revision does differently from an earlier one: losses, old checkpoints, outputs of old models, and speed.

    git worktree add ../before REVISION && make -C ../before install
    python -m benchmarks.revisions ../before --data DIR [--processes N] [--rounds N] [--work DIR]

DIR holds the folders ``multi30k`` and ``scan``. Each revision runs with its own interpreter, in processes of its own:

- losses: three recipes, 50 steps each; every step's loss and the weights after the last;
- checkpoints: what the earlier revision left at step 25, taken to step 50 by this one;
- outputs: the earlier revision's models, in every number format, with beam search, greedy search, n best, sampling and
  forced scoring;
- speed: tokens of training and sentences of decoding for a second of one thread's processor time, by turns. Processes
  of one revision differ by more than two revisions do (where their memory comes to lie), so there are several of each;
  the C library is told to keep what is freed, as in training: what it gives back and takes again changes with chance.

Writes benchmarks/results/revisions.md and its part of docs/notebook/revisions.md, and ends with status 1 where anything
but the speed differs, beyond the rounding of a score. Some twenty minutes on two cores; with --work, what is trained
already stays.
"""

import argparse
import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.page import circumstances, insert, table

HERE: Final = Path(__file__).parents[1]
RESULT: Final = HERE / "benchmarks" / "results" / "revisions.md"
WORKER: Final = HERE / "benchmarks" / "revision_worker.py"
# The folder of the data that each recipe reads.
RECIPES: Final = {"multi30k": "multi30k", "multi30k-base": "multi30k", "scan-simple": "scan"}
STEPS: Final = 50
HALF: Final = STEPS // 2
ROUNDING: Final = 1e-5  # nats by which a score may differ: sums of float32 in another order
# How processes are started whose speed is measured.
STEADY: Final = {
    "OMP_NUM_THREADS": "1",
    **{f"MALLOC_{which}_THRESHOLD_": str(10**9) for which in ("TRIM", "MMAP")},
}


@dataclass(frozen=True)
class Side:
    """A revision: its name in the tables and its folder."""

    name: str
    folder: Path

    def command(self, *words: str) -> list[str]:
        """Of its own interpreter; ``-P`` keeps the scripts beside the worker out of its way."""
        own = self.folder / ".venv" / "bin" / "python"
        return [str(own if own.exists() else sys.executable), "-P", *words]

    def environment(self) -> dict[str, str]:
        """With its own sources first."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (self.folder / "src", self.folder)))}


@dataclass(frozen=True)
class Run:
    """What a training wrote: the loss of each step, and the sha256 of the last weights."""

    losses: tuple[float, ...]
    weights: str


def train(side: Side, recipe: str, data: Path, out: Path, *options: str) -> Run:
    """The first steps of a recipe (the earlier revision's own: what a run file says is part of the comparison)."""
    settings = {
        "data.root": data / RECIPES[recipe],
        "train.max_steps": STEPS,
        "train.log_every": 1,
        "train.validate_every": STEPS,
        "train.checkpoint_every": HALF,
        "train.cooldown_steps": 0,
        "train.warmup_steps": STEPS,
    }
    changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = ("-m", "transduce", "train", f"recipes/{recipe}.toml", "--out", str(out), "-q", *changes, *options)
    if not (out / "checkpoints" / f"step-{STEPS}").exists():
        done = side.command(*words)
        subprocess.run(done, check=True, cwd=side.folder, env=side.environment(), stdout=subprocess.DEVNULL)
    return read_run(out)


def read_run(out: Path) -> Run:
    """A run directory's figures."""
    written = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [row for row in written if row["split"] == "train"]
    weights = (out / "checkpoints" / f"step-{STEPS}" / "model.safetensors").read_bytes()
    return Run(tuple(row["loss"] for row in steps), hashlib.sha256(weights).hexdigest())


def go_on(side: Side, recipe: str, data: Path, old: Path, out: Path) -> Run:
    """What a side makes of the first half of an old run."""
    if not out.exists():
        shutil.copytree(old, out)
        shutil.rmtree(out / "checkpoints" / f"step-{STEPS}")
    return train(side, recipe, data, out, "--resume")


# The outputs of a text, and their scores and log-probabilities.
Written = tuple[list[str], list[float]]


class Worker:
    """A process of one side that has loaded models and does what it is asked."""

    def __init__(self, side: Side, models: list[Path], data: Path, environment: Mapping[str, str] = {}) -> None:
        words, pipe = side.command(str(WORKER), str(data), *map(str, models)), subprocess.PIPE
        own = {**side.environment(), **environment}
        self._process = subprocess.Popen(words, env=own, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def outputs(self) -> dict[str, list[Written]]:
        """All outputs of all models, by what they were asked for."""
        answer: dict[str, list[Written]] = json.loads(self._ask("outputs"))
        return answer

    def cases(self) -> list[str]:
        """What can be timed."""
        answer: list[str] = json.loads(self._ask("cases"))
        return answer

    def time(self, case: str) -> float:
        """Sentences or tokens a second, measured once."""
        return float(self._ask("time", case))

    def _ask(self, *question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that was asked {question} ended: its error stands above")
        return answer


def differing(one: Sequence[object], other: Sequence[object]) -> int:
    """In how many places two lists differ, those counted that only one of them has."""
    return sum(a != b for a, b in zip(one, other, strict=False)) + abs(len(one) - len(other))


@dataclass(frozen=True)
class Part:
    """A table of the page, and whether it shows a difference that must not be."""

    lines: list[str]
    differs: bool = False


def compare_losses(sides: list[Side], data: Path, work: Path) -> Part:
    """The first steps of every recipe, which leave the runs in the folder, and the second half of the old ones."""
    rows, differs = [], False
    for recipe in RECIPES:
        old, new = (train(side, recipe, data, work / side.name / recipe) for side in sides)
        on = [
            go_on(side, recipe, data, work / sides[0].name / recipe, work / f"{side.name}-on" / recipe)
            for side in sides
        ]
        found = [
            differing(old.losses, new.losses),
            int(old.weights != new.weights),
            int(on[0].weights != on[1].weights),
        ]
        rows.append([recipe, f"{new.losses[-1]:.6f}", *map(str, found)])
        differs |= any(found)
    head = [
        "recipe",
        f"loss at step {STEPS}",
        "losses that differ",
        "weights that differ",
        "going on from the old step 25",
    ]
    return Part(table(head, rows), differs)


def compare_outputs(workers: list[Worker]) -> Part:
    """All outputs of the models that the workers have."""
    old, new = (worker.outputs() for worker in workers)
    rows, differs = [], False
    for case, before in old.items():
        texts = differing([each for each, _ in before], [each for each, _ in new[case]])
        scores = largest_difference([each for _, each in before], [each for _, each in new[case]])
        rows.append([case, str(len(before)), str(texts), f"{scores:.1g}"])
        differs |= bool(texts) or not scores <= ROUNDING
    return Part(table(["outputs", "sources", "whose outputs differ", "largest difference of a score"], rows), differs)


def largest_difference(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Of numbers in the same places; infinite where there are not as many."""
    if [*map(len, one)] != [*map(len, other)]:
        return math.inf
    return max(
        (abs(a - b) for first, second in zip(one, other, strict=True) for a, b in zip(first, second, strict=True))
    )


def compare_speed(sides: list[Side], models: list[Path], data: Path, processes: int, rounds: int) -> Part:
    """So many processes of either side, and in each pair of them so many rounds; who is first changes."""
    found: dict[str, list[list[float]]] = {}
    for _ in range(processes):
        with ExitStack() as stack:
            pair = [stack.enter_context(Worker(side, models, data, STEADY)) for side in sides]
            cases, _ = (worker.cases() for worker in pair)
            for case in cases:
                for worker in pair:
                    worker.time(case)
                for round_ in range(rounds):
                    speeds = {side: pair[side].time(case) for side in ((0, 1) if round_ % 2 else (1, 0))}
                    found.setdefault(case, []).append([speeds[0], speeds[1]])
    head = ["a second", *(side.name for side in sides), "best / best", "ratio, median", "quartiles", "rounds"]
    return Part(table(head, [speed_row(case, speeds) for case, speeds in found.items()]))


def speed_row(case: str, speeds: list[list[float]]) -> list[str]:
    """Both sides' best, and what they are to each other in the rounds: the median, and its quartiles."""
    best = [max(side) for side in zip(*speeds, strict=True)]
    first, middle, third = statistics.quantiles([new / old for old, new in speeds], n=4)
    shown = [f"{best[1] / best[0]:.3f}", f"{middle:.3f}", f"{first:.2f} to {third:.2f}", str(len(speeds))]
    return [case, *(f"{each:,.1f}" for each in best), *shown]


def main() -> None:
    parser = argparse.ArgumentParser(description="What this revision does differently from an earlier one.")
    parser.add_argument("before", type=Path, help="a checkout of the earlier revision, installed")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=5, help="of either side for the speed; 0: leave that out")
    parser.add_argument("--rounds", type=int, default=10, help="of the speed, in every pair of processes")
    parser.add_argument(
        "--work",
        type=Path,
        help="where the runs go and stay; left out: a temporary folder",
    )
    given = parser.parse_args()
    sides, data = [Side("before", given.before.resolve()), Side("this", HERE)], given.data.resolve()
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        work = Path(temporary) if given.work is None else given.work.resolve()
        parts = [compare_losses(sides, data, work)]
        models = [work / sides[0].name / recipe for recipe in RECIPES]
        parts.append(compare_outputs([stack.enter_context(Worker(side, models, data)) for side in sides]))
        if given.processes:
            parts.append(compare_speed(sides, models, data, given.processes, given.rounds))
    lines = [circumstances(), *(line for part in parts for line in ["", *part.lines])]
    insert("notebook/revisions.md", "revisions", lines)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if any(part.differs for part in parts):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
