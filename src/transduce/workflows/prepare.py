"""From text files to tokenizers and a store."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from transduce.config import BadInputError, Corpus, RunConfig, write_run
from transduce.config.disk import flush_folder
from transduce.data import (
    DuplicateFinder,
    EncodedPair,
    PairFilter,
    Store,
    Tally,
    name_corpus,
    read_numbered,
    text_flaw,
    write_store,
)
from transduce.text import TokenizerPair
from transduce.workflows.findings import find_same_text
from transduce.workflows.run_directory import RunDirectory, check_room, corpus_files
from transduce.workflows.vocabulary import find_small, make_tokenizers, tokenizer_files

_log = logging.getLogger(__name__)

_LINES_AT_A_TIME: Final = 10_000


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to train."""

    tokenizers: TokenizerPair
    train: Store
    dev: Store
    report: tuple[str, ...]
    new: bool = False


def prepare(config: RunConfig, run: RunDirectory) -> Prepared:
    """Make the tokenizers and write the stores, unless they stand there already for the same settings and files.

    Raises:
        BadInputError: A corpus cannot be read, its sides differ in length, or nothing of it is left; or the folder is
            no run's.
    """
    prepared = load_prepared(run)
    known = _known_tokenizers(config, run, prepared)
    check_files(config, tokenizers=known is None)
    for text in find_same_text(config):
        _log.warning(text)
    origin = _origin(config, known)
    if prepared and prepared.train.origin == origin == prepared.dev.origin:
        if run.has_checkpoints:  # a training writes its own settings down
            return prepared
        if _fits(prepared.dev, config):
            write_run(config, run.config)
            return prepared
    if run.has_checkpoints:
        _check_readable(run)
        raise BadInputError(
            f"{run.root}: its training began with other text or tokenizer settings (data, tokenizer, or the files "
            f"themselves): restore them to go on, or give another --out"
        )
    return _prepare_anew(config, run, origin)


def check_files(config: RunConfig, *, tokenizers: bool = True) -> None:
    """See that every file is there that a preparation reads, with or without those of ``tokenizers``.

    Raises:
        BadInputError: Some are not: each is named.
    """
    missing = [
        f"{path}: {'is a directory' if path.is_dir() else 'no such file'} (data.root is {config.data.root})"
        for path in dict.fromkeys([*corpus_files(config), *(tokenizer_files(config) if tokenizers else ())])
        if not path.is_file()
    ]
    if missing:
        raise BadInputError(*missing)


def load_prepared(run: RunDirectory) -> Prepared | None:
    """What an earlier preparation left, or None where any of it is missing or unreadable."""
    try:
        return _read_prepared(run)
    except BadInputError:
        return None


def share_preparation(base: RunDirectory, run: RunDirectory) -> None:
    """Give a run that has none the preparation of another, which is the same; it takes no more room on the disk."""
    if load_prepared(run) is not None:
        return
    run.train_store.parent.mkdir(parents=True, exist_ok=True)
    _link(base.train_store, run.train_store)
    _link(base.dev_store, run.dev_store)
    for path in [base.report, *base.root.glob("tokenizer*.json")]:
        shutil.copy2(path, run.root / path.relative_to(base.root))
    for folder in (run.train_store.parent, run.root):
        flush_folder(folder)


def _link(source: Path, target: Path) -> None:
    """A second name of a store, which is never written to, only replaced; or, where the disk has none, a copy."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _known_tokenizers(config: RunConfig, run: RunDirectory, prepared: Prepared | None) -> list[str] | None:
    """The digests of the tokenizers that a training was prepared with, where their files are gone: it has its own."""
    if prepared is None or not run.has_checkpoints:
        return None
    paths = [config.data.folder / str(side.path) for side in config.tokenizer.sides if side.path is not None]
    if all(path.exists() for path in paths):
        return None
    return prepared.train.origin.get("files", "").split()[len(corpus_files(config)) :]


def _check_readable(run: RunDirectory) -> None:
    try:
        _read_prepared(run)
    except BadInputError as error:
        raise BadInputError(
            f"{error}. But {run.root} holds a training, which goes on with this very preparation only: restore the "
            f"file, or train anew with another --out"
        ) from error


def _read_prepared(run: RunDirectory) -> Prepared:
    report = run.report.read_text(encoding="utf-8").splitlines() if run.report.is_file() else []
    tokenizers, train, dev = TokenizerPair.load(run.root), Store(run.train_store), Store(run.dev_store)
    for store in (train, dev):
        store.verify()
    return Prepared(tokenizers, train, dev, tuple(report))


def _prepare_anew(config: RunConfig, run: RunDirectory, origin: dict[str, str]) -> Prepared:
    check_room(run)
    run.train_store.parent.mkdir(parents=True, exist_ok=True)
    # They are written last: while they are missing, no preparation is complete.
    TokenizerPair.remove(run.root)
    tokenizers = make_tokenizers(config)
    for text in find_small(config, tokenizers):
        _log.warning(text)
    sizes = " and ".join(f"{size:,}" for size in reversed(tokenizers.sizes().values()))
    report = [f"tokenizer: {sizes} symbols"]
    dev = Tally(f"dev {name_corpus(config.data.dev, config.data.folder)}")
    write_store(run.dev_store, _encode_dev(config, tokenizers, dev), origin)
    train = [Tally(f"train {name_corpus(corpus, config.data.folder)}") for corpus in config.data.train]
    write_store(run.train_store, _encode_train(config, tokenizers, train), origin)
    for tally in (*train, dev):
        report += tally.lines()
        if not tally.kept:
            raise BadInputError(f"no pair is left of {'; '.join(line.strip() for line in tally.lines())}")
    run.report.write_text("".join(f"{line}\n" for line in report), encoding="utf-8")
    tokenizers.save(run.root)
    write_run(config, run.config)
    # A training can go on with this very preparation only: it must not be lost with the power.
    for folder in (run.train_store.parent, run.root):
        flush_folder(folder)
    return replace(_read_prepared(run), new=True)


def _fits(dev: Store, config: RunConfig) -> bool:
    """Whether the learned positions, which may have become fewer, still reach for dev: if not, its line is named."""
    longest = config.model.longest
    return longest is None or max(dev.longest) < longest


def _encode_dev(config: RunConfig, tokenizers: TokenizerPair, tally: Tally) -> Iterator[EncodedPair]:
    """Dev is scored whole: only what is no pair at all is left out."""
    corpus, root = config.data.dev, config.data.folder
    for block in _blocks(read_numbered(corpus, root, on_bad_tree=tally.leave_out_tree)):
        full = []
        for number, pair in block:
            if (flaw := text_flaw(pair)) is None:
                full.append((number, pair))
            else:
                tally.notice(flaw, number, pair, dropped=True)
        for (number, _), (source, target) in zip(full, _tokenize(corpus, full, tokenizers), strict=True):
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


def _encode_train(config: RunConfig, tokenizers: TokenizerPair, tallies: list[Tally]) -> Iterator[EncodedPair]:
    """Tokenize training pairs and leave out what a model should not learn from, counting why."""
    data = config.data
    dev = ((source, target) for _, source, target in read_numbered(data.dev, data.folder))
    with closing(DuplicateFinder()) as seen:
        accepted = PairFilter(data, dev, seen)
        yield from _accepted(config, tokenizers, tallies, accepted)


def _accepted(
    config: RunConfig, tokenizers: TokenizerPair, tallies: list[Tally], accepted: PairFilter
) -> Iterator[EncodedPair]:
    data = config.data
    for index, (corpus, tally) in enumerate(zip(data.train, tallies, strict=True)):
        numbered = read_numbered(
            corpus, data.folder, keep_invalid=data.invalid_utf8 == "drop", on_bad_tree=tally.leave_out_tree
        )
        for block in _blocks(numbered):
            full = [(number, pair) for number, pair in block if accepted.accepts_text(number, pair, tally)]
            for line, (source, target) in zip(full, _tokenize(corpus, full, tokenizers), strict=True):
                if (flaw := accepted.length_flaw(source, target)) is not None:
                    tally.notice(flaw, *line, dropped=True)
                    continue
                tally.keep(source, target)
                yield source, target, index


_Line = tuple[int, tuple[str, str]]


def _blocks(numbered: Iterator[tuple[int, str, str]]) -> Iterator[list[_Line]]:
    while block := list(islice(numbered, _LINES_AT_A_TIME)):
        yield [(number, (source, target)) for number, source, target in block]


def _tokenize(corpus: Corpus, lines: list[_Line], tokenizers: TokenizerPair) -> Iterator[tuple[list[int], list[int]]]:
    prefix = corpus.source_prefix
    sources = tokenizers.source.encode([prefix + source for _, (source, _) in lines])
    targets = tokenizers.target.encode([target for _, (_, target) in lines])
    return zip(sources, targets, strict=True)


def _origin(config: RunConfig, tokenizers: list[str] | None = None) -> dict[str, str]:
    """What a preparation depends on: its settings, and what the files hold, wherever they are.

    ``tokenizers`` are the digests of the tokenizers' files, where these need not be read.
    """
    digests = []
    for path in [*corpus_files(config), *(tokenizer_files(config) if tokenizers is None else ())]:
        with path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    data = config.data.model_dump(exclude={"root": True, "test": True, "train": {"__all__": {"weight"}}})
    return {
        "data": json.dumps(data),
        "tags": " ".join(config.data.tags),
        "tokenizer": config.tokenizer.model_dump_json(exclude={"bpe_dropout"}),
        "files": " ".join([*digests, *(tokenizers or ())]),
    }
