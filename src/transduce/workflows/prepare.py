"""From text files to a tokenizer and a store."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

from transduce.config import BadInputError, Corpus, RunConfig, write_run
from transduce.data import EncodedPair, Store, corpus_paths, read_corpus, write_store
from transduce.text import Tokenizer, learn_bpe
from transduce.workflows.run_directory import RunDirectory, corpus_files

_LINES_AT_A_TIME: Final = 10_000


@dataclass
class Counts:
    """What became of the pairs of one corpus."""

    kept: int = 0
    empty: int = 0
    too_long: int = 0

    def __str__(self) -> str:
        return f"{self.kept:,} pairs kept, {self.empty:,} dropped with an empty side, {self.too_long:,} too long"


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to train."""

    tokenizer: Tokenizer
    train: Store
    dev: Store
    report: tuple[str, ...] = field(default=())


def prepare(config: RunConfig, run: RunDirectory) -> Prepared:
    """Learn the tokenizer and write the stores, unless they stand there already for the same settings and files.

    Raises:
        BadInputError: A corpus cannot be read, its sides differ in length, or nothing of it is left.
    """
    for path in corpus_files(config):
        if not path.is_file():
            raise BadInputError(
                f"{path}: {'is a directory' if path.is_dir() else 'no such file'} (data.root is {config.data.root})"
            )
    origin = _origin(config)
    if (prepared := load_prepared(run)) and prepared.train.origin == origin == prepared.dev.origin:
        if not run.has_checkpoints:  # a training writes its own settings down
            write_run(config, run.config)
        return prepared
    if run.has_checkpoints:
        _read_prepared(run)  # damage has its own message
        raise BadInputError(
            f"{run.root}: its training began with other text or tokenizer settings (data, tokenizer, or the files "
            f"themselves): restore them to go on, or give another --out"
        )
    run.train_store.parent.mkdir(parents=True, exist_ok=True)
    # It is written last: while it is missing, no preparation is complete.
    run.tokenizer.unlink(missing_ok=True)
    tokenizer = learn_bpe(_Lines(config), config.tokenizer.vocab_size)
    report = [f"tokenizer: {tokenizer.vocab_size:,} symbols"]
    for name, corpus, path in (("train", config.data.train, run.train_store), ("dev", config.data.dev, run.dev_store)):
        counts = Counts()
        # Dev is scored whole: only training pairs are left out for their length.
        longest = config.data.max_length if name == "train" else None
        write_store(path, _encode(_pairs(config, corpus), tokenizer, longest, counts), origin)
        report.append(f"{name}: {counts}")
        if not counts.kept:
            first = corpus_paths(corpus, config.data.folder)[0]
            raise BadInputError(f"{first}: no pair is left for {name}: {counts}")
    tokenizer.save(run.tokenizer)
    write_run(config, run.config)
    return replace(_read_prepared(run), report=tuple(report))


def load_prepared(run: RunDirectory) -> Prepared | None:
    """What an earlier preparation left, or None where any of it is missing or unreadable."""
    try:
        return _read_prepared(run)
    except BadInputError:
        return None


def _read_prepared(run: RunDirectory) -> Prepared:
    return Prepared(Tokenizer.load(run.tokenizer), Store(run.train_store), Store(run.dev_store))


@dataclass(frozen=True)
class _Lines:
    """All lines of the training text, both sides, as often as they are asked for."""

    config: RunConfig

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(_pairs(self.config, self.config.data.train))


def _pairs(config: RunConfig, corpus: Corpus) -> Iterator[tuple[str, str]]:
    return read_corpus(corpus, config.data.folder)


def _encode(
    pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, longest: int | None, counts: Counts
) -> Iterator[EncodedPair]:
    """Tokenize pairs and leave out what a model cannot learn from, counting why."""
    remaining = iter(pairs)
    while block := list(islice(remaining, _LINES_AT_A_TIME)):
        full = [(source, target) for source, target in block if source.strip() and target.strip()]
        counts.empty += len(block) - len(full)
        sources, targets = (tokenizer.encode([pair[side] for pair in full]) for side in (0, 1))
        for source, target in zip(sources, targets, strict=True):
            if longest is not None and max(len(source), len(target)) + 1 > longest:
                counts.too_long += 1
                continue
            counts.kept += 1
            yield source, target


def _origin(config: RunConfig) -> dict[str, str]:
    """What a preparation depends on: its settings, and what the files hold, wherever they are."""
    digests = []
    for path in corpus_files(config):
        with path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return {
        "data": config.data.model_dump_json(exclude={"root"}),
        "tokenizer": config.tokenizer.model_dump_json(),
        "files": " ".join(digests),
    }
