"""How positions hold on sequences longer than those trained on: the copy task, and SCAN's split by length.

    python -m benchmarks.lengths [--scan DIR] [--steps N] [--seeds N] [--out DIR]

DIR of --scan holds tasks_train_length.txt.gz and tasks_test_length.txt.gz; without it only the copy task is run. Each
training stays in --out and is not repeated: what was interrupted goes on, and more seeds add to those there are. Writes
tables to benchmarks/results/lengths.md (the shares of exact outputs into docs/lengths.md too) and curves to
docs/figures/lengths.png. A training takes a few minutes on one core.
"""

import argparse
import itertools
import json
import logging
import random
import string
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.curves import draw
from benchmarks.page import circumstances, insert
from benchmarks.tally import MEASURES, Found, Tally, count, panels, tabulate
from transduce import load
from transduce.config import Corpus, DataConfig, GenerationConfig, RunConfig, TokenizerConfig, TrainConfig, preset
from transduce.data import read_corpus
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

Pair = tuple[str, str]

# More than any sequence here has: of learned positions, those past the longest training pair stay as they were drawn.
POSITIONS_KNOWN = 128
POSITIONS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"positions": "sinusoidal"},
    "sinusoidal, beside": {"positions": "sinusoidal", "position_combination": "concatenate"},
    "learned": {"positions": "learned", "max_positions": POSITIONS_KNOWN},
    "relative": {"positions": "relative"},
    "none": {"positions": "none"},
}
RESULT = Path(__file__).parent / "results" / "lengths.md"


@dataclass(frozen=True, eq=False)
class Task:
    """Pairs to learn from, pairs to be asked, and the model that learns them; lengths are of targets, in symbols."""

    name: str
    train: list[Pair]
    test: list[Pair]
    trained: int  # the longest target of train
    ranges: tuple[tuple[int, int], ...]
    positions: tuple[str, ...]
    dropout: float
    steps: int
    seeds: int


def copy_task() -> Task:
    """Sequences of letters; the target is the source. Every length is as frequent as any other."""
    chance = random.Random(1)

    def pairs(lengths: Iterable[int]) -> list[Pair]:
        texts = [" ".join(chance.choices(string.ascii_lowercase, k=length)) for length in lengths]
        return [(text, text) for text in texts]

    train = pairs(chance.randint(1, 20) for _ in range(30_000))
    test = pairs(length for length in range(1, 41) for _ in range(100))
    ranges = ((1, 10), (11, 20), (21, 22), (23, 25), (26, 30), (31, 40))
    return Task("copy", train, test, 20, ranges, tuple(POSITIONS), dropout=0.0, steps=1500, seeds=2)


def scan_task(folder: Path) -> Task:
    """SCAN, split "length"; 500 lines of its training file are kept back, to ask for known lengths too."""
    pattern = "IN: (?P<source>.*) OUT: (?P<target>.*)"
    known, longer = (
        list(read_corpus(Corpus(pairs=f"tasks_{part}_length.txt.gz", pattern=pattern), folder))
        for part in ("train", "test")
    )
    random.Random(1).shuffle(known)
    ranges = ((1, 10), (11, 22), (24, 25), (26, 28), (30, 33), (36, 48))
    positions = ("sinusoidal", "learned", "relative")
    return Task("SCAN", known[500:], known[:500] + longer, 22, ranges, positions, dropout=0.1, steps=3000, seeds=1)


def run_config(task: Task, folder: Path, positions: str, seed: int) -> RunConfig:
    """A run as a run file would describe it; its dev set is a part of the test set of known lengths."""
    own = {"kind": "words"}
    model = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "norm": "pre", "label_smoothing": 0.0}
    return RunConfig(
        data=DataConfig(
            root=str(folder),
            train=(Corpus(pairs="train.tsv"),),
            dev=Corpus(pairs="dev.tsv"),
            max_length=POSITIONS_KNOWN,
        ),
        tokenizer=TokenizerConfig.model_validate({"source": own, "target": own}),
        model=preset("tiny", model | {"dropout": task.dropout} | POSITIONS[positions]),
        train=TrainConfig(
            batch_tokens=1024,
            max_steps=task.steps,
            seed=seed,
            precision="bfloat16",
            learning_rate_factor=0.5,
            warmup_steps=max(1, task.steps // 8),
            cooldown_steps=task.steps // 4,
            validate_every=task.steps,  # nothing is chosen on the way: the model is the last step's
            checkpoint_every=500,
        ),
        generation=GenerationConfig(beam_size=1, length_penalty_kind="none"),
    )


def write_pairs(task: Task, folder: Path) -> None:
    """The task's files, the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    dev = [pair for pair in task.test if length(pair[1]) <= task.trained][::5]
    for name, pairs in {"train": task.train, "dev": dev}.items():
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{name}.tsv").write_text(lines, encoding="utf-8")


def length(text: str) -> int:
    return len(text.split())


def result(task: Task, out: Path, positions: str, seed: int) -> list[Tally]:
    """Train and ask, or only read what an earlier call found."""
    root = out / f"{positions.replace(', ', '-')}-{seed}"
    path = root / "lengths.json"
    if not path.exists():
        logging.getLogger("benchmarks").info(f"{task.name}, {positions}, seed {seed}")
        run = RunDirectory(root)
        train_run(run_config(task, out, positions, seed), run, resume=run.has_checkpoints, own_process=True)
        outputs = load(root, "float32").translate([source for source, _ in task.test], first_number=None)
        tallies = count([target for _, target in task.test], [output.text for output in outputs])
        path.write_text(json.dumps([asdict(tally) for tally in tallies]), encoding="utf-8")
    return [Tally(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]


def study(task: Task, out: Path) -> Found:
    """The tallies of every kind of positions and every seed."""
    write_pairs(task, out)
    found: Found = {positions: [] for positions in task.positions}
    for seed in range(1, task.seeds + 1):
        for positions, seeds in found.items():
            seeds.append(result(task, out, positions, seed))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scan", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs") / "lengths")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    given = {name: value for name in ("steps", "seeds") if (value := getattr(arguments, name)) is not None}
    tasks = [replace(task, **given) for task in (copy_task(), *([scan_task(arguments.scan)] if arguments.scan else []))]
    found = {task: study(task, arguments.out / f"{task.name}-{task.steps}") for task in tasks}
    done = "; ".join(f"{task.name}: seeds 1 to {task.seeds}, {task.steps:,} steps" for task in tasks)
    about = f"Mean of the seeds, and in brackets the least and the most ({done}); {circumstances()}:"

    def tables(measure: str) -> list[str]:
        each = [tabulate(measure, task.name, found[task], task.ranges, task.trained) for task in tasks]
        return [line for lines in each for line in ["", *lines]]

    insert("lengths.md", "exact", [about, *tables("exact")])
    RESULT.parent.mkdir(exist_ok=True)
    lines = [about, *itertools.chain.from_iterable(map(tables, MEASURES))]
    RESULT.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    draw("lengths", [*zip(*(panels(task.name, found[task], task.trained) for task in tasks), strict=True)])


if __name__ == "__main__":
    main()
