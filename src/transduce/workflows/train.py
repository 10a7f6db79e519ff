"""From a run file to a trained model, with dev translated and scored on the way."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any, Final

import numpy as np
import torch

from transduce.bundle import Bundle, save_bundle
from transduce.bundle.directory import GENERATION
from transduce.config import (
    PRESETS,
    BadInputError,
    Precision,
    RunConfig,
    StoppedError,
    TrainConfig,
    TransduceError,
    read_run,
    with_vocabularies,
    write_run,
)
from transduce.config.disk import SameFolder, write_whole
from transduce.config.model import VOCABULARY_SIZES
from transduce.inference import check_unknown_words
from transduce.kernels import resolve_precision
from transduce.models import TrainableModel, build
from transduce.training import (
    Abandoned,
    Hooks,
    Processes,
    Progress,
    Report,
    Requests,
    Training,
    circumstances,
    ended_within_warmup,
    is_finished,
    list_checkpoints,
    listen,
    load_newest,
    make_optimizer,
    place_model,
    put_back,
    require_tensorboard,
    train,
    why_finished,
)
from transduce.workflows.changes import fix, tell_changes, tell_circumstances, telling
from transduce.workflows.cost import describe_cost
from transduce.workflows.dev_outputs import translate_dev
from transduce.workflows.findings import find_schedule
from transduce.workflows.initialize import began_with, check_init, initialize, name_init
from transduce.workflows.prepare import Prepared, identify, load_prepared, prepare
from transduce.workflows.run_directory import RunDirectory, check_folders, lock
from transduce.workflows.training_corpora import training_corpora

_log = logging.getLogger(__name__)

# Gets each measurement as `metrics.jsonl` has it; True interrupts the training behind a step, with a checkpoint.
Callback = Callable[[Mapping[str, Any]], object]

_HELD: Final = {"data": "whole weights each", "sharded": "weights divided among them"}


def train_run(
    config: RunConfig,
    run: RunDirectory,
    *,
    resume: bool,
    init: Path | None = None,
    carry_vocabulary: bool = False,
    stop_after: int | None = None,
    session_only: bool = False,
    processes: Processes | None = None,
    own_process: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Progress:
    """Prepare where needed, then train to ``max_steps``; with ``resume``, go on from the newest checkpoint.

    Several ``processes`` all call it, alike; the first one prepares, measures dev and writes.

    ``init`` is a finished model whose weights a training begins with; dev is measured before the first step, too. A
    training that is resumed may be given the one that it began with.
    ``stop_after`` is a step behind which it is interrupted, as by a signal. With ``session_only``, ``max_minutes`` ends
    this call only: the training will go on another time, and nothing is said of its schedule. ``callbacks`` are called
    in the first process. Torch's generators are put back at the end, and so are handlers of signals; with
    ``own_process``, which is for programs that do nothing but train, the C library's allocator is set to keep what it
    frees, which cannot be undone.

    Raises:
        BadInputError: The directory already holds a training and ``resume`` was not given, another process trains in
            it at this moment, what it holds is damaged, ``init`` is another model than the run file's or than the one
            that a resumed training began with, there is none where the objective needs one, or settings have changed
            that may not.
        StoppedError: A signal ended it.
        TransduceError: The last checkpoint could not be written.
    """
    requests, processes = Requests(stop_after), processes or Processes.single()
    sharded = not processes.alone and config.train.parallel == "sharded"  # torch warns of what is no danger here
    try:
        with (
            listen(requests),
            lock(run) if processes.first else nullcontext(),
            put_back(processes.device, with_warnings=sharded),
        ):
            progress = _train_run(
                config,
                run,
                processes,
                requests,
                resume=resume,
                init=init,
                carry_vocabulary=carry_vocabulary,
                session_only=session_only,
                own_process=own_process,
                callbacks=callbacks,
            )
    except Abandoned:
        progress = None
    if requests.stopped_by is None:
        assert progress is not None
        return progress
    if progress is not None and is_finished(config.train, progress):
        return progress
    raise _stopped(requests.stopped_by, run)


def _stopped(by: Signals, run: RunDirectory) -> StoppedError:
    checkpoints = list_checkpoints(run.checkpoints)
    left = f"{checkpoints[-1][1]} is written, --resume goes on from there" if checkpoints else "no step is trained yet"
    return StoppedError(f"stopped by {by.name}: {left}", by)


def _train_run(
    config: RunConfig,
    run: RunDirectory,
    processes: Processes,
    requests: Requests,
    *,
    resume: bool,
    init: Path | None,
    carry_vocabulary: bool,
    session_only: bool,
    own_process: bool,
    callbacks: Sequence[Callback],
) -> Progress:
    check_folders(run)
    checkpoints = list_checkpoints(run.checkpoints)
    if config.train.tensorboard:
        require_tensorboard()
    if checkpoints:
        _check_resume(run, checkpoints, init, resume=resume)
        tell_changes(config, run)
    else:
        _check_start(
            config, run, processes, init, resume=resume, carry_vocabulary=carry_vocabulary, whole=not session_only
        )
    prepared, device = _prepare(config, run, processes), processes.device
    torch.manual_seed(config.train.seed)
    model = build(with_vocabularies(config.model, prepared.tokenizers.sizes(shared=config.tokenizer.shared)))
    check_unknown_words(model, prepared.tokenizers, config.generation)
    if init is not None and not checkpoints:
        initialize(model, prepared.tokenizers, init, carry_vocabulary=carry_vocabulary)
    place_model(model, processes, config.train.parallel)
    optimizer = make_optimizer(model, config.train)
    if checkpoints:
        progress = _go_on(config, load_newest(run.checkpoints, model, optimizer, processes))
    else:
        # A model that it begins with is measured first: nothing worse becomes the best.
        progress = Progress(init=None if init is None else name_init(init), unvalidated=init is not None)
    settings = _resolve_precision(config.train, progress, device)
    progress = fix(progress, config, settings, run, identify(run, prepared))
    _check_alike(settings, progress, processes)
    if processes.first:
        _renew_generation(config, run)
        progress = tell_circumstances(progress, circumstances(device, processes, settings.parallel))
    tensorboard = run.tensorboard if settings.tensorboard and processes.first else None
    with Report(
        run.metrics if processes.first else None,
        max_steps=settings.max_steps,
        step=progress.step,
        unvalidated=progress.unvalidated or not checkpoints,  # of an earlier start, nothing stays
        tensorboard=tensorboard,
        listener=_tell(callbacks, requests) if processes.first else None,
    ) as report:
        for line in prepared.report if prepared.new else ():
            report.say(line)
        if (why := why_finished(settings, progress)) is not None:
            ended = "beyond" if progress.step > settings.max_steps else "ended by"
            report.say(f"already trained to step {progress.step:,}, {ended} {why}: nothing to do")
            return progress
        if processes.first:
            # From here on this is what is trained; where nothing is, what was trained stays written.
            write_run(config, run.config)
        beginning = "going on from" if checkpoints else "starting at"
        together = "" if processes.alone else f", {processes.number} processes, {_HELD[settings.parallel]}"
        report.say(f"{beginning} step {progress.step:,} on {device} in {settings.precision}{together}")
        pairs = "a stream of" if prepared.train is None else f"{len(prepared.train):,}"
        report.say(f"{_describe_model(model)}; {pairs} training pairs, {len(prepared.dev):,} of dev")
        training = Training(
            model=model,
            optimizer=optimizer,
            corpora=training_corpora(config, prepared),
            config=settings,
            checkpoints=run.checkpoints,
            report=report,
            hooks=_hooks(config, settings.precision, run, prepared),
            requests=requests,
            processes=processes,
            session_only=session_only,
            own_process=own_process,
        )
        progress = train(training, progress)
        if (why := why_finished(settings, progress)) is not None:
            report.say(f"ended at step {progress.step:,} by {why}")
            _tell_end(training, progress)
        return progress


def _tell(callbacks: Sequence[Callback], requests: Requests) -> Callable[[Mapping[str, Any]], None]:
    def listener(measured: Mapping[str, Any]) -> None:
        answers = [callback(dict(measured)) for callback in callbacks]  # all of them hear it, whatever one answers
        if any(map(_is_true, answers)):
            requests.ask_end()

    return listener


def _is_true(answer: object) -> bool:
    """Whether it is True, of Python, NumPy or torch; what file.write answers is a number, and means nothing here."""
    if isinstance(answer, torch.Tensor):
        return answer.dtype == torch.bool and answer.numel() == 1 and bool(answer)
    return isinstance(answer, bool | np.bool_) and bool(answer)


def _tell_end(training: Training, progress: Progress) -> None:
    """What is to be said of a training that is over: that it was too early, and what it has cost."""
    config, processes = training.config, training.processes
    if processes.first and not training.session_only and (early := ended_within_warmup(config, progress)) is not None:
        _log.warning(early)
    if not _log.isEnabledFor(logging.DEBUG):  # counting and measuring take a moment
        return
    model, by_score = training.model.config, config.objective != "likelihood"
    for line in describe_cost(model, progress, training.dtype, training.device, processes.number, by_score=by_score):
        _log.debug(line)


def _describe_model(model: TrainableModel) -> str:
    """Its preset, vocabularies aside, or its architecture; and its size: who has left [model] out should see it."""
    config = model.config
    sizes = {name: getattr(config, name) for name in VOCABULARY_SIZES}
    same = next((name for name, each in PRESETS.items() if each.model_copy(update=sizes) == config), None)
    name = config.architecture if same is None else f"{config.architecture}, preset {same}"
    return f"model: {name}, {sum(weight.numel() for weight in model.parameters()):,} parameters"


def _check_start(
    config: RunConfig,
    run: RunDirectory,
    processes: Processes,
    init: Path | None,
    *,
    resume: bool,
    carry_vocabulary: bool,
    whole: bool,
) -> None:
    if init is not None:
        check_init(config, init, carry_vocabulary=carry_vocabulary)
    elif config.train.objective != "likelihood":
        raise BadInputError(
            f'train.objective = "{config.train.objective}" is for a model that knows what it writes, and learns '
            f"nothing from what new weights write: begin with a finished model (--init MODEL)"
        )
    if whole and processes.first:
        for text in find_schedule(config.train):
            _log.warning(text)
    if resume and processes.first:
        weights = f"the weights of {init}" if init else "new weights"
        _log.warning(
            f"{run.root}: nothing to resume, no checkpoint was written yet: starting anew, with {weights}. Where "
            f"another folder was meant, give it with --out"
        )


def _check_resume(
    run: RunDirectory, checkpoints: Sequence[tuple[int, Path]], init: Path | None, *, resume: bool
) -> None:
    """See that a training may go on; with ``init`` only where it began with that: a launcher repeats its command."""
    if not resume:
        raise BadInputError(
            f"{run.root}: holds a training at step {checkpoints[-1][0]:,}: --resume goes on from there, "
            f"--out DIR trains elsewhere"
        )
    if init is None or (began := began_with(checkpoints)) == name_init(init):
        return
    raise BadInputError(
        f"{run.root}: holds a training at step {checkpoints[-1][0]:,} that began with "
        f"{f'the model {began}' if began else 'new weights'}, not with {init}: --resume without --init goes on there, "
        f"--init with another --out begins anew"
    )


def _prepare(config: RunConfig, run: RunDirectory, processes: Processes) -> Prepared:
    """What the first process prepares, or finds prepared; the others read it."""
    own: list[Prepared] = []

    def work() -> str:
        own.append(prepare(config, run))
        return ""

    processes.lead("preparing the data", work)
    prepared = own[0] if processes.first else load_prepared(run)
    if prepared is None:
        raise TransduceError(
            f"{run.root}: {processes} does not see what the first one prepared: all machines need this folder, by a "
            f"file system that they share"
        )
    return prepared


def _check_alike(settings: TrainConfig, progress: Progress, processes: Processes) -> None:
    """See that this process trains what the first one does.

    Raises:
        BadInputError: It does not: a machine has another run file or checkpoint, or chose another number format.
    """
    own = settings.model_dump(mode="json") | progress.fixed | {"step": progress.step}
    first = json.loads(processes.lead("reading the settings", lambda: json.dumps(own)))
    different = telling([key for key in {**first, **own} if own.get(key) != first.get(key)])
    if different:
        named = "; ".join(f"{key} is {own.get(key)!r} and {first.get(key)!r} there" for key in different)
        raise BadInputError(
            f"{processes} does not train what the first one does: {named}: give all the same run file, "
            f"--set and --out, and name train.precision"
        )


def _renew_generation(config: RunConfig, run: RunDirectory) -> None:
    """Have the best model write as [generation] says now, where that has changed: no later one may take its place.

    Where it has not, the best model's own file is left alone: people may have changed that.
    """
    try:
        began = read_run(run.config)
    except BadInputError:  # which `tell_changes` says
        return
    path = run.best / GENERATION
    if began.generation != config.generation and path.is_file():
        write_whole(path, config.generation.model_dump_json(indent=2) + "\n")
        write_run(began.model_copy(update={"generation": config.generation}), run.config)
        _log.info(f"{path}: the best model writes by the [generation] of the run file from here on")


def _go_on(config: RunConfig, progress: Progress) -> Progress:
    """A training whose stream had ended goes on where it is to begin again."""
    if progress.stream is None or config.data.at_end != "repeat":
        return progress
    return progress.model_copy(update={"stream": replace(progress.stream, ended=False)})


def _resolve_precision(config: TrainConfig, progress: Progress, device: torch.device) -> TrainConfig:
    """The settings with the number format that ``auto`` means; a training goes on in the one it began in."""
    if config.precision == "auto" and progress.fixed:
        return config.model_copy(update={"precision": progress.fixed["train.precision"]})
    name = str(resolve_precision(config.precision, device)).removeprefix("torch.")
    return config.model_copy(update={"precision": name})


def _hooks(config: RunConfig, precision: Precision, run: RunDirectory, prepared: Prepared) -> Hooks:
    def bundle(model: TrainableModel) -> Bundle:
        return Bundle(model, prepared.tokenizers, config.generation)

    def save_best(model: TrainableModel) -> None:
        save_bundle(bundle(model), run.best)

    return Hooks(
        translate_dev=translate_dev(config, precision, bundle),
        save_best=save_best,
        check_place=SameFolder(run.root).check,
    )
