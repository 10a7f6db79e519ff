"""What will go wrong with a run, before it does; and how long it will take."""

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.config import (
    BadInputError,
    ModelConfig,
    RunConfig,
    TrainConfig,
    TransformerConfig,
    with_vocabularies,
)
from transduce.data import corpus_paths, plan_epoch
from transduce.kernels import Heads, RaggedLayout, has_native, ragged_way, resolve_precision
from transduce.models import build_without_storage
from transduce.training import Pace, list_checkpoints
from transduce.workflows.changes import refuse, refused_changes
from transduce.workflows.corpus_check import examine_corpora
from transduce.workflows.findings import Finding, find_schedule, judge_epochs
from transduce.workflows.initialize import check_init
from transduce.workflows.prepare import Prepared, load_prepared
from transduce.workflows.run_directory import RunDirectory, check_room
from transduce.workflows.trial import (
    OutOfMemoryError,
    Trial,
    bfloat16_gain,
    full_batch,
    try_batch_sizes,
    try_training,
    worth_asking_for,
)
from transduce.workflows.vocabulary import asked_sizes

_TYPICAL: Final = 25  # tokens of a sentence, where nothing is known of the corpus
_GIB: Final = 2**30
_WORTH: Final = 1.25  # times as fast a narrower format has to be, to be worth its rounding


def examine(
    config: RunConfig, run: RunDirectory, init: Path | None = None, *, carry_vocabulary: bool = False
) -> Iterator[Finding]:
    """Look at the installation, the machine, the corpora and the settings, and take a few steps of the training.

    Nothing is written. A preparation that is there already is used; without one, lengths are assumed. ``init`` is a
    finished model that the training would begin with; with ``carry_vocabulary``, in another vocabulary.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    prepared = load_prepared(run)
    model = with_vocabularies(config.model, _sizes(config, prepared))
    yield from _installation()
    yield from examine_corpora(config, prepared)
    yield from _settings(config, prepared)
    if init is not None and not list_checkpoints(run.checkpoints):
        yield _beginning(config, init, prepared, carry_vocabulary=carry_vocabulary)
    yield from _run_directory(config, run, model, prepared)
    yield from _training(config, model, prepared, device)


def _installation() -> Iterator[Finding]:
    yield Finding("ok", f"Python {platform.python_version()}, torch {torch.__version__}")
    if torch.cuda.is_available():
        yield Finding("ok", f"CUDA device: {torch.cuda.get_device_name()}")
    elif has_native(torch.zeros(1)):
        yield Finding("ok", f"C++ kernels for {torch.backends.cpu.get_cpu_capability()}")
    else:
        yield Finding(
            "warning",
            "no C++ kernels: PyTorch's operations do their work, more slowly. They are built at installation, on Linux "
            "with an x86-64 processor: install a C++ compiler (g++), then transduce once more",
        )


def _settings(config: RunConfig, prepared: Prepared | None) -> Iterator[Finding]:
    """What is allowed, and hardly meant."""
    train = config.train
    yield from (Finding("warning", text) for text in find_schedule(train))
    if train.validate_every > train.max_steps:
        yield Finding(
            "warning",
            f"train.validate_every = {train.validate_every:,} is beyond train.max_steps: dev is looked at once, at the "
            f"end, and the best model is the last",
        )
    if (prepared is None or config.data.streaming) and config.data.max_length > train.batch_tokens:
        yield Finding(
            "warning",
            f"train.batch_tokens = {train.batch_tokens:,} is less than data.max_length = {config.data.max_length:,}: a "
            f"training ends at a pair that no batch holds; lower data.max_length, or raise train.batch_tokens",
        )
    if prepared is None or prepared.train is None:
        return
    weights = [corpus.weight for corpus in config.data.train]
    try:
        plan = plan_epoch(prepared.train, train.batch_tokens, train.seed, 0, weights)
    except BadInputError as error:
        yield Finding("problem", str(error))
        return
    steps = plan.count_batches() / train.accumulate
    yield judge_epochs(train, steps, f"{len(prepared.train):,} pairs are prepared")


def _beginning(config: RunConfig, init: Path, prepared: Prepared | None, *, carry_vocabulary: bool) -> Finding:
    """Whether a finished model's weights can be what a training begins with."""
    tokenizers = None if prepared is None else prepared.tokenizers
    try:
        check_init(config, init, tokenizers, carry_vocabulary=carry_vocabulary)
    except BadInputError as error:
        return Finding("problem", str(error))
    if tokenizers is None and config.tokenizer.kind != "existing" and not carry_vocabulary:
        return Finding(
            "warning",
            f"{init}: the run file has a tokenizer of its own (tokenizer.kind = {config.tokenizer.kind!r}), and a "
            f"training that prepares another vocabulary than the model's ends there: leave [tokenizer] out to take the "
            f"model's, or give --carry-vocabulary",
        )
    return Finding("ok", f"{init}: a model that the training can begin with (train --init)")


def _store_size(config: RunConfig) -> int:
    """Bytes, by experience: four for a token, which has about four characters; compressed text grows to four times."""
    if config.data.streaming:
        return 0
    paths = [path for corpus in config.data.train for path in corpus_paths(corpus, config.data.folder)]
    return sum(
        path.stat().st_size * (4 if path.suffix in (".gz", ".zst", ".parquet") else 1)
        for path in paths
        if path.is_file()
    )


def _run_directory(
    config: RunConfig, run: RunDirectory, model: ModelConfig, prepared: Prepared | None
) -> Iterator[Finding]:
    """Whether it is free, can be written, and has the room."""
    if there_are := list_checkpoints(run.checkpoints):
        try:
            refuse(run, refused_changes(config, run))
        except BadInputError as error:
            yield Finding("problem", str(error))
        else:
            yield Finding("ok", f"{run.root} holds a training at step {there_are[-1][0]:,}: train --resume goes on")
    there = next(path for path in (run.root, *run.root.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        yield Finding("problem", f"{run.root}: {there} is not a folder that can be written: give another --out")
        return
    try:
        check_room(run)
    except BadInputError as error:
        yield Finding("problem", str(error))
        return
    parameters = sum(weight.numel() for weight in build_without_storage(model).parameters())
    # Weights and Adam's two moments, in float32; one checkpoint more is there while it is written; best: the weights.
    checkpoints = 12 * parameters * (config.train.keep_checkpoints + 1) + 4 * parameters
    store = 0 if prepared else _store_size(config)
    needed = checkpoints + store
    free = shutil.disk_usage(there).free
    what = "checkpoints and the store" if store else "checkpoints"
    text = f"{run.root}: {what} take {needed / _GIB:.1f} GiB, {free / _GIB:.1f} GiB are free"
    if needed > free:
        yield Finding("problem", f"{text}: make room, give another --out, or lower train.keep_checkpoints")
    else:
        yield Finding("ok", text)


def _training(
    config: RunConfig, model: ModelConfig, prepared: Prepared | None, device: torch.device
) -> Iterator[Finding]:
    """A few steps of it: precision, threads, speed and memory."""
    train = config.train
    longest, typical = _lengths(config, prepared)
    batches = [full_batch(model, train.batch_tokens, length) for length in dict.fromkeys((typical, longest))]
    yield from _precision(train, device)
    if isinstance(model, TransformerConfig):
        yield from (_attention(model, batch.target_lengths, train, device) for batch in batches)
    try:
        speed = try_training(model, train, batches[:1], device)
        widest = try_training(model, train, batches[1:], device) if len(batches) > 1 else speed
    except OutOfMemoryError as error:
        yield Finding(
            "warning",
            f"a batch of train.batch_tokens = {train.batch_tokens:,} needs more memory than there is: a training in "
            f"one process splits it, and ends only where a single pair is too large. To have it fit, lower "
            f"train.batch_tokens and raise train.accumulate as much, or lower data.max_length ({error})",
        )
        return
    yield from _speed(config, speed)
    yield _memory(max(speed.memory, widest.memory), device)
    yield _batch_size(train, try_batch_sizes(model, train, typical, device, speed.speeds[speed.now]))


def _precision(train: TrainConfig, device: torch.device) -> Iterator[Finding]:
    """The number format. ``auto`` follows from a table, and looks at no clock; here alone it is measured beside it."""
    format_ = resolve_precision(train.precision, device)
    name = str(format_).removeprefix("torch.")
    if train.precision != "auto":
        yield Finding("ok", f"matrix products in {name}")
        return
    yield Finding("ok", f"matrix products in {name}, which auto means on this machine")
    gain = bfloat16_gain(device)
    than = f"{gain:.1f} times as fast" if gain >= 1 else f"{1 / gain:.1f} times as slow"
    text = f"measured now, products in bfloat16 are {than} as in float32"
    if format_ == torch.float32 and gain > _WORTH:
        yield Finding("warning", f'{text}: train.precision = "bfloat16" makes use of it')
    elif format_ == torch.bfloat16 and gain < 1:
        yield Finding("warning", f'{text}: look once more, and if it stays so set train.precision = "float32"')
    else:
        yield Finding("ok", text)


def _attention(
    model: TransformerConfig, lengths: NDArray[np.int64], train: TrainConfig, device: torch.device
) -> Finding:
    """How decoder self-attention is computed over such sequences, which follows from sizes that were measured."""
    if model.decoder_self_attention == "average":
        return Finding("ok", "decoder self-attention is a running mean, linear in the length")
    heads = Heads(model.heads, model.d_k, model.d_v)
    sums = torch.empty(0, sum(heads.widths), dtype=resolve_precision(train.precision, device), device=device)
    keys = RaggedLayout.of(torch.from_numpy(lengths), int(lengths.max()), device)
    plain = model.compatibility not in ("additive", "multiplicative") and model.positions != "relative"
    way = ragged_way(sums, keys, heads, model.attention_window, model.attention_dropout, plain=plain)
    words = {
        "C++": "a C++ kernel",
        "variable length": "PyTorch's kernel for variable lengths",
        "padded": "PyTorch's operations on padded sentences",
    }
    return Finding("ok", f"attention over {lengths.max():,} tokens a sentence: {words[way]}")


def _speed(config: RunConfig, trial: Trial) -> Iterator[Finding]:
    train, speed = config.train, trial.speeds[trial.now]
    step = train.accumulate * train.batch_tokens / speed  # seconds
    takes = f"at most {_duration(train.max_steps * step)} for train.max_steps = {train.max_steps:,}"
    pace = Pace(step=0, seconds=0.0)
    if (last := pace.last_step(train, 1, step)) is not None:
        takes = f"train.max_minutes = {train.max_minutes:g} ends the training at about step {last:,} ({takes})"
    yield Finding("ok", f"{speed:,.0f} target tokens a second (threads: {trial.now}): {takes}, without validation")
    if (early := pace.cut_short(train, 1, step)) is not None:
        yield Finding("warning", early)
    if train.objective != "likelihood":
        yield Finding(
            "warning",
            f'that is by the likelihood of the references: with train.objective = "{train.objective}" a step writes '
            f"train.samples = {train.samples} outputs of each pair as well, and learns from those that differ: expect "
            f"many times as long, and see how long the first steps take",
        )
    if trial.best != trial.now:
        yield Finding(
            "warning",
            f"--threads {trial.best} (or OMP_NUM_THREADS={trial.best}) is {trial.speeds[trial.best] / speed:.1f} times "
            f"as fast",
        )


def _batch_size(train: TrainConfig, speeds: dict[int, float]) -> Finding:
    now = train.batch_tokens
    best = worth_asking_for(speeds, now)
    if best == now:
        others = " or ".join(f"{tokens:,}" for tokens in speeds if tokens != now)
        than = f"no slower than {others}" if others else "the only size tried"
        return Finding("ok", f"train.batch_tokens = {now:,} is {than}")
    text = f"train.batch_tokens = {best:,} is {speeds[best] / speeds[now]:.1f} times as fast as {now:,}"
    accumulate, rest = divmod(now * train.accumulate, best)
    if rest:
        return Finding("ok", f"{text}, but no train.accumulate gives a step as many tokens as now")
    return Finding("warning", f"{text}: with train.accumulate = {accumulate} each step learns from as many tokens")


def _memory(needed: int, device: torch.device) -> Finding:
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _available()
    text = f"steps take {needed / _GIB:.1f} GiB of memory" + (f", {free / _GIB:.1f} GiB are free" if free else "")
    if free and needed > 0.9 * free:
        return Finding("warning", f"{text}: close to too much; lower train.batch_tokens and raise train.accumulate")
    return Finding("ok", text)


def _available() -> int:
    """Bytes of memory that a process can still get, as Linux estimates them; 0 where nobody says."""
    path = Path("/proc/meminfo")
    lines = path.read_text(encoding="ascii").splitlines() if path.is_file() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)


def _lengths(config: RunConfig, prepared: Prepared | None) -> tuple[int, int]:
    """The longest sequence of a side, and the usual one."""
    budget = config.train.batch_tokens
    if prepared is None:
        return min(config.data.max_length, budget), min(_TYPICAL, budget)
    train = prepared.dev if prepared.train is None else prepared.train
    return min(max(train.longest) + 1, budget), min(train.tokens[1] // len(train) + 1, budget)


def _sizes(config: RunConfig, prepared: Prepared | None) -> dict[str, int | None]:
    """Of the vocabularies: those that are prepared, or that are there, or those that are asked for."""
    if prepared is not None:
        return dict(prepared.tokenizers.sizes(shared=config.tokenizer.shared))
    return asked_sizes(config)


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else "a minute"
