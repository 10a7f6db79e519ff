"""A corpus as files that come one after another: one, those of a folder or of a pattern, or those that are to come."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import final

from transduce.config import BadInputError, Corpus
from transduce.data.corpus import make_task, name_corpus, place_of, read_files
from transduce.data.places import SUCCESS, Listing, find_files, list_files


@final
@dataclass(frozen=True)
class Part:
    """A file of pairs, or a source and a target file, with their sizes in bytes; parts come in the order of names."""

    name: str
    places: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def order(self) -> list[str]:
        """What parts are sorted by."""
        return self.name.split("/")


@final
@dataclass(frozen=True)
class Cursor:
    """How far a pass through a corpus has come: its last part, the records read of that, and of the whole corpus."""

    part: str | None = None
    record: int = 0
    number: int = 0
    done: bool = False  # the part is read to its end
    over: bool = False  # and so is the corpus


# Of parts that were read, the sizes of their files.
Sizes = Mapping[str, tuple[int, ...]]


@final
class PartReader:
    """One pass through a corpus from a cursor on, in parts that may still be coming.

    ``cursor`` is where it stands, behind the last record that it gave; ``sizes`` are of all parts that were ever read,
    and ``listed`` the names of those of this pass, where it waits for no more.
    """

    def __init__(
        self,
        corpus: Corpus,
        root: Path,
        cursor: Cursor,
        sizes: Sizes,
        listed: Sequence[str],
        *,
        waits: bool,
        keep_invalid: bool,
    ) -> None:
        """With ``waits``, a folder that has no ``_SUCCESS`` is still being written.

        A pass that has begun keeps to what was ``listed`` then: what has come since is the next one's.

        Raises:
            BadInputError: There is no such corpus, or a part that was read or listed has changed or is gone.
        """
        self._corpus, self._root, self._waits, self._keep_invalid = corpus, root, waits, keep_invalid
        self.cursor, self.sizes = cursor, dict(sizes)
        self._alone: str | None = None
        self._parts, self._whole = self._list()
        self._check_sizes()
        self._check_order()
        if listed:
            self._keep(set(listed))
        self.listed = () if waits else tuple(part.name for part in self._parts)

    @property
    def missing(self) -> str:
        """What it waits for, where nothing is there yet, for people."""
        return self._alone or f"its next file, or {SUCCESS}"

    def records(self) -> Iterator[tuple[str, str] | None]:
        """The pairs; None where more may come and nothing is there yet.

        Raises:
            BadInputError: A part cannot be read, or comes too late for its name.
        """
        first, last = self._corpus.lines or (1, None)
        while not self.cursor.over:
            if (part := self._next()) is None:
                if not self._whole:
                    yield None
                    self._parts, self._whole = self._list()
                    self._check_order()
                    continue
                if last is not None and self.cursor.number < last:
                    name = name_corpus(self._corpus, self._root)
                    raise BadInputError(f"{name}: ends before line {last:,}, which lines asks for")
                break
            self.sizes[part.name] = part.sizes
            record = skipped = self.cursor.record if part.name == self.cursor.part else 0
            before = self.cursor.number - skipped
            for record, pair in enumerate(islice(self._read(part), skipped, None), start=skipped + 1):
                number = before + record
                self.cursor = Cursor(part.name, record, number, over=number == last)
                if number >= first:
                    yield pair
                if number == last:
                    return
            self.cursor = Cursor(part.name, record, before + record, done=True)
        self.cursor = Cursor(self.cursor.part, self.cursor.record, self.cursor.number, done=True, over=True)

    def _next(self) -> Part | None:
        """The part to go on with, if it is there."""
        if self.cursor.part is None:
            return next(iter(self._parts), None)
        find = bisect_right if self.cursor.done else bisect_left
        index = find(self._parts, Part(self.cursor.part).order, key=lambda part: part.order)
        return self._parts[index] if index < len(self._parts) else None

    def _read(self, part: Part) -> Iterator[tuple[str, str]]:
        if self._corpus.made_up is not None:
            return make_task(self._corpus.made_up, self._corpus.count, self._corpus.seed)
        return read_files(part.places, self._corpus, keep_invalid=self._keep_invalid)

    def _list(self) -> tuple[list[Part], bool]:
        """The parts that are there, and whether these are all."""
        corpus = self._corpus
        if corpus.made_up is not None:
            return [Part(corpus.made_up)], True
        patterns = [place_of(name, self._root) for name in (corpus.pairs, corpus.source, corpus.target) if name]
        listings = [list_files(pattern) for pattern in patterns]
        whole = not self._waits or all(listing.whole for listing in listings)
        if whole and not any(listing.files for listing in listings):
            find_files(patterns[0])  # which says what is wrong
        if corpus.pairs is not None:
            return [Part(file.name, (file.place,), (file.size,)) for file in listings[0].files], whole
        parts, alone = _join(listings)
        self._alone = None if alone is None else f"a file of {patterns[1 - alone[0]]} that belongs to {alone[1]}"
        if alone is not None and whole:
            raise BadInputError(
                f"{alone[1]}: no file of {patterns[1 - alone[0]]} belongs to it: parallel files differ in nothing but "
                f'what is no wild card (source = "en/*.en.gz", target = "de/*.de.gz"); each needs its other side'
                + ("" if not any(listing.whole for listing in listings) else f" before {SUCCESS} is written")
            )
        return parts, whole

    def _check_sizes(self) -> None:
        known = {part.name: part for part in self._parts}
        for name, sizes in self.sizes.items():
            what = f"{name_corpus(self._corpus, self._root)}: its file {name}"
            again = (
                "put it back, or train anew with another --out: a training that streams reads what it has read before"
            )
            if name not in known:
                raise BadInputError(f"{what}, of {_bytes(sizes)}, was read before and is gone: {again}")
            if known[name].sizes != sizes:
                now = _bytes(known[name].sizes)
                raise BadInputError(f"{what} had {_bytes(sizes)} when it was read before, and has {now} now: {again}")

    def _keep(self, listed: set[str]) -> None:
        """Leave the parts to the next pass that have come since this one began."""
        self._parts = [part for part in self._parts if part.name in listed]
        gone = sorted(listed - {part.name for part in self._parts})
        if gone:
            raise BadInputError(
                f"{name_corpus(self._corpus, self._root)}: its file {gone[0]} was there when this pass began and is "
                f"gone: put it back, or train anew with another --out"
            )

    def _check_order(self) -> None:
        """A part whose turn is over would never be read."""
        if not self._waits or self.cursor.part is None:
            return
        here = Part(self.cursor.part).order
        late = next((part for part in self._parts if part.order < here and part.name not in self.sizes), None)
        if late is not None:
            raise BadInputError(
                f"{' and '.join(late.places)}: came when {self.cursor.part} was being read already, and files are read "
                f"in the order of their names: let names rise with time (part-00017.jsonl), and rename this file"
            )


def _bytes(sizes: tuple[int, ...]) -> str:
    return f"{' and '.join(f'{size:,}' for size in sizes)} bytes"


def _join(listings: list[Listing]) -> tuple[list[Part], tuple[int, str] | None]:
    """Parallel files by what their names have in common, as far as both sides are there; and the first without one.

    That is its side, 0 for the source, and its place.
    """
    sides = [{file.stem: file for file in listing.files} for listing in listings]
    parts: list[Part] = []
    for stem in sorted({*sides[0], *sides[1]}, key=lambda stem: stem.split("/")):
        there = [side for side in (0, 1) if stem in sides[side]]
        if len(there) == 1:
            return parts, (there[0], sides[there[0]][stem].place)
        source, target = sides[0][stem], sides[1][stem]
        parts.append(Part(stem or source.name, (source.place, target.place), (source.size, target.size)))
    return parts, None
