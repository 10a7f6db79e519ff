"""Subtitles in SubRip's format (.srt): their texts out, and translations back at the same times."""

import logging
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, final

from transduce.config import BadInputError
from transduce.text.blocks import Block, BlockReader
from transduce.text.pieces import AlignedText
from transduce.text.projection import Segment, check_count, find_segments, write_block

_TIME: Final = r"(?:\d+:)?\d+:\d+[,.]\d+"
_TIMES: Final = re.compile(rf"[^\S\n]*{_TIME}[^\S\n]*-->[^\S\n]*{_TIME}[^\n]*")
_ARROW: Final = "-->"
_OF_TIMES: Final = frozenset("0123456789:., \t-\u2013\u2014=>")
_NUMBER: Final = re.compile(r"\s*\d+\s*")
# Tags that players know, and orders such as {\an8}.
_TAG: Final = re.compile(r"</?(?:b|i|u|s|font)(?:\s[^<>]*)?>|\{\\[^{}]*\}", re.IGNORECASE)
_WORDS: Final = re.compile(rf"(?:{_TAG.pattern}|\S)+", re.IGNORECASE)
_LINES: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_NAME: Final = re.compile(r"</?(\w+)")
_log = logging.getLogger(__name__)
_DASH: Final = re.compile(r"\s*[-‐‑‒–—]\s*")  # another one speaks


@final
@dataclass(frozen=True)
class _Cue:
    """What is shown at a time: its number and times, a text for each speaker or paragraph, and the end of its lines."""

    head: str
    texts: tuple[Block | str, ...]
    tail: str


@final
class Subtitles:
    r"""The cues of a file. Numbers, times and their order stay to the letter, and a text has as many lines as before.

    Each cue is translated on its own, its lines as one text; a line that begins with a dash is another speaker's. Tags
    of players (``<i>``, ``{\\an8}``) stay around their words, as HTML's do.
    """

    def __init__(self, cues: Sequence[_Cue]) -> None:
        self._cues = tuple(cues)
        blocks = (text for cue in self._cues for text in cue.texts if isinstance(text, Block))
        self._segments = tuple(segment for block in blocks for segment in find_segments(block))

    @classmethod
    def read(cls, text: str, language: str | None = None) -> "Subtitles":
        """Read the text of a file.

        Numbers may be missing, lines may end as in files from Windows, and texts may have empty lines. A damaged line
        of times stays as it is, with a warning, and what follows it is a cue.

        Args:
            text: All of it.
            language: Its language, a code such as ``de``, to split texts into sentences (``split_sentences``). None
                leaves them whole.

        Raises:
            BadInputError: There is text and no cue, or ``language`` is no language.
            TransduceError: With a language, the extra ``paragraphs`` is not installed.
        """
        lines = _LINES.findall(text)
        bare = [line.rstrip().removeprefix("\ufeff") for line in lines]
        times = [number for number, line in enumerate(bare) if _TIMES.fullmatch(line)]
        if not times and text.strip("\ufeff \t\r\n"):
            raise BadInputError("no subtitles: a line of times belongs here, such as 00:00:01,000 --> 00:00:02,500")
        if damaged := [n for n, line in enumerate(bare) if _is_damaged(line)]:
            more = f" ({len(damaged):,} such lines in all)" if len(damaged) > 1 else ""
            _log.warning(
                f"line {damaged[0] + 1:,}: {bare[damaged[0]]!r} is no line of times such as 00:00:01,000 --> "
                f"00:00:02,500, and stays as it is{more}: players may leave the subtitle out"
            )
            times = sorted([*times, *damaged])
        begins = [number - bool(number and _NUMBER.fullmatch(lines[number - 1])) for number in times]
        cues = [_Cue("".join(lines[: begins[0]] if times else lines), (), "")]
        for time, (begin, end) in zip(times, pairwise([*begins, len(lines)]), strict=True):
            cues.append(_read_cue("".join(lines[begin : time + 1]), "".join(lines[time + 1 : end]), language))
        return cls(cues)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What is to be translated, in order."""
        return self._segments

    def write(self, outputs: Sequence[AlignedText | None]) -> str:
        """The file with a translation of each segment; None leaves one as it is.

        Raises:
            BadInputError: There are more outputs than segments, or fewer; or an alignment names a word that there is
                not.
        """
        check_count(outputs, self._segments)
        waiting = iter(outputs)
        return "".join(part for cue in self._cues for part in _write_cue(cue, waiting))


def _is_damaged(line: str) -> bool:
    """Whether a line is meant as one of times: one with two colons, and no words on either side of the arrow."""
    if ">" not in line or _TIMES.fullmatch(line):
        return False
    before, _, after = line.partition(_ARROW if _ARROW in line else ">")
    sides = [before.split(), after.split()[: None if _OF_TIMES.issuperset(line) else 1]]
    bare = _OF_TIMES.issuperset(line) or (_ARROW in line and all(len(words) == 1 for words in sides))
    return bare and any(word.count(":") > 1 for words in sides for word in words)


def _read_cue(head: str, rest: str, language: str | None) -> _Cue:
    text = rest.strip()
    start = len(rest) - len(rest.lstrip())
    lines = [line.rstrip("\r\n") for line in _LINES.findall(text)]
    groups: list[list[str]] = []
    for line in lines:
        if not groups or not line.strip() or not groups[-1][-1].strip() or _DASH.match(line):
            groups.append([])
        groups[-1].append(line)
    texts = [_read_text("\n".join(group), language) for group in groups]
    return _Cue(head + rest[:start], tuple(texts), rest[start + len(text) :])


def _read_text(text: str, language: str | None) -> Block | str:
    """What one says: a block, or what it is where there is nothing to translate."""
    reader = BlockReader(str)
    if dash := _DASH.match(text):
        reader.add_placeholder(dash[0].rstrip(), visible=False)
        reader.add_text(dash[0][len(dash[0].rstrip()) :])
    start = dash.end() if dash else 0
    partners = _pair_tags(text, start)
    for tag in _TAG.finditer(text, start):
        reader.add_text(text[start : tag.start()])
        start = tag.end()
        if tag.start() not in partners:
            reader.add_placeholder(tag[0], visible=False)
        elif partners[tag.start()] > tag.start():
            reader.open(tag[0])
        else:
            reader.close(tag[0])
    reader.add_text(text[start:])
    return reader.finish(language)


def _pair_tags(text: str, start: int) -> dict[int, int]:
    """Where the tags with words between them are, each with the place of its counterpart; the others are left out."""
    partners: dict[int, int] = {}
    open_: list[tuple[str, int, int]] = []
    counts: Counter[str] = Counter()
    words = end = start
    for tag in _TAG.finditer(text, start):
        if text[end : tag.start()].strip():
            words = tag.start()  # the last place with words before it
        end = tag.end()
        if (name := _NAME.match(tag[0])) is None:
            continue
        kind = name[1].lower()
        if not tag[0].startswith("</"):
            open_.append((kind, tag.start(), tag.end()))
            counts[kind] += 1
        elif counts[kind]:
            while open_:
                opened, begin, after = open_.pop()
                counts[opened] -= 1
                if opened == kind:
                    break
            if words >= after:
                partners |= {begin: tag.start(), tag.start(): begin}
    return partners


def _write_cue(cue: _Cue, outputs: Iterator[AlignedText | None]) -> Iterator[str]:
    yield cue.head
    line_end = "\r\n" if cue.head.endswith("\r\n") else "\n"
    for number, text in enumerate(cue.texts):
        if number:
            yield line_end
        if isinstance(text, str):
            yield text.replace("\n", line_end)
        else:
            written = write_block(text, outputs, str)
            lines = text.markup.count("\n") + 1
            yield (written if written == text.markup else _wrap(written, lines)).replace("\n", line_end)
    yield cue.tail


def _wrap(text: str, lines: int) -> str:
    """A text on so many lines of about the same length; tags are not torn and have none."""
    words = _WORDS.findall(text)
    ends = list(accumulate(len(_TAG.sub("", word)) + 1 for word in words))
    starts = [0]
    for line in range(1, lines):
        wanted = ends[-1] * line / lines if ends else 0
        start = bisect(ends, wanted)  # the last word that ends before, or the one after it where that ends nearer
        start += start < len(ends) and (start == 0 or ends[start] - wanted < wanted - ends[start - 1])
        least, most = starts[-1] + 1, len(words) - 1
        starts.append(min(max(start, least), most) if least <= most else len(words))
    return "\n".join(" ".join(words[a:b]) for a, b in pairwise([*starts, len(words)]) if a < b)
