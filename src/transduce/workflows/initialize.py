"""Fine-tuning: a finished model's settings and weights for a new training, on other text or with other settings."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from transduce.bundle import Bundle, StoredBundle, load_bundle, load_settings, open_bundle
from transduce.config import (
    BadInputError,
    Inherited,
    ModelConfig,
    RunConfig,
    TransformerConfig,
    read_run,
    with_vocabularies,
)
from transduce.config.model import VOCABULARY_SIZES
from transduce.config.section import regularization
from transduce.models import TrainableModel, Transformer
from transduce.text import Tokenizer, TokenizerPair
from transduce.training import list_checkpoints, read_progress
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.vocabulary import asked_sizes

_log = logging.getLogger(__name__)

_NAMED: Final = 5


def read_training(
    run_file: Path,
    settings: Iterable[str] | Mapping[str, object],
    run: RunDirectory,
    *,
    resume: bool,
    init: Path | None = None,
    carry_vocabulary: bool = False,
) -> RunConfig:
    """The run file; what it leaves out is as in the model ``init``, or as the training in ``run`` began with one.

    With ``carry_vocabulary``, the tokenizer is the run file's in any case.

    Raises:
        BadInputError: The run file or the model cannot be read, the run file asks for another architecture, or there
            is no model whose vocabulary could be carried over.
    """
    if carry_vocabulary and init is None:
        raise BadInputError("--carry-vocabulary goes with --init MODEL")
    checkpoints = list_checkpoints(run.checkpoints)
    if init is not None and not checkpoints:
        return read_run(run_file, settings, _of_model(init, with_tokenizer=not carry_vocabulary))
    inherited = _of_run(run) if resume and began_with(checkpoints) else None
    return read_run(run_file, settings, inherited)


def began_with(checkpoints: Sequence[tuple[int, Path]]) -> str | None:
    """The finished model that a training began with, by the newest of its checkpoints that can be read."""
    for _, path in reversed(checkpoints):
        with suppress(BadInputError):
            return read_progress(path).init
    return None


def name_init(init: Path) -> str:
    """The path of a finished model as a checkpoint keeps it."""
    return str(init.resolve())


def check_init(
    config: RunConfig, init: Path, tokenizers: TokenizerPair | None = None, *, carry_vocabulary: bool = False
) -> None:
    """See that a training can begin with a model's weights: in its settings before anything is prepared, then in all.

    Raises:
        BadInputError: It is none, or they differ in more than regularization, or in their vocabularies, which are not
            to be carried over; the settings or the symbols are named.
    """
    old = load_settings(init)[0]
    _check_settings(config.model, old, init)
    if tokenizers is None:
        if not carry_vocabulary:
            _check_embeddings(asked_sizes(config).get("source_vocab_size"), old.source_vocab_size, init)
        return
    model = with_vocabularies(config.model, tokenizers.sizes(shared=config.tokenizer.shared))
    older = open_bundle(init)
    if not _same(model, tokenizers, older):
        _check_carrying(model, tokenizers, older, init, carry_vocabulary=carry_vocabulary)


def _of_model(init: Path, *, with_tokenizer: bool) -> Inherited:
    model, generation = load_settings(init)
    tokenizer = _tokenizer_of(model, init) if with_tokenizer else {}
    return Inherited(str(init), model, tokenizer, generation.model_dump(exclude_none=True))


def _tokenizer_of(model: ModelConfig, init: Path) -> dict[str, object]:
    """The section that takes a model's tokenizer or tokenizers.

    Where the source has embeddings of its own, even if both sides know the same symbols, each side is asked for by
    itself: two sides of one table would share what they have in common.
    """
    existing: dict[str, object] = {"kind": "existing", "path": name_init(init)}
    return existing if model.source_vocab_size != model.vocab_size else {"source": existing, "target": existing}


def _of_run(run: RunDirectory) -> Inherited | None:
    """As it was resolved when the training began; None where that can no longer be read."""
    try:
        config = read_run(run.config)
    except BadInputError:
        return None  # whoever compares the settings says so
    tokenizer, generation = (section.model_dump(exclude_none=True) for section in (config.tokenizer, config.generation))
    return Inherited(str(run.config), config.model, tokenizer, generation)


def initialize(model: TrainableModel, tokenizers: TokenizerPair, path: Path, *, carry_vocabulary: bool) -> None:
    """Fill a new model in place with the weights of a finished one.

    With ``carry_vocabulary``, the rows of the symbols that both know are carried over, and the others stay as new.

    Raises:
        BadInputError: The models differ in more than regularization, or their vocabularies differ and are not to be
            carried over; the settings or the symbols are named.
    """
    older = load_bundle(path)
    _check_settings(model.config, older.config, path)
    if _same(model.config, tokenizers, older):
        model.load_state_dict(older.model.state_dict())
        _log.info(f"fine-tuning {path}: its weights and its vocabulary{_regularization(model.config, older.config)}")
        return
    _check_carrying(model.config, tokenizers, older, path, carry_vocabulary=carry_vocabulary)
    assert isinstance(model, Transformer)
    _carry_over(model, tokenizers, older, path)


def _check_carrying(
    config: ModelConfig, new: TokenizerPair, older: Bundle | StoredBundle, path: Path, *, carry_vocabulary: bool
) -> None:
    """See that the symbols that both know may be carried over, where vocabularies or what embeds them differ."""
    if not carry_vocabulary:
        _check_embeddings(config.source_vocab_size, older.config.source_vocab_size, path)
        raise BadInputError(
            f"{path}: its vocabulary is not this run's: {'; '.join(_differences(new, older.tokenizers))}. "
            f'Leave [tokenizer] out of the run file to take its tokenizer (which is tokenizer.kind = "existing", '
            f'tokenizer.path = "{path.resolve()}"), or carry over the symbols that both know (--carry-vocabulary)'
        )
    if not isinstance(config, TransformerConfig):
        raise BadInputError(
            f"{path}: its vocabulary is not this run's, and only those of a Transformer can be carried over: leave "
            f"--carry-vocabulary and [tokenizer] out to take its tokenizer"
        )


def _check_embeddings(new: int | None, old: int | None, path: Path) -> None:
    """See that both models embed sources alike; None is the size of a source that has the target's embeddings."""
    own, shared = "has embeddings of its own", "has the target's embeddings"
    if (new is None) != (old is None):
        there, here, give = (
            (own, shared, "[tokenizer.source] and [tokenizer.target]")
            if new is None
            else (shared, own, "one [tokenizer] for both sides")
        )
        raise BadInputError(
            f"{path}: its source {there}, and this run's {here}: leave [tokenizer] out of the run file to take its "
            f"tokenizer, give {give}, or carry over the symbols that both know (--carry-vocabulary)"
        )


def _check_settings(new: ModelConfig, old: ModelConfig, path: Path) -> None:
    # Of a model, only these may differ from the one that it goes on from: no weight depends on them.
    free = {*VOCABULARY_SIZES, *regularization(type(new))}
    if type(new) is type(old):
        was, now = old.model_dump(exclude=free), new.model_dump(exclude=free)
    else:
        was, now = {"architecture": old.architecture}, {"architecture": new.architecture}
    different = [f"model.{key} is {value!r} but {was[key]!r} there" for key, value in now.items() if value != was[key]]
    if different:
        raise BadInputError(
            f"{path}: another model than this run's: {'; '.join(different)}: leave [model] out of the run file to take "
            f"the model's settings"
        )


def _regularization(new: ModelConfig, old: ModelConfig) -> str:
    """What differs, in words."""
    different = [
        f"; model.{name} is {getattr(new, name)} ({getattr(old, name)} there)"
        for name in sorted(regularization(type(new)))
        if getattr(new, name) != getattr(old, name)
    ]
    return "".join(different)


def _same(config: ModelConfig, new: TokenizerPair, older: Bundle | StoredBundle) -> bool:
    """Whether every row of the embeddings is of the same symbol in both models."""
    old = older.tokenizers
    return (
        config.source_vocab_size == older.config.source_vocab_size
        and new.shared == old.shared
        and all(ours.vocabulary == theirs.vocabulary for _, ours, theirs in _sides(new, old))
    )


def _sides(new: TokenizerPair, old: TokenizerPair) -> Iterator[tuple[str, Tokenizer, Tokenizer]]:
    """The vocabularies to compare, with what to call them."""
    if new.shared and old.shared:
        yield "", new.target, old.target
        return
    yield "source: ", new.source, old.source
    yield "target: ", new.target, old.target


def _differences(new: TokenizerPair, old: TokenizerPair) -> list[str]:
    """In words, naming the first few symbols of each kind."""
    found = []
    for side, ours, theirs in _sides(new, old):
        mine, other = ours.vocabulary, theirs.vocabulary
        kinds = {
            "only here": mine.keys() - other.keys(),
            "only there": other.keys() - mine.keys(),
            "with another number": {symbol for symbol in mine.keys() & other.keys() if mine[symbol] != other[symbol]},
        }
        found += [f"{side}{len(symbols):,} {kind} ({_name(symbols)})" for kind, symbols in kinds.items() if symbols]
    return found or ["one shares a vocabulary between source and target, the other does not"]


def _name(symbols: set[str]) -> str:
    shown = ", ".join(map(repr, sorted(symbols)[:_NAMED]))
    return shown if len(symbols) <= _NAMED else f"{shown}, ..."


@torch.no_grad()
def _carry_over(model: Transformer, tokenizers: TokenizerPair, older: Bundle, path: Path) -> None:
    """Every weight but the embeddings' as it was; of these, the rows of the symbols that both know."""
    weights = older.model.state_dict()
    embeddings = ("embedding.weight", "source_embedding.weight", "projection.weight", "output_bias")
    model.load_state_dict({name: weight for name, weight in weights.items() if name not in embeddings}, strict=False)
    target = _Rows(older.tokenizers.target.vocabulary, weights["embedding.weight"])
    source = _Rows(older.tokenizers.source.vocabulary, weights.get("source_embedding.weight", target.matrix))
    # A vocabulary that both sides share takes what only an older source knew too.
    shared = model.source_embedding is None
    known = (target, source) if shared else (target,)
    if model.projection is not None:
        scores = _Rows(older.tokenizers.target.vocabulary, weights["projection.weight"])
        _copy_rows(tokenizers.target.vocabulary, model.projection.weight, (scores,))
    if model.output_bias is not None:
        biases = _Rows(older.tokenizers.target.vocabulary, weights["output_bias"])
        _copy_rows(tokenizers.target.vocabulary, model.output_bias, (biases,))
    carried = {"": _copy_rows(tokenizers.target.vocabulary, model.embedding.weight, known)}
    if model.source_embedding is not None:
        rows = _copy_rows(tokenizers.source.vocabulary, model.source_embedding.weight, (source,))
        carried = {"target ": carried[""], "source ": rows}
    for side, (count, total) in carried.items():
        _log.info(f"fine-tuning {path}: {count:,} of {total:,} {side}symbols carried over")


@dataclass(frozen=True)
class _Rows:
    """An embedding matrix, or a bias of every symbol, and which row is whose."""

    vocabulary: dict[str, int]
    matrix: Tensor


def _copy_rows(vocabulary: dict[str, int], matrix: Tensor, older: Sequence[_Rows]) -> tuple[int, int]:
    """Give each symbol its row of the first older matrix that has one; how many had one, of how many."""
    count = 0
    for symbol, row in vocabulary.items():
        known = next((rows for rows in older if symbol in rows.vocabulary), None)
        if known is not None:
            matrix[row] = known.matrix[known.vocabulary[symbol]]
            count += 1
    return count, len(vocabulary)
