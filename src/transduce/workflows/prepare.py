"""From text files to tokenizers and a store."""

import hashlib
import json
import logging
import os
import re
import shutil
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from transduce.config import BadInputError, RunConfig, write_run
from transduce.config.disk import flush_folder
from transduce.data import (
    Store,
    Tally,
    is_text,
    name_corpus,
    write_store,
)
from transduce.text import TokenizerPair
from transduce.workflows.cluster import Cluster
from transduce.workflows.encoding import encode_dev, encode_train
from transduce.workflows.findings import find_same_text, find_swapped
from transduce.workflows.run_directory import RunDirectory, check_room, corpus_files
from transduce.workflows.vocabulary import check_trees, find_small, find_unknown, make_tokenizers, tokenizer_files

_log = logging.getLogger(__name__)

_SEVERAL: Final = r"[*?\[]|:/"  # in a pattern or an address
_STREAMS: Final = "; folders, patterns and addresses are for training corpora with data.streaming = true"
_STREAMING: Final = "streaming"  # in the origin of dev, where there is no other store


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to train; one that streams has no training store."""

    tokenizers: TokenizerPair
    train: Store | None
    dev: Store
    report: tuple[str, ...]
    new: bool = False

    @property
    def stored(self) -> Store:
        """The training pairs of a run that does not stream."""
        assert self.train is not None
        return self.train


def prepare(config: RunConfig, run: RunDirectory, cluster: Cluster | None = None) -> Prepared:
    """Make the tokenizers and write the stores, unless they stand there already for the same settings and files.

    Of a run that streams, the training text is looked into for the tokenizers alone. With a cluster, its workers
    tokenize the training text, and the files are the same.

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
    if prepared and all(store.origin == origin for store in (prepared.train, prepared.dev) if store is not None):
        if run.has_checkpoints:  # a training writes its own settings down
            return prepared
        if _fits(prepared.dev, config):
            write_run(config, run.config)
            return prepared
    if run.has_checkpoints:
        _check_readable(run)
        files = [] if prepared is None else _changed_files(config, origin, prepared.dev.origin, read=known is None)
        what = f"files have changed since: {', '.join(files)}" if files else "data, tokenizer, or the files themselves"
        raise BadInputError(
            f"{run.root}: its training began with other text or tokenizer settings ({what}): restore them to go on, or "
            f"give another --out"
        )
    return _prepare_anew(config, run, origin, cluster)


def check_files(config: RunConfig, *, tokenizers: bool = True) -> None:
    """See that every file is there that a preparation reads, with or without those of ``tokenizers``.

    Raises:
        BadInputError: Some are not, or have a name that no run file can hold: each is named.
    """
    paths = dict.fromkeys([*corpus_files(config), *(tokenizer_files(config) if tokenizers else ())])
    if unwritable := [path for path in paths if not is_text(str(path))]:
        raise BadInputError(
            *(f"{path}: the name is no UTF-8, as a run file is: rename the file or its folder" for path in unwritable)
        )
    missing = [
        f"{path}: {'is a directory' if path.is_dir() else 'no such file'} (data.root is {config.data.root}, "
        f"--set data.root=DIR gives another"
        f"{_STREAMS if path.is_dir() or re.search(_SEVERAL, str(path)) else ''})"
        for path in paths
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


def identify(run: RunDirectory, prepared: Prepared) -> str:
    """What tells this preparation from others: the bytes of its tokenizers, and those of the text in its store."""
    found = hashlib.sha256(b"" if prepared.train is None else prepared.dev.origin.get("files", "").encode())
    for path in sorted(run.root.glob("tokenizer*.json")):
        found.update(path.read_bytes())
    return found.hexdigest()


def share_preparation(base: RunDirectory, run: RunDirectory) -> None:
    """Give a run that has none the preparation of another, which is the same; it takes no more room on the disk."""
    if load_prepared(run) is not None:
        return
    run.train_store.parent.mkdir(parents=True, exist_ok=True)
    if base.train_store.is_file():
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


def _changed_files(config: RunConfig, new: dict[str, str], old: dict[str, str], *, read: bool) -> list[str]:
    """The files that hold something else than they did, where they are the same ones.

    ``read`` says whether tokenizers' files are among those that ``new`` is of.
    """
    paths = [*corpus_files(config), *(tokenizer_files(config) if read else ())]
    now, was = (origin.get("files", "").split()[: len(paths)] for origin in (new, old))
    if len(now) != len(was) or any(new.get(name) != old.get(name) for name in ("data", "tokenizer")):
        return []
    return [str(path) for path, *digests in zip(paths, now, was, strict=True) if digests[0] != digests[1]]


def _known_tokenizers(config: RunConfig, run: RunDirectory, prepared: Prepared | None) -> list[str] | None:
    """The digests of the tokenizers that a training was prepared with, where their files are gone: it has its own."""
    if prepared is None or not run.has_checkpoints:
        return None
    paths = [config.data.folder / str(side.path) for side in config.tokenizer.sides if side.path is not None]
    if all(path.exists() for path in paths):
        return None
    return prepared.dev.origin.get("files", "").split()[len(corpus_files(config)) :]


def _check_readable(run: RunDirectory) -> None:
    try:
        _read_prepared(run)
    except BadInputError as error:
        raise BadInputError(
            f"{error}. As {run.root} holds a training, which goes on with this very preparation only, prepare with the "
            f"same settings and files in another --out, and copy store and tokenizer*.json from there; or train anew "
            f"with another --out"
        ) from error


def _read_prepared(run: RunDirectory) -> Prepared:
    # For people alone: whatever became of it, the preparation is whole.
    report = run.report.read_text(encoding="utf-8", errors="replace").splitlines() if run.report.is_file() else []
    tokenizers, dev = TokenizerPair.load(run.root), Store(run.dev_store)
    train = None if _STREAMING in dev.origin else Store(run.train_store)
    for store in (train, dev):
        if store is not None:
            store.verify()
    return Prepared(tokenizers, train, dev, tuple(report))


def _prepare_anew(config: RunConfig, run: RunDirectory, origin: dict[str, str], cluster: Cluster | None) -> Prepared:
    check_room(run)
    run.train_store.parent.mkdir(parents=True, exist_ok=True)
    # They are written last: while they are missing, no preparation is complete.
    TokenizerPair.remove(run.root)
    tokenizers = make_tokenizers(config)
    check_trees(config, tokenizers)
    for text in (*find_small(config, tokenizers), *find_swapped(config)):
        _log.warning(text)  # before hours of encoding
    sizes = " and ".join(f"{size:,}" for size in reversed(tokenizers.sizes().values()))
    report = [f"tokenizer: {sizes} symbols"]
    dev = Tally(f"dev {name_corpus(config.data.dev, config.data.folder)}")
    write_store(run.dev_store, encode_dev(config, tokenizers, dev), origin)
    train: list[Tally] = []
    if config.data.streaming:
        run.train_store.unlink(missing_ok=True)
        report += [
            f"train {name_corpus(corpus, config.data.folder)}: read while it trains" for corpus in config.data.train
        ]
    else:
        train = [Tally(f"train {name_corpus(corpus, config.data.folder)}") for corpus in config.data.train]
        with closing(encode_train(config, tokenizers, train, cluster)) as pairs:
            write_store(run.train_store, pairs, origin)
    for tally in (*train, dev):
        report += tally.lines()
        if not tally.kept and not tally.dropped:
            raise BadInputError(f"{tally.name}: no pair in it: an empty file, or one of blank lines alone")
        if not tally.kept:
            raise BadInputError(f"no pair is left of {'; '.join(line.strip() for line in tally.lines())}")
        if (complaint := tally.complaint()) is not None:
            _log.warning(complaint)
    if (unknown := find_unknown(tokenizers, Store(run.dev_store))) is not None:
        report.append(unknown.text)
        if unknown.kind == "warning":
            _log.warning(unknown.text)
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


def _origin(config: RunConfig, tokenizers: list[str] | None = None) -> dict[str, str]:
    """What a preparation depends on: its settings, and what the files hold, wherever they are.

    ``tokenizers`` are the digests of the tokenizers' files, where these need not be read.
    """
    digests = []
    for path in [*corpus_files(config), *(tokenizer_files(config) if tokenizers is None else ())]:
        with path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    data = config.data.model_dump(
        exclude={
            "root": True,
            "test": True,
            "train": {"__all__": {"weight"}},
            # What older preparations do not know, and are the same without.
            **dict.fromkeys(("streaming", "shuffle_window", "at_end"), True),
        }
    )
    return {
        **({_STREAMING: "true"} if config.data.streaming else {}),
        "data": json.dumps(data),
        "tags": " ".join(config.data.tags),
        "tokenizer": config.tokenizer.model_dump_json(exclude={"bpe_dropout"}),
        "files": " ".join([*digests, *(tokenizers or ())]),
    }
