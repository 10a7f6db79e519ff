"""The tokenizers of a run: learned from its training text, or read from a file."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Final

from transduce.bundle import find_model
from transduce.config import PUBLISHED, BadInputError, RunConfig, TokenizerConfig, VocabularyConfig
from transduce.data import Store, read_beginning, read_corpus, read_treebank, text_flaw
from transduce.inference.parsing import TreeVocabulary
from transduce.text import Linearization, Tokenizer, TokenizerPair, check_symbols, import_sentencepiece, learn_tokenizer
from transduce.workflows.findings import Finding

_log = logging.getLogger(__name__)

_VOCAB_SIZE: Final = VocabularyConfig.model_fields["vocab_size"].default
_LEARN_FROM: Final = TokenizerConfig.model_fields["learn_from"].default
# A preset's is there whatever the kind.
_OF_PRESETS: Final = frozenset(each.regime.get("tokenizer", {}).get("vocab_size") for each in PUBLISHED.values())
_UNKNOWN: Final = 0.1  # share of the tokens, beyond which a vocabulary is too small for its text
_FULL: Final = 0.5  # share of the symbols asked for, below which hardly anybody meant so many


def make_tokenizers(config: RunConfig) -> TokenizerPair:
    """Learn or read what the run file asks for.

    Raises:
        BadInputError: The text cannot be read, or the tokenizer's file is missing, damaged or lacks a symbol.
    """
    settings, root = config.tokenizer, config.data.folder
    for idle in find_idle(settings):
        _log.warning(idle)
    try:
        symbols = check_symbols([*settings.symbols, *config.data.tags])
    except BadInputError as error:
        raise BadInputError(f"tokenizer.symbols, or the tag of a corpus: {error}") from error
    pairs = _TrainingPairs(config)
    of_sides = (symbols, _of_targets(config, symbols))
    if not settings.shared:
        made = (_make(side, _Sides(pairs, (i,)), of_sides[i], root) for i, side in enumerate(settings.sides))
        return TokenizerPair(*((pair.source, pair.target)[i] for i, pair in enumerate(made)))
    return _make(settings, _Sides(pairs, (0, 1)), of_sides[1], root)


def find_idle(settings: TokenizerConfig) -> list[str]:
    """What is set for a tokenizer that is learned, where one is read: a sentence for each such setting."""
    reading = [side.path is not None for side in settings.sides]
    idle = []
    for name, side, reads in zip(("source", "target"), settings.sides, reading, strict=False):
        # What the table says for both sides may be meant for the other one.
        if reads and not settings.shared and side.vocab_size not in {_VOCAB_SIZE, settings.vocab_size}:
            idle.append((f"tokenizer.{name}.vocab_size", side.vocab_size))
    if all(reading):
        if settings.vocab_size not in {_VOCAB_SIZE, *_OF_PRESETS}:
            idle.append(("tokenizer.vocab_size", settings.vocab_size))
        if settings.learn_from != _LEARN_FROM:
            idle.append(("tokenizer.learn_from", settings.learn_from))
    kinds = " and ".join(dict.fromkeys(f"kind = {side.kind!r}" for side in settings.sides if side.path is not None))
    return [
        f"{key} = {value:,} does not count: it is for a tokenizer that is learned, and {kinds} reads one"
        for key, value in idle
    ]


def _of_targets(config: RunConfig, symbols: tuple[str, ...]) -> tuple[str, ...]:
    """The symbols of targets: those of all and, where words are no tokens, those of trees."""
    treebanks = [corpus for corpus in config.data.train if corpus.trees is not None]
    settings = config.tokenizer.sides[-1]
    if settings.kind == "words" and any(each.words for each in treebanks):
        raise BadInputError(
            'words = true: a tokenizer of kind = "words" cannot write words that training has not seen: take '
            'kind = "bpe"'
        )
    if not treebanks or settings.kind in {"words", "existing"}:
        return symbols
    bare = [each for each in treebanks if each.linearization == "brackets" and not each.words]
    if config.tokenizer.shared and any(each.tags == "kept" for each in bare):
        raise BadInputError(
            'tags = "kept": a tag such as NN cannot be told from a word of the source where both have one vocabulary: '
            'give the target one of its own ([tokenizer.source] and [tokenizer.target] with kind = "words"), or '
            'linearization = "shift_reduce", or words = true'
        )
    of_trees: set[str] = set()
    for each in treebanks:
        how = Linearization(each.linearization, each.tags, each.words)
        for placed in read_treebank(each, config.data.folder):
            of_trees |= {symbol for symbol in how.write(placed.tree) if how.meaning(symbol) is not None}
    return (*symbols, *sorted(of_trees - {*symbols}))


def check_trees(config: RunConfig, tokenizers: TokenizerPair) -> None:
    """See that a vocabulary tells how trees are written: a model has nothing else to know it by.

    Raises:
        BadInputError: It has no symbols of trees, or those of another way.
    """
    corpus = next((each for each in (*config.data.train, config.data.dev) if each.trees is not None), None)
    if corpus is None:
        return
    what = f"tokenizer.kind = {config.tokenizer.sides[-1].kind!r}: a model of this vocabulary could not parse:"
    known = TreeVocabulary.of(tokenizers.target)
    if known is None and config.tokenizer.sides[-1].path is None:
        return  # no tree could be learned from, which is said where they are counted
    if known is None:
        raise BadInputError(
            f'{what} it has no symbols of trees: learn one for the targets (kind = "bpe", or "words" in '
            f"[tokenizer.target])"
        )
    if (seen := known.linearization) != Linearization(corpus.linearization, corpus.tags, corpus.words):
        raise BadInputError(
            f"{what} its symbols are those of linearization = {seen.kind!r}, tags = {seen.tags!r}, words = "
            f"{str(seen.words).lower()}: take these settings, or learn another one; a tag that is called XX needs "
            f'linearization = "shift_reduce", or words = true'
        )


def find_small(config: RunConfig, tokenizers: TokenizerPair) -> Iterator[str]:
    """What to say of vocabularies that came out far smaller than asked for, where their size is more than a limit."""
    settings = config.tokenizer
    names = ("tokenizer",) if settings.shared else ("tokenizer.source", "tokenizer.target")
    # A shared one is the target's as well.
    made = (tokenizers.source, tokenizers.target)[-len(names) :]
    for name, side, tokenizer in zip(names, settings.sides, made, strict=True):
        # Of characters and words there are as many as there are.
        if side.kind in ("bpe", "wordpiece") and tokenizer.vocab_size < _FULL * side.vocab_size:
            yield (
                f"{name}: only {tokenizer.vocab_size:,} symbols could be learned where vocab_size = "
                f"{side.vocab_size:,} were asked for: the training text has no more to join, all but its rarest words "
                f"are one symbol each. New words need smaller pieces: lower vocab_size (transduce doctor says how "
                f"far), or train on more text"
            )


def judge_unknown(shares: Sequence[float]) -> Finding:
    """Of dev's source and target tokens, which part a vocabulary has no symbol for."""
    source, target = shares
    text = f"dev: {source:.1%} of source and {target:.1%} of target tokens are <unk>, words that have no symbol"
    if max(shares) <= _UNKNOWN:
        return Finding("ok", text)
    return Finding(
        "warning",
        f"{text}: a model cannot read them, and writes <unk> for them: pieces of words know all text "
        f'(tokenizer.kind = "bpe"), or raise tokenizer.vocab_size',
    )


def find_unknown(tokenizers: TokenizerPair, dev: Store) -> Finding | None:
    """``judge_unknown`` of what is prepared; None where the tokenizers can spell all text."""
    if tokenizers.source.knows_all and tokenizers.target.knows_all:
        return None
    counts = zip(dev.count_symbol(tokenizers.special.unknown), dev.tokens, strict=True)
    return judge_unknown([unknown / max(1, tokens) for unknown, tokens in counts])


def asked_sizes(config: RunConfig) -> dict[str, int | None]:
    """How many symbols each side's tokenizer has or is to have, as a model's configuration names them."""
    settings, there = config.tokenizer, None
    sizes = [side.vocab_size for side in settings.sides]
    for place, side in enumerate(settings.sides):
        with suppress(BadInputError):  # which whoever looks at the files says
            there = _read(_existing(side, config.data.folder)) if side.kind == "existing" else None
            if there is not None:
                sizes[place] = (there.source, there.target)[place if len(sizes) > 1 else 1].vocab_size
    if settings.shared and there is not None:
        return dict(there.sizes())
    return {"vocab_size": sizes[-1], "source_vocab_size": None if settings.shared else sizes[0]}


def tokenizer_files(config: RunConfig) -> list[Path]:
    """The files that the tokenizers are read from, if any."""
    paths = (_existing(side, config.data.folder) for side in config.tokenizer.sides if side.path is not None)
    return [file for path in paths for file in (sorted(path.glob("tokenizer*.json")) if path.is_dir() else [path])]


def _make(settings: VocabularyConfig, lines: "_Sides", symbols: tuple[str, ...], root: Path) -> TokenizerPair:
    match settings.kind:
        case "existing":
            path = _existing(settings, root)
            pair = _read(path)
            _check_symbols(pair, symbols, path)
            return pair
        case "sentencepiece":
            return TokenizerPair.of(import_sentencepiece(root / str(settings.path), symbols))
        case kind:
            return TokenizerPair.of(learn_tokenizer(kind, lines, settings.vocab_size, symbols))


def _existing(settings: VocabularyConfig, root: Path) -> Path:
    """The tokenizer's file, or the folder of the model that has it."""
    path = root / str(settings.path)
    return find_model(path) if path.is_dir() and settings.kind == "existing" else path


def _read(path: Path) -> TokenizerPair:
    return TokenizerPair.load(path) if path.is_dir() else TokenizerPair.of(Tokenizer.load(path))


def _check_symbols(pair: TokenizerPair, symbols: tuple[str, ...], path: Path) -> None:
    for tokenizer in (pair.source, pair.target):
        for symbol, ids in zip(symbols, tokenizer.encode(symbols), strict=True):
            if len(ids) != 1 or ids[0] == pair.special.unknown:
                raise BadInputError(
                    f"{path}: {symbol} is no symbol of this tokenizer: learn a new one, or leave the symbol or tag out"
                )


@dataclass(frozen=True)
class _TrainingPairs:
    """The training text, as often as it is asked for: ``learn_from`` pairs of it, evenly spread.

    Of a stream, these are the first; of a folder that is being written, what is there, once there is a file.
    """

    config: RunConfig

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self.config.data.streaming:
            return islice(self._first(), self._there)
        return islice(self._all(), 0, None, self._stride)

    def _first(self) -> Iterator[tuple[str, str]]:
        prefixes = [corpus.source_prefix for corpus in self.config.data.train]
        for record in read_beginning(self.config.data):
            if text_flaw(record.pair) is None:
                yield prefixes[record.corpus] + record.pair[0], record.pair[1]

    def _all(self) -> Iterator[tuple[str, str]]:
        data = self.config.data
        keep_invalid = data.invalid_utf8 == "drop"
        corpora = (read_corpus(corpus, data.folder, keep_invalid=keep_invalid) for corpus in data.train)
        return (pair for pair in chain.from_iterable(corpora) if text_flaw(pair) is None)

    @cached_property
    def _there(self) -> int:
        """How many a stream has at first: as it may grow, they are counted once."""
        wanted = self.config.tokenizer.learn_from
        return wanted if self.config.data.at_end != "wait" else sum(1 for _ in islice(self._first(), wanted))

    @cached_property
    def _stride(self) -> int:
        total = sum(1 for _ in self._all())
        return max(1, -(-total // self.config.tokenizer.learn_from))


@dataclass(frozen=True)
class _Sides:
    """Lines of one side or of both."""

    pairs: _TrainingPairs
    sides: tuple[int, ...]

    def __iter__(self) -> Iterator[str]:
        return (pair[side] for pair in self.pairs for side in self.sides)
