"""From a run file to a trained model, with dev translated and scored on the way."""

from collections.abc import Callable

import torch

from transduce.bundle import BEST, Bundle, save_bundle
from transduce.config import BadInputError, RunConfig, read_run
from transduce.data import SpecialIds, read_lines
from transduce.evaluation import corpus_score
from transduce.inference import Translator
from transduce.models import Transformer, build
from transduce.training import (
    Corpora,
    Hooks,
    Progress,
    Report,
    Training,
    list_checkpoints,
    load_checkpoint,
    make_optimizer,
    train,
)
from transduce.workflows.prepare import Prepared, prepare
from transduce.workflows.run_directory import RunDirectory


def train_run(config: RunConfig, run: RunDirectory, *, resume: bool) -> Progress:
    """Prepare where needed, then train to ``max_steps``; with ``resume``, go on from the newest checkpoint.

    Raises:
        BadInputError: The directory already holds a training and ``resume`` was not given, or what it holds is damaged.
    """
    checkpoints = list_checkpoints(run.checkpoints)
    if checkpoints and not resume:
        raise BadInputError(
            f"{run.root}: holds a training at step {checkpoints[-1][0]:,}: --resume goes on from there, "
            f"--out DIR trains elsewhere"
        )
    if checkpoints:
        _check_model(config, run)
    prepared = prepare(config, run)
    tokenizer = prepared.tokenizer
    torch.manual_seed(config.train.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build(config.model.model_copy(update={"vocab_size": tokenizer.vocab_size})).to(device)
    optimizer = make_optimizer(model, config.train)
    progress = load_checkpoint(checkpoints[-1][1], model, optimizer) if checkpoints else Progress()
    with Report(run.metrics, max_steps=config.train.max_steps, step=progress.step) as report:
        for line in prepared.report:
            report.say(line)
        if progress.step >= config.train.max_steps:
            report.say(f"already trained to step {progress.step:,}: nothing to do")
            return progress
        report.say(f"{'going on from' if checkpoints else 'starting at'} step {progress.step:,} on {device}")
        training = Training(
            model=model,
            optimizer=optimizer,
            corpora=Corpora(
                prepared.train, prepared.dev, SpecialIds(tokenizer.pad_id, tokenizer.begin_id, tokenizer.end_id)
            ),
            config=config.train,
            checkpoints=run.checkpoints,
            report=report,
            hooks=_hooks(config, run, prepared),
        )
        return train(training, progress)


def _check_model(config: RunConfig, run: RunDirectory) -> None:
    """Another model may have weights of the same shapes: only what leaves the weights' meaning alone may change."""
    may_change = {"dropout", "label_smoothing", "vocab_size"}
    began, now = (each.model.model_dump(exclude=may_change) for each in (read_run(run.config), config))
    different = [f"model.{key} was {began[key]!r} and is {now[key]!r}" for key in now if began[key] != now[key]]
    if different:
        raise BadInputError(f"{run.root}: its training began with another model: {'; '.join(different)}")


def _hooks(config: RunConfig, run: RunDirectory, prepared: Prepared) -> Hooks:
    def bundle(model: Transformer) -> Bundle:
        return Bundle(model, prepared.tokenizer, config.generation)

    def save_best(model: Transformer) -> None:
        save_bundle(bundle(model), run.root / BEST)

    return Hooks(dev_bleu=_dev_bleu(config, bundle), save_best=save_best)


def _dev_bleu(config: RunConfig, bundle: Callable[[Transformer], Bundle]) -> Callable[[Transformer], float]:
    """A function that translates dev greedily and scores the text: good enough to rank checkpoints, and quick."""
    sources = list(read_lines(config.data.path(config.data.dev.source)))
    references = list(read_lines(config.data.path(config.data.dev.target)))

    def measure(model: Transformer) -> float:
        translator = Translator(bundle(model), config.train.precision, next(model.parameters()).device)
        outputs = translator.translate(sources, beam_size=1)
        return corpus_score("bleu", [output.text for output in outputs], references).value

    return measure
