"""From the lines of corpora to pairs of ids, in this process or by the workers of a cluster."""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn, final

from transduce.config import BadInputError, RunConfig, TransduceError
from transduce.data import (
    DuplicateFinder,
    EncodedPair,
    PairFilter,
    Record,
    Tally,
    name_corpus,
    read_numbered,
    text_flaw,
)
from transduce.text import TokenizerPair
from transduce.workflows.cluster import Cluster, run_on_cluster

_log = logging.getLogger(__name__)

_LINES_AT_A_TIME: Final = 10_000
_Line = tuple[int, tuple[str, str]]
_Sides = tuple[list[str], list[str]]
_Ids = tuple[list[list[int]], list[list[int]]]


@final
@dataclass(frozen=True)
class _Block:
    """Lines of a corpus, which are tokenized together."""

    corpus: int
    source_prefix: str
    lines: list[_Line]

    @property
    def sides(self) -> _Sides:
        """What the tokenizers read."""
        return [self.source_prefix + pair[0] for _, pair in self.lines], [pair[1] for _, pair in self.lines]


def encode_dev(config: RunConfig, tokenizers: TokenizerPair, tally: Tally) -> Iterator[EncodedPair]:
    """Dev is scored whole: only what is no pair at all is left out."""
    corpus, root = config.data.dev, config.data.folder

    def blocks() -> Iterator[_Block]:
        for lines in _read_blocks(read_numbered(corpus, root, on_bad_tree=tally.leave_out_tree)):
            full = []
            for number, pair in lines:
                if (flaw := text_flaw(pair)) is None:
                    full.append((number, pair))
                else:
                    tally.notice(flaw, number, pair, dropped=True)
            yield _Block(0, corpus.source_prefix, full)

    for _, (number, _), (source, target) in _tokenize(blocks(), tokenizers):
        _check_length(config, tally, number, max(len(source), len(target)) + 1)
        tally.keep(source, target)
        yield source, target, 0


def _check_length(config: RunConfig, tally: Tally, number: int, length: int) -> None:
    """Training pairs are left out where they are too long (data.max_length); dev is scored whole, or not at all."""
    longest = config.model.longest
    if longest is not None and length > longest:
        raise BadInputError(
            f"{tally.name} line {number:,}: {length:,} symbols with the end symbol are more than the learned positions "
            f"(model.max_positions = {longest:,}): raise that, or take the line out"
        )


def encode_train(
    config: RunConfig, tokenizers: TokenizerPair, tallies: list[Tally], cluster: Cluster | None
) -> Generator[EncodedPair]:
    """Tokenize training pairs and leave out what a model should not learn from, counting why."""
    data = config.data
    dev = ((source, target) for _, source, target in read_numbered(data.dev, data.folder))
    with closing(DuplicateFinder()) as seen:
        accepted = PairFilter(data, dev, seen)
        blocks = _accepted(config, tallies, accepted)
        with closing(_tokenize(blocks, tokenizers, cluster)) as tokenized:
            for _, pair in _keep(tokenized, tallies, accepted):
                yield pair


def _keep(
    tokenized: Iterable[tuple[int, _Line, tuple[list[int], list[int]]]], tallies: list[Tally], accepted: PairFilter
) -> Iterator[tuple[int, EncodedPair]]:
    """Those of a length to learn from, by the numbers of their lines."""
    for index, line, (source, target) in tokenized:
        if (flaw := accepted.length_flaw(source, target)) is not None:
            tallies[index].notice(flaw, *line, dropped=True)
            continue
        tallies[index].keep(source, target)
        yield line[0], (source, target, index)


@final
class StreamEncoder:
    """``encode_train`` for records of corpora that are read while a training learns from them."""

    def __init__(self, config: RunConfig, tokenizers: TokenizerPair) -> None:
        data = config.data
        dev = ((source, target) for _, source, target in read_numbered(data.dev, data.folder))
        self._corpora, self._tokenizers, self._accepted = data.train, tokenizers, PairFilter(data, dev, None)
        self._tallies = [Tally(name_corpus(corpus, data.folder)) for corpus in data.train]
        self._told = False

    def encode(self, records: Sequence[Record]) -> list[EncodedPair]:
        """Those that are learned from, in order."""
        kept = _keep(_tokenize(self._blocks(records), self._tokenizers), self._tallies, self._accepted)
        return [pair for _, pair in sorted(kept, key=lambda each: each[0])]

    def report(self) -> list[str]:
        """What was kept and dropped since the last report."""
        lines = [line for tally in self._tallies for line in tally.lines()]
        if not self._told:  # of later passes it is the same
            self._told = True
            for complaint in filter(None, (tally.complaint() for tally in self._tallies)):
                _log.warning(complaint)
        self._tallies = [Tally(tally.name) for tally in self._tallies]
        return lines

    def _blocks(self, records: Sequence[Record]) -> Iterator[_Block]:
        for index, (corpus, tally) in enumerate(zip(self._corpora, self._tallies, strict=True)):
            lines = [(record.number, record.pair) for record in records if record.corpus == index]
            full = [line for line in lines if self._accepted.accepts_text(*line, tally)]
            yield _Block(index, corpus.source_prefix, full)


def _accepted(config: RunConfig, tallies: list[Tally], accepted: PairFilter) -> Iterator[_Block]:
    """The lines of all corpora whose texts a model may learn from."""
    data = config.data
    for index, (corpus, tally) in enumerate(zip(data.train, tallies, strict=True)):
        numbered = read_numbered(
            corpus, data.folder, keep_invalid=data.invalid_utf8 == "drop", on_bad_tree=tally.leave_out_tree
        )
        for lines in _read_blocks(numbered):
            full = [(number, pair) for number, pair in lines if accepted.accepts_text(number, pair, tally)]
            yield _Block(index, corpus.source_prefix, full)


def _read_blocks(numbered: Iterator[tuple[int, str, str]]) -> Iterator[list[_Line]]:
    while block := list(islice(numbered, _LINES_AT_A_TIME)):
        yield [(number, (source, target)) for number, source, target in block]


@final
@dataclass(frozen=True)
class _Tokenizing:
    """What workers of a cluster do, or this process."""

    tokenizers: TokenizerPair

    def start(self, _device: str | None) -> Callable[[_Sides], _Ids]:
        """The tokenizers came along."""
        return self.encode

    def encode(self, sides: _Sides) -> _Ids:
        """The ids of both."""
        return self.tokenizers.source.encode(sides[0]), self.tokenizers.target.encode(sides[1])


def _tokenize(
    blocks: Iterator[_Block], tokenizers: TokenizerPair, cluster: Cluster | None = None
) -> Generator[tuple[int, _Line, tuple[list[int], list[int]]]]:
    """The lines of blocks, in order, each with its corpus and its ids."""
    work, away = _Tokenizing(tokenizers), deque[_Block]()

    def sides() -> Iterator[_Sides]:
        for block in blocks:
            away.append(block)
            yield block.sides

    found: Iterator[_Ids]
    if cluster is None:
        found = map(work.encode, sides())
    else:
        found = run_on_cluster(work, sides(), _lost, cluster, in_order=True)
    for ids in found:
        block = away.popleft()
        for line, pair in zip(block.lines, zip(*ids, strict=True), strict=True):
            yield block.corpus, line, pair


def _lost(_sides: _Sides) -> NoReturn:
    raise TransduceError("several workers were lost at one block of lines: see to their machines' memory")
