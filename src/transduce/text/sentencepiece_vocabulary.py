"""SentencePiece models whose ids come from a vocabulary beside them, which several models may share, as in OPUS-MT.

A piece has the id that the vocabulary gives its text. A run of characters that the model has no pieces for is looked up
whole, as where SentencePiece and the vocabulary are two steps, and is otherwise unknown; a BPE does so with single
characters. No other piece of another model ever comes out of a text, though every id becomes text again.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, assert_never, final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from transduce.config import BadInputError
from transduce.text.guard import guarded
from transduce.text.sentencepiece import decoder_of, merges_of, normalizer_of
from transduce.text.sentencepiece_file import PieceKind, StoredModel
from transduce.text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer, add_special

_SPACE: Final = "▁"
# A character that no text has and no model has a piece for.
_NOBODY: Final = "\U0010fffd"


def text_pieces(stored: StoredModel) -> list[str]:
    """The pieces that a text may be cut into."""
    return [piece.text for piece in stored.pieces if piece.kind is PieceKind.NORMAL]


def sentencepiece_over(
    stored: StoredModel, symbols: Sequence[str], codes: Sequence[str] = (), special: Sequence[str] = ()
) -> Tokenizer:
    """The tokenizer of a model over a vocabulary.

    Args:
        stored: The model.
        symbols: The vocabulary in the order of its ids, our special symbols first. It has all of the model's pieces.
        codes: Symbols that text spells, such as ``>>fra<<`` before what is to become French; wherever they stand, what
            comes behind them is read as a text of its own.
        special: Symbols that stand for no text besides ours.

    Raises:
        BadInputError: The model is one that cannot be read so.
    """
    if flaw := _flaw(stored, symbols):
        raise BadInputError(flaw)
    with guarded("its pieces make no tokenizer"):
        reading = _Reading(stored, symbols)
        backend = tokenizers.Tokenizer(reading.model())
        backend.normalizer = normalizers.Sequence([normalizer_of(stored), *reading.replacements()])
        backend.pre_tokenizer = pre_tokenizers.Sequence([*reading.splits()])
        # Whoever joins the pieces of several models leaves the spaces around the text out.
        around = decoders.Replace(Regex(r"\A +| +\z"), "")
        backend.decoder = decoders.Sequence([decoder_of(stored), around])
        backend.add_tokens([AddedToken(name, special=False, normalized=False) for name in codes])
        backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
        return Tokenizer(add_special(backend))


def _flaw(stored: StoredModel, symbols: Sequence[str]) -> str | None:
    """What keeps the model from being read, if anything does."""
    if stored.byte_fallback:
        return "it spells what it does not know in bytes, which goes with no vocabulary of another model"
    if any(piece.kind is PieceKind.USER_DEFINED for piece in stored.pieces):
        return "it has symbols of its user's, which cannot be read with a vocabulary beside it"
    pieces = text_pieces(stored)
    if missing := set(pieces) - set(symbols):
        return f"its piece {min(missing)!r} is missing from the vocabulary"
    covered, single = set("".join(pieces)), {piece for piece in pieces if len(piece) == 1}
    if several := covered - single:
        return f"its pieces have {min(several)!r} together with others, and none has it alone: it is damaged"
    return None


@final
class _Reading:
    """How a text becomes symbols."""

    def __init__(self, stored: StoredModel, symbols: Sequence[str]) -> None:
        self._stored, self._symbols = stored, symbols
        pieces = text_pieces(stored)
        own, known = set(pieces), {piece for piece in pieces if len(piece) == 1}
        self._reaches_beyond_words = any(_SPACE in piece[1:] for piece in pieces)
        self._unknown = f"[^{_class(known)}]"
        # Another model's pieces that are made of unknown characters alone.
        taken = {*own, *SPECIAL_SYMBOLS}
        self._strangers = [each for each in symbols if each not in taken and not known.intersection(each)]

    def model(self) -> models.Model:
        """The search for the best pieces of what has been split."""
        match self._stored.algorithm:
            case "unigram":
                return self._unigram()
            case "bpe":
                vocabulary = {symbol: index for index, symbol in enumerate(self._symbols)}
                return models.BPE(vocabulary, merges_of([*self._stored.pieces]), unk_token=UNKNOWN, fuse_unk=True)
            case unknown:
                assert_never(unknown)

    def _unigram(self) -> models.Model:
        """What is no piece of its own has a score that is worse than that of all its characters, each alone.

        Every character within a word is known, so that there is such a way.
        """
        scores = {piece.text: piece.score for piece in self._stored.pieces if piece.kind is PieceKind.NORMAL}
        longest = max(map(len, self._symbols))
        never = (longest + 1) * min(-1.0, *scores.values())
        vocabulary = [(symbol, scores.get(symbol, never)) for symbol in self._symbols]
        return models.Unigram(vocabulary, self._symbols.index(UNKNOWN), byte_fallback=False)

    def replacements(self) -> Iterable[normalizers.Normalizer]:
        """What is changed before a text is split: a run of unknown characters that spells no symbol becomes one."""
        unknown = self._unknown
        # A BPE has no way to put several characters together that it has no pieces for.
        several = [each for each in self._strangers if len(each) == 1 or self._stored.algorithm == "unigram"]
        spelled = rf"(?!(?:{_any_of(several)})(?!{unknown}))" if several else ""
        # What is known is passed over before anything is looked up.
        yield normalizers.Replace(Regex(rf"(?<!{unknown})(?={unknown}){spelled}{unknown}+"), _NOBODY)

    def splits(self) -> Iterable[pre_tokenizers.PreTokenizer]:
        """Where a text is cut for good."""
        yield pre_tokenizers.Split(Regex(rf"{self._unknown}+"), behavior="isolated")
        if not self._reaches_beyond_words:
            # Words can be remembered.
            yield pre_tokenizers.Split(_SPACE, behavior="merged_with_next")


def _any_of(names: Sequence[str]) -> str:
    """A pattern of any of many names: by first characters in groups, as a long list is tried one after the other."""
    ordered, size = sorted(names), max(1, math.isqrt(len(names)))
    groups = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return "|".join(
        rf"(?=[\x{{{ord(group[0][0]):X}}}-\x{{{ord(group[-1][0]):X}}}])(?:{'|'.join(map(_escape, group))})"
        for group in groups
    )


def _class(characters: Iterable[str]) -> str:
    """Characters as what stands between the brackets of a regular expression, neighbours as ranges."""
    points = sorted(map(ord, characters))
    if not points:
        return r"\x{10FFFF}"
    starts = [points[0], *(second for first, second in pairwise(points) if second != first + 1)]
    ends = [*(first for first, second in pairwise(points) if second != first + 1), points[-1]]
    return "".join(rf"\x{{{start:X}}}-\x{{{end:X}}}" for start, end in zip(starts, ends, strict=True))


def _escape(text: str) -> str:
    return "".join(each if each.isalnum() else rf"\x{{{ord(each):X}}}" for each in text)
