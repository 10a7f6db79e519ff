"""SentencePiece models (Kudo and Richardson 2018), unigram and BPE, as tokenizers of this house.

Ids are renumbered: our special symbols come first, whatever the model calls them; the other pieces keep their order.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, assert_never

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from transduce.config import BadInputError
from transduce.text.guard import guarded
from transduce.text.sentencepiece_file import Piece, PieceKind, StoredModel, read_sentencepiece
from transduce.text.symbols import check_symbols
from transduce.text.tokenizer import BEGIN, END, PAD, SPECIAL_SYMBOLS, UNKNOWN, Tokenizer, add_special

# Rules that amount to a composition of single characters' own (and, cf, to lower case).
_COMPOSING: Final = frozenset({"nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"})

# A tag that Unicode has given up: text does not have it, and it joins with no neighbour.
_SEAM: Final = "\U000e0001"
# Not before the first character: the library fails where something is put at the beginning.
_SEAMS: Final = r"(?<=[\s\S])(?=[^\x00-\x7F])|(?<=[^\x00-\x7F])(?=[\s\S])"


def character_rules(name: str, charsmap: bytes) -> list[normalizers.Normalizer]:
    """The normalizers that do what the rules called ``name`` do.

    ``Precompiled`` replaces a letter with its marks by what the letter alone would become, and drops the marks. So each
    character is mapped alone, with seams between them, and what belongs together is composed before and after. Two
    things SentencePiece does not do: marks in another order than Unicode's are put in order, and a mark behind what
    becomes several letters (a ligature) is composed with the last of them.

    Raises:
        BadInputError: They are rules of the model's own, or damaged.
    """
    if not charsmap:
        return []
    if name not in _COMPOSING:
        raise BadInputError(
            f"its normalization rules {name!r} are its own: only models with the rules identity, "
            f"{', '.join(sorted(_COMPOSING))} can be read"
        )
    with guarded("its normalization rules are damaged"):
        mapped = normalizers.Precompiled(charsmap)
    seams, joined = normalizers.Replace(Regex(_SEAMS), _SEAM), normalizers.Replace(_SEAM, "")
    return [normalizers.NFC(), seams, mapped, joined, normalizers.NFC()]


_SPACE: Final = "▁"


def import_sentencepiece(path: Path, symbols: Iterable[str] = ()) -> Tokenizer:
    """Read a ``.model`` file; the user's ``symbols`` come behind its own pieces, in two rows each.

    It gives the pieces that SentencePiece gives, but a text that spells a special symbol stays text. What was unknown
    is missing from decoded text.

    Raises:
        BadInputError: The file is missing or damaged, of a kind that cannot be expressed, or a symbol is none.
        TransduceError: The extra is not installed.
    """
    stored, symbols = read_sentencepiece(path), check_symbols(symbols)
    try:
        tokenizer = make_tokenizer(stored, symbols)
        _check_symbols_survive(tokenizer, symbols)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error
    return tokenizer


def make_tokenizer(stored: StoredModel, symbols: tuple[str, ...] = ()) -> Tokenizer:
    """The tokenizer of a model that has been read.

    Raises:
        BadInputError: It is of a kind that cannot be expressed.
    """
    with guarded("its pieces make no tokenizer"):
        return Tokenizer(_convert(stored, symbols))


def _convert(stored: StoredModel, symbols: tuple[str, ...]) -> tokenizers.Tokenizer:
    pieces = _renumber(stored, symbols)
    backend = tokenizers.Tokenizer(_model(stored, pieces))
    backend.normalizer = normalizer_of(stored)
    splits = list(_splits(stored, pieces, symbols))
    if splits:
        backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    backend.decoder = decoder_of(stored)
    return add_special(backend)


def _renumber(stored: StoredModel, symbols: tuple[str, ...]) -> list[Piece]:
    """Our special symbols, the model's other pieces in their order, and the user's symbols."""
    roles = dict(zip(stored.special, (PAD, BEGIN, END), strict=True))
    pieces = [Piece(symbol, 0.0, PieceKind.CONTROL) for symbol in SPECIAL_SYMBOLS]
    for piece in stored.pieces:
        marks = piece.kind in (PieceKind.CONTROL, PieceKind.USER_DEFINED)
        if piece.kind is PieceKind.UNKNOWN or (marks and (piece.text in roles or piece.text in SPECIAL_SYMBOLS)):
            continue
        if piece.text in SPECIAL_SYMBOLS:
            raise BadInputError(f"one of its pieces is {piece.text}, which means something else here")
        pieces.append(piece)
    known = {piece.text for piece in pieces}
    forms = _forms(symbols)
    pieces = [replace(piece, kind=PieceKind.USER_DEFINED) if piece.text in forms else piece for piece in pieces]
    return [*pieces, *(Piece(form, 0.0, PieceKind.USER_DEFINED) for form in forms if form not in known)]


def _forms(symbols: tuple[str, ...]) -> list[str]:
    """A symbol as it stands after a space, and where a line begins without one."""
    return [form for symbol in symbols for form in (_SPACE + symbol, symbol)]


def _model(stored: StoredModel, pieces: list[Piece]) -> models.Model:
    vocabulary = {piece.text: index for index, piece in enumerate(pieces)}
    match stored.algorithm:
        case "unigram":
            # What the model gives no score is a piece of text only where _splits lets it be, and then certainly.
            scores = [(piece.text, piece.score if piece.kind is PieceKind.NORMAL else 0.0) for piece in pieces]
            return models.Unigram(scores, vocabulary[UNKNOWN], stored.byte_fallback)
        case "bpe":
            return models.BPE(
                vocabulary,
                merges_of(pieces),
                unk_token=UNKNOWN,
                fuse_unk=True,
                byte_fallback=stored.byte_fallback,
                # A piece that is a symbol is looked up whole.
                ignore_merges=_looks_up_whole(pieces),
            )
        case unknown:
            assert_never(unknown)


def _looks_up_whole(pieces: list[Piece]) -> bool:
    return any(piece.kind is PieceKind.USER_DEFINED for piece in pieces)


def merges_of(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Two neighbours are merged where together they are a piece, those with the highest score first."""
    normal = sorted((piece for piece in pieces if piece.kind is PieceKind.NORMAL), key=lambda piece: -piece.score)
    known = {piece.text for piece in normal}
    halves = ((text[:at], text[at:]) for text in (piece.text for piece in normal) for at in range(1, len(text)))
    return [(left, right) for left, right in halves if left in known and right in known]


def normalizer_of(stored: StoredModel) -> normalizers.Normalizer:
    """What is done to a text before it is cut; spaces are ▁ behind it."""
    steps = character_rules(stored.rules, stored.charsmap)
    if stored.squeeze_spaces:
        steps += [
            normalizers.Replace(Regex(pattern), text)
            for pattern, text in ((" {2,}", " "), (r"\A +", ""), (rf"[ {_SPACE}]+\z", ""))
        ]
    if stored.add_space:
        steps.append(normalizers.Prepend(_SPACE))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])


def _splits(
    stored: StoredModel, pieces: list[Piece], symbols: tuple[str, ...]
) -> Iterator[pre_tokenizers.PreTokenizer]:
    """Where a text is cut, so that symbols are read as such where they are meant, and nowhere else."""
    meant = [*_standing(symbols), *_anywhere(pieces, symbols)]
    if stored.algorithm == "unigram" or _looks_up_whole(pieces):
        # Any piece is found, unigram's anywhere: what only spells one is cut behind its first character.
        boundaries = Regex("|".join([*meant, *_impostors(pieces, symbols)]))
        yield pre_tokenizers.Split(boundaries, behavior="merged_with_previous")
    if meant:
        yield pre_tokenizers.Split(Regex("|".join(meant)), behavior="isolated")
    if not any(_SPACE in piece.text[1:] for piece in pieces):
        # No piece reaches beyond a word, so words can be remembered.
        yield pre_tokenizers.Split(_SPACE, behavior="merged_with_next")


def _impostors(pieces: list[Piece], symbols: tuple[str, ...]) -> Iterator[str]:
    """Patterns of the first character of a text that looks like a control piece, a byte, or a symbol."""
    if any(piece.kind is PieceKind.BYTE for piece in pieces):
        yield "<(?=0x[0-9A-F]{2}>)"
    for name in (*(piece.text for piece in pieces if piece.kind is PieceKind.CONTROL), *symbols):
        if len(name) == 1 and name not in symbols:
            raise BadInputError(f"its control piece {name!r} is a single character, which cannot be read")
        yield f"{re.escape(name[0])}(?={re.escape(name[1:])})"


def _standing(symbols: tuple[str, ...]) -> list[str]:
    """The user's symbols, where they are words of their own."""
    names = "|".join(map(re.escape, symbols))
    return [rf"(?:{_SPACE}|\A)(?:{names})(?={_SPACE}|\z)"] if symbols else []


def _anywhere(pieces: list[Piece], symbols: tuple[str, ...]) -> list[str]:
    """The model's own symbols, the longest first: SentencePiece finds them within words too."""
    own = {piece.text for piece in pieces if piece.kind is PieceKind.USER_DEFINED}.difference(_forms(symbols))
    return [re.escape(text) for text in sorted(own, key=lambda text: (-len(text), text))]


def decoder_of(stored: StoredModel) -> decoders.Decoder:
    """How pieces become text."""
    steps: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if stored.squeeze_spaces:
        steps.append(decoders.Replace(Regex(r"\A +"), ""))
    elif stored.add_space:
        steps.append(decoders.Strip(" ", left=1, right=0))
    return decoders.Sequence(steps)


def _check_symbols_survive(tokenizer: Tokenizer, symbols: tuple[str, ...]) -> None:
    for symbol in symbols:
        [ids] = tokenizer.encode([symbol])
        if len(ids) != 1 or tokenizer.decode([ids]) != [symbol]:
            raise BadInputError(
                f"{symbol!r} cannot be a symbol of this model, which normalizes or splits it: write it otherwise"
            )
