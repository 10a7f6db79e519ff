"""What a run directory knows of its model, as a card."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from transduce.bundle import BEST, Bundle, find_model
from transduce.config import METRICS, BadInputError, MetricKey, RunConfig, read_run
from transduce.config.files import check_size
from transduce.version import __version__
from transduce.viewing import ModelCard, ShownScore
from transduce.viewing.report import find_best, number
from transduce.workflows.report import read_metrics
from transduce.workflows.run_directory import RunDirectory

# What licences are called on model hubs, and nothing that the head of a card could take for more.
_LICENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_KEPT: Final = re.compile(r"(train|dev) (.+): ([\d,]+ of [\d,]+ pairs kept.*)")
_MODEL: Final = (
    *("encoder_layers", "decoder_layers", "d_model", "d_ff", "heads", "norm", "positions", "activation"),
    *("feed_forward", "cell", "attention", "network", "embedding_size", "hidden_size"),
    *("vocab_size", "source_vocab_size"),
)
_RECIPE: Final = (
    *("objective", "batch_tokens", "accumulate", "learning_rate", "learning_rate_factor", "warmup_steps"),
    *("cooldown_steps", "adam_beta1", "adam_beta2", "adam_epsilon", "average_last", "best_metric", "precision", "seed"),
)
_MOST_BYTES: Final = 2**20


@final
@dataclass(frozen=True)
class CardOptions:
    """What people say of a model that its folder does not know: its licence, and a file of ``evaluate --json``."""

    licence: str | None = None
    scores: Path | None = None

    def __post_init__(self) -> None:
        if self.licence is not None and not _LICENCE.fullmatch(self.licence):
            raise BadInputError(
                f"--licence {self.licence!r}: give an identifier, such as apache-2.0, cc-by-4.0 or mit, of letters, "
                f"digits, full stops, hyphens and plus signs"
            )


def make_card(model: Path, bundle: Bundle, sha256: str, options: CardOptions) -> ModelCard:
    """The card of a model or run directory; ``sha256`` is of the weights' file.

    Raises:
        BadInputError: The file of scores is none.
    """
    run, config = _find_run(model)
    scores = [] if options.scores is None else list(_read_scores(options.scores))
    settings = bundle.config.model_dump(mode="json")
    numbers = sum(parameter.numel() for parameter in bundle.model.parameters())
    facts = {"architecture": bundle.config.architecture, "parameters": f"{numbers:,}", **_choose(settings, _MODEL)}
    facts |= {"search": f"beam {bundle.generation.beam_size}", "sha256 of model.safetensors": sha256}
    size = bundle.config.summary
    return ModelCard(
        name=(model if run is None else run.root).resolve().name,
        summary=f"A sequence-to-sequence model of {size}, written by transduce {__version__}",
        translates=config is None or config.data.dev.trees is None,
        licence=options.licence,
        facts=facts,
        corpora=[] if run is None or config is None else list(_corpora(run, config)),
        recipe={} if config is None else _recipe(config),
        scores=[*scores, *([] if run is None or config is None else _dev_scores(run, config))],
    )


def _find_run(model: Path) -> tuple[RunDirectory, RunConfig] | tuple[None, None]:
    """The run that a model is the best of."""
    folder = find_model(model)
    if folder.name != BEST or not (run := RunDirectory(folder.parent)).config.is_file():
        return None, None
    return run, read_run(run.config)


def _choose(settings: Mapping[str, object], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: str(settings[key]) for key in keys if settings.get(key) is not None}


def _corpora(run: RunDirectory, config: RunConfig) -> Iterator[tuple[str, str, str]]:
    """Of each corpus its file and its folder, the rest of the path being nobody's business, and what was kept of it."""
    if not run.report.is_file():
        for part, several in (("train", config.data.train), ("dev", (config.data.dev,))):
            for corpus in several:
                name = next(each for each in (corpus.trees, corpus.pairs, corpus.source, corpus.made_up) if each)
                yield part, _shorten(name if isinstance(name, str) else name[0]), "unknown"
        return
    for line in run.report.read_text(encoding="utf-8").splitlines():
        if found := _KEPT.fullmatch(line):
            yield found[1], _shorten(found[2]), found[3]


def _shorten(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def _recipe(config: RunConfig) -> dict[str, str]:
    train = config.train.model_dump(mode="json")
    kinds = [f"{side.kind}, {side.path or f'{side.vocab_size:,}'}" for side in config.tokenizer.sides]
    dropout = config.model.model_dump(mode="json")
    return {
        "tokenizer": "; ".join(kinds),
        **_choose(train, ("max_steps", "max_minutes", *_RECIPE)),
        **_choose(dropout, ("dropout", "label_smoothing")),
    }


def _dev_scores(run: RunDirectory, config: RunConfig) -> list[ShownScore]:
    """What was measured on dev where the model is the best; metrics.jsonl keeps no signatures."""
    lines, _ = read_metrics(run.metrics) if run.metrics.is_file() else ([], [])
    best = find_best(lines, config.train.best_metric)
    if best is None:
        return []
    values = {key: value for key in METRICS if (value := number(best, key)) is not None}
    return [
        ShownScore(METRICS[key].name, METRICS[key].show(value), f"dev, step {best['step']:,}")
        for key, value in values.items()
    ]


def _read_scores(path: Path) -> Iterator[ShownScore]:
    """What ``transduce evaluate --json`` printed."""
    check_size(path, _MOST_BYTES)
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not readable JSON: {error}") from error
    for score in scores if isinstance(scores, list) else [None]:
        match score:
            case {"metric": str(key), "value": int() | float() as value, "signature": str(signature)} if key in METRICS:
                metric = METRICS[_key(key)]
                yield ShownScore(metric.name, metric.show(value), f"by {path.name}", signature)
            case _:
                raise BadInputError(
                    f"{path}: is no list of scores, as transduce evaluate --json prints one: keep what it prints"
                )


def _key(name: str) -> MetricKey:
    return next(key for key in METRICS if key == name)
