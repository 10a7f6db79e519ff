"""What a finished training is worth on dev, kept beside it."""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from transduce.bundle import load_bundle, load_weights
from transduce.config import BadInputError, read_run
from transduce.config.disk import write_whole
from transduce.config.generation import MAX_TOKENS
from transduce.evaluation import corpus_score
from transduce.inference import Translator
from transduce.inference.engine import choose_device
from transduce.training import MODEL, list_checkpoints, read_progress
from transduce.version import __version__
from transduce.workflows.cost import measure_rate, sustained_cost
from transduce.workflows.evaluate import Measures, evaluate, translate_all
from transduce.workflows.examples import Examples, full_pairs, group_by_length, read_corpus_examples
from transduce.workflows.flops import count_training
from transduce.workflows.run_directory import RunDirectory

_FILE: Final = "measured.json"
_JOBS: Final = "jobs.txt"
_FIRST: Final = 8
_CPU: Final = Path("/proc/cpuinfo")


class LengthScore(BaseModel):
    """BLEU of the sentences of dev whose sources have ``first`` to ``last`` words (None: however many)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int
    last: int | None
    sentences: int
    bleu: float


class Measurement(BaseModel):
    """The model after a training's last step, on dev. Perplexity is per token, the end symbol counted.

    FLOPs are of the training: ``flops_counted`` are the matrix products of its pairs, and ``flops_by_time`` what the
    paper's method says, the seconds of training times what the device sustained when this was measured. Decoding is
    by beam search as the BLEU is, a second of translating the whole of dev, end symbols counted in tokens. What older
    files have not is None. Where ``jobs`` trainings ran at a time, everything by the clock is slower than alone.
    """

    # A training that diverged has a perplexity of NaN, and a row in the table all the same.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    seed: int
    steps: int
    target_tokens: int  # that it was trained on
    seconds: float  # of training
    parameters: int
    perplexity: float
    bleu: float
    signature: str  # of the BLEU
    precision: str  # that it was trained in
    decoding_precision: str | None = None  # that dev was translated and scored in
    machine: str
    versions: dict[str, str]
    flops_counted: float | None = None
    flops_by_time: float | None = None
    decoded_sentences: float | None = None  # a second
    decoded_tokens: float | None = None  # a second
    by_length: tuple[LengthScore, ...] = ()
    jobs: int = 1  # at their most, in any session of the training


def measure(run: RunDirectory, device: torch.device | None = None) -> Measurement:
    """Translate dev with the weights of the newest checkpoint, by beam search, and keep the scores in the run.

    As in Table 3 the weights are those of the last step: neither the best on dev nor a mean. Without a ``device`` it
    is the GPU where there is one.
    """
    device = choose_device(device)
    config = read_run(run.config)
    _, newest = list_checkpoints(run.checkpoints)[-1]
    bundle = load_bundle(run.root)
    load_weights(bundle.model, newest / MODEL)
    examples = full_pairs(read_corpus_examples(config.data.dev, config.data.folder))
    # What training takes of dev is measured, however long: nobody could take it out of the table's text any more.
    generation = bundle.generation.model_copy(update={"max_source_length": MAX_TOKENS})
    translator = Translator(replace(bundle, generation=generation), config.train.precision, device)
    [perplexity] = evaluate(translator, examples, Measures(["perplexity"]))
    outputs, seconds = _translate(translator, examples)
    bleu = corpus_score("bleu", outputs, examples.references)
    progress = read_progress(newest)
    precision = progress.fixed["train.precision"]
    rate = measure_rate(getattr(torch, precision), device)
    measured = Measurement(
        seed=config.train.seed,
        steps=progress.step,
        target_tokens=progress.target_tokens,
        seconds=round(progress.seconds, 1),
        parameters=sum(weight.numel() for weight in bundle.model.parameters()),
        perplexity=perplexity.value,
        bleu=bleu.value,
        signature=bleu.signature,
        precision=precision,
        decoding_precision=translator.precision,
        machine=_name_machine(device),
        versions={"transduce": __version__, "python": platform.python_version(), "torch": torch.__version__},
        flops_counted=float(count_training(bundle.model.config, progress.work)),
        flops_by_time=sustained_cost(progress.seconds, 1, rate),
        decoded_sentences=len(outputs) / seconds,
        decoded_tokens=translator.count_tokens(outputs) / seconds,
        by_length=tuple(_score_by_length(examples, outputs)),
        jobs=read_jobs(run),
    )
    write_whole(run.root / _FILE, measured.model_dump_json(indent=2) + "\n")
    return measured


def read_measurements(folder: Path, name: str) -> list[Measurement]:
    """What the finished trainings ``NAME-seedN`` of a folder were measured to be, by seed.

    Raises:
        BadInputError: A file of them is damaged.
    """
    # What is called otherwise, such as a copy that somebody keeps, is no further training.
    runs = (run for run in folder.glob(f"{name}-seed*") if run.name.removeprefix(f"{name}-seed").isdecimal())
    found = (read_measurement(RunDirectory(run)) for run in runs if is_measured(RunDirectory(run)))
    return sorted(found, key=lambda measured: measured.seed)


def read_measurement(run: RunDirectory) -> Measurement:
    """What a finished training was measured to be.

    Raises:
        BadInputError: Its file is damaged.
    """
    return _read(run.root / _FILE)


def is_measured(run: RunDirectory) -> bool:
    """Whether the training is finished and its measurement kept."""
    return (run.root / _FILE).is_file()


def note_jobs(run: RunDirectory, jobs: int) -> None:
    """Keep in the run that so many trainings run at a time in this session of it, where no earlier one had more."""
    if jobs > read_jobs(run):
        write_whole(run.root / _JOBS, f"{jobs}\n")


def read_jobs(run: RunDirectory) -> int:
    """How many trainings ran at a time, at their most, in any session of this one; 1 where it has not begun.

    Raises:
        BadInputError: The file that says it is damaged.
    """
    path = run.root / _JOBS
    if not path.is_file():
        return 1
    try:
        return int(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInputError(
            f"{path}: damaged: write into it how many trainings ran at a time (--jobs), or delete it where it was one"
        ) from error


def describe_trainings(runs: Sequence[Measurement]) -> str:
    """For the page of a table: by which BLEU they are scored, their minutes, where they ran, and how many at a time."""
    machines, signatures = ("; ".join(sorted({getattr(run, key) for run in runs})) for key in ("machine", "signature"))
    minutes, jobs = sum(run.seconds for run in runs) / 60, max(run.jobs for run in runs)
    text = f"BLEU `{signatures}`. {len(runs)} trainings, {minutes:,.0f} minutes of training in all, on {machines}."
    if jobs == 1:
        return text
    return f"{text} Up to {jobs} of them ran at a time (`--jobs`): what a clock measured then is slower than alone."


def _translate(translator: Translator, examples: Examples) -> tuple[list[str], float]:
    """The outputs, and the seconds that they took, once a few sentences have got everything ready."""
    translator.translate(examples.sources[:_FIRST], first_number=None, errors="return")
    start = time.perf_counter()
    outputs = translate_all(translator, examples)
    return outputs, time.perf_counter() - start


def _score_by_length(examples: Examples, outputs: Sequence[str]) -> Iterator[LengthScore]:
    """By words of the source, where there is a sentence of such a length."""
    for group in group_by_length(examples):
        score = corpus_score("bleu", [outputs[row] for row in group.rows], examples.select(group.rows).references)
        yield LengthScore(first=group.first, last=group.last, sentences=len(group.rows), bleu=score.value)


def _read(path: Path) -> Measurement:
    try:
        return Measurement.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BadInputError(f"{path}: damaged ({error.errors()[0]['msg']}): delete it to measure again") from error


def _name_machine(device: torch.device) -> str:
    """Processor or graphics card, and how many threads compute."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    lines = _CPU.read_text(encoding="utf-8").splitlines() if _CPU.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} threads of {os.cpu_count()}"
