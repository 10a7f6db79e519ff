"""From a run file to a trained model, with dev translated and scored on the way."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.bundle import BEST, Bundle, find_model, save_bundle
from transduce.config import BadInputError, Precision, RunConfig, TrainConfig, write_run
from transduce.config.model import REGULARIZATION, VOCABULARY_SIZES
from transduce.data import Ids, Resegment, read_corpus
from transduce.evaluation import corpus_score
from transduce.inference import Translator
from transduce.kernels import resolve_precision
from transduce.models import Transformer, build
from transduce.text import BpeDropout, TokenizerPair
from transduce.training import (
    Corpora,
    Hooks,
    Progress,
    Report,
    Training,
    is_over,
    is_stale,
    list_checkpoints,
    load_newest,
    make_optimizer,
    require_tensorboard,
    train,
)
from transduce.workflows.cost import describe_cost
from transduce.workflows.initialize import initialize
from transduce.workflows.prepare import Prepared, prepare
from transduce.workflows.run_directory import RunDirectory

_log = logging.getLogger(__name__)


def train_run(
    config: RunConfig,
    run: RunDirectory,
    *,
    resume: bool,
    init: Path | None = None,
    carry_vocabulary: bool = False,
) -> Progress:
    """Prepare where needed, then train to ``max_steps``; with ``resume``, go on from the newest checkpoint.

    ``init`` is a finished model whose weights a training begins with; where one is resumed, it no longer matters.

    Raises:
        BadInputError: The directory already holds a training and ``resume`` was not given, what it holds is damaged, or
            ``init`` is another model than the run file's.
    """
    checkpoints = list_checkpoints(run.checkpoints)
    if checkpoints and not resume:
        raise BadInputError(
            f"{run.root}: holds a training at step {checkpoints[-1][0]:,}: --resume goes on from there, "
            f"--out DIR trains elsewhere"
        )
    if config.train.tensorboard:
        require_tensorboard()
    if init is not None and not checkpoints:
        find_model(init)  # a wrong path should not cost a preparation
    if resume and not checkpoints and run.metrics.exists():
        _log.warning(f"{run.root}: no checkpoint was written yet: starting anew{f' from {init}' if init else ''}")
    prepared = prepare(config, run)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(config.train.seed)
    model = build(config.model.model_copy(update=prepared.tokenizers.sizes)).to(device)
    optimizer = make_optimizer(model, config.train)
    progress = Progress()
    if checkpoints:
        progress = load_newest(run.checkpoints, model, optimizer)
    elif init is not None:
        initialize(model, prepared.tokenizers, init, carry_vocabulary=carry_vocabulary)
    settings = _resolve_precision(config.train, progress, device)
    progress = _fix(progress, config, settings, run)
    write_run(config, run.config)
    tensorboard = run.tensorboard if settings.tensorboard else None
    with Report(run.metrics, max_steps=settings.max_steps, step=progress.step, tensorboard=tensorboard) as report:
        for line in prepared.report if prepared.new else ():
            report.say(line)
        if is_over(settings, progress.step, progress.seconds) or is_stale(settings, progress):
            report.say(f"already trained to step {progress.step:,}: nothing to do")
            return progress
        beginning = "going on from" if checkpoints else "starting at"
        report.say(f"{beginning} step {progress.step:,} on {device} in {settings.precision}")
        parameters = sum(weight.numel() for weight in model.parameters())
        _log.debug(f"{parameters:,} parameters; {len(prepared.train):,} training pairs, {len(prepared.dev):,} of dev")
        training = Training(
            model=model,
            optimizer=optimizer,
            corpora=_corpora(config, prepared),
            config=settings,
            checkpoints=run.checkpoints,
            report=report,
            hooks=_hooks(config, settings.precision, run, prepared),
        )
        progress = train(training, progress)
        for line in describe_cost(model.config, progress, training.dtype, device):
            report.say(line)
        return progress


def _corpora(config: RunConfig, prepared: Prepared) -> Corpora:
    weights = tuple(corpus.weight for corpus in config.data.train)
    resegment = _bpe_dropout(config, prepared.tokenizers) if config.tokenizer.bpe_dropout else None
    return Corpora(prepared.train, prepared.dev, prepared.tokenizers.special, weights, resegment)


def _bpe_dropout(config: RunConfig, tokenizers: TokenizerPair) -> Callable[[int], Resegment]:
    """For each epoch, the function that tokenizes its lines anew, a pure one of seed, epoch and row.

    A line that would outgrow the positions that the model learns stays as it is.
    """
    share, seed, longest = config.tokenizer.bpe_dropout, config.train.seed, config.model.longest
    source, target = BpeDropout(tokenizers.source, share, 2 * seed), BpeDropout(tokenizers.target, share, 2 * seed + 1)

    def segment(dropout: BpeDropout, lines: list[Ids], epoch: int, rows: NDArray[np.int64]) -> list[Ids]:
        anew = dropout.segment(lines, epoch, rows)
        return [new if longest is None or len(new) < longest else old for new, old in zip(anew, lines, strict=True)]

    return lambda epoch: (
        lambda sources, targets, rows: (segment(source, sources, epoch, rows), segment(target, targets, epoch, rows))
    )


def _resolve_precision(config: TrainConfig, progress: Progress, device: torch.device) -> TrainConfig:
    """The settings with the number format that ``auto`` means; a training goes on in the one it began in."""
    if config.precision == "auto" and progress.fixed:
        return config.model_copy(update={"precision": progress.fixed["train.precision"]})
    name = str(resolve_precision(config.precision, device)).removeprefix("torch.")
    return config.model_copy(update={"precision": name})


def _fix(progress: Progress, config: RunConfig, settings: TrainConfig, run: RunDirectory) -> Progress:
    """Write down what may not change from here on, and refuse what has changed since the training began.

    Weights of the same shapes may mean another model, and another seed or budget another order of the data.
    """
    model = config.model.model_dump(exclude={*VOCABULARY_SIZES, *REGULARIZATION})
    fixed = {f"model.{key}": value for key, value in model.items()}
    fixed |= {f"train.{key}": getattr(settings, key) for key in ("seed", "batch_tokens", "accumulate", "precision")}
    fixed["data.train.weight"] = [corpus.weight for corpus in config.data.train]
    fixed["tokenizer.bpe_dropout"] = config.tokenizer.bpe_dropout
    began = progress.fixed or fixed
    different = [
        f"{key} was {began.get(key)!r} and is {value!r}" for key, value in fixed.items() if began.get(key) != value
    ]
    if different:
        raise BadInputError(f"{run.root}: cannot go on with other settings: {'; '.join(different)}")
    return progress.model_copy(update={"fixed": fixed})


def _hooks(config: RunConfig, precision: Precision, run: RunDirectory, prepared: Prepared) -> Hooks:
    def bundle(model: Transformer) -> Bundle:
        return Bundle(model, prepared.tokenizers, config.generation)

    def save_best(model: Transformer) -> None:
        save_bundle(bundle(model), run.root / BEST)

    return Hooks(dev_bleu=_dev_bleu(config, precision, bundle), save_best=save_best)


def _dev_bleu(
    config: RunConfig, precision: Precision, bundle: Callable[[Transformer], Bundle]
) -> Callable[[Transformer], float]:
    """A function that translates dev greedily and scores the text: good enough to rank checkpoints, and quick."""
    sources, references = (list(side) for side in zip(*read_corpus(config.data.dev, config.data.folder), strict=True))

    def measure(model: Transformer) -> float:
        translator = Translator(bundle(model), precision, next(model.parameters()).device)
        # A model that has just begun to learn finds no end: no reason to warn.
        outputs = translator.translate(sources, beam_size=1, first_number=None)
        return corpus_score("bleu", [output.text for output in outputs], references).value

    return measure
