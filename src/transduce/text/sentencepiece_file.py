"""What a SentencePiece ``.model`` file says, as plain data; and such a file of it."""

import math
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Literal, final

from transduce.config import BadInputError, TransduceError
from transduce.config.files import check_size

_MOST_BYTES: Final = 2**27
_LONGEST: Final = 1000  # characters of a piece; SentencePiece learns none of more than 16


@final
class PieceKind(IntEnum):
    """What a piece is for, numbered as in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@final
@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; ``score`` is a log-probability (unigram) or a rank (BPE)."""

    text: str
    score: float
    kind: PieceKind


@final
@dataclass(frozen=True)
class StoredModel:
    """A model; ``special`` names its padding, begin and end pieces, which it need not have."""

    algorithm: Literal["unigram", "bpe"]
    pieces: tuple[Piece, ...]
    special: tuple[str, str, str]
    byte_fallback: bool
    rules: str
    charsmap: bytes
    add_space: bool
    squeeze_spaces: bool


def read_sentencepiece(path: Path) -> StoredModel:
    """Read the file.

    Raises:
        BadInputError: It is missing, damaged, or says what no tokenizer of ours can do.
        TransduceError: The extra is not installed.
    """
    stored = _parse(path)
    trainer, normalizer = stored.trainer_spec, stored.normalizer_spec
    if flaw := _flaw(stored):
        raise BadInputError(f"{path}: {flaw}")
    return StoredModel(
        algorithm="unigram" if trainer.model_type == trainer.UNIGRAM else "bpe",
        pieces=tuple(Piece(piece.piece, piece.score, PieceKind(piece.type)) for piece in stored.pieces),
        special=(trainer.pad_piece, trainer.bos_piece, trainer.eos_piece),
        byte_fallback=trainer.byte_fallback,
        rules=normalizer.name,
        charsmap=normalizer.precompiled_charsmap,
        add_space=normalizer.add_dummy_prefix,
        squeeze_spaces=normalizer.remove_extra_whitespaces,
    )


def write_sentencepiece(stored: StoredModel, path: Path, *, whole: bool = False) -> None:
    """Write a file that cuts text so: the end piece is 0, the unknown one 1, as Marian has them, the others follow.

    Before them, the ``whole`` vocabulary has a padding piece, 2, and a begin piece, 3.

    Raises:
        TransduceError: The extra is not installed.
    """
    file = _message()
    trainer, normalizer = file.trainer_spec, file.normalizer_spec
    pad, begin, end = (Piece(name, 0.0, PieceKind.CONTROL) for name in stored.special)
    unknown = next(piece for piece in stored.pieces if piece.kind is PieceKind.UNKNOWN)
    special = [end, unknown, pad, begin] if whole else [end, unknown]
    pieces = [*special, *(piece for piece in stored.pieces if piece.kind not in (end.kind, unknown.kind))]
    for piece in pieces:
        file.pieces.add(piece=piece.text, score=piece.score, type=int(piece.kind))
    trainer.model_type = trainer.UNIGRAM if stored.algorithm == "unigram" else trainer.BPE
    trainer.vocab_size, trainer.byte_fallback = len(pieces), stored.byte_fallback
    trainer.eos_id, trainer.unk_id, trainer.pad_id, trainer.bos_id = (0, 1, 2, 3) if whole else (0, 1, -1, -1)
    trainer.eos_piece, trainer.unk_piece, trainer.pad_piece, trainer.bos_piece = (
        each.text for each in (end, unknown, pad, begin)
    )
    normalizer.name, normalizer.precompiled_charsmap = stored.rules, stored.charsmap
    normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces = stored.add_space, stored.squeeze_spaces
    normalizer.escape_whitespaces = True
    path.write_bytes(file.SerializeToString(deterministic=True))


def _message() -> Any:  # noqa: ANN401 - protobuf makes its classes as the program runs
    try:
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("SentencePiece models need an extra: pip install 'transduce[sentencepiece]'") from error
    return ModelProto()


def _parse(path: Path) -> Any:  # noqa: ANN401 - as above
    stored = _message()
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - comes with the extra

    if not path.is_file():
        raise BadInputError(f"{path}: no such SentencePiece model")
    check_size(path, _MOST_BYTES)
    try:
        stored.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise BadInputError(f"{path}: not a SentencePiece model, or a damaged one") from error
    if not _whole(stored):
        raise BadInputError(f"{path}: not a SentencePiece model, or a damaged one")
    return stored


def _whole(stored: Any) -> bool:  # noqa: ANN401 - as above
    """Whether the message says what every model says."""
    texts, kinds = [piece.piece for piece in stored.pieces], [piece.type for piece in stored.pieces]
    return (
        stored.HasField("trainer_spec")
        and stored.HasField("normalizer_spec")
        and all(isinstance(text, str) and text for text in texts)  # what is no UTF-8 comes as bytes
        and len(set(texts)) == len(texts)
        and max(map(len, texts), default=0) <= _LONGEST
        and kinds.count(PieceKind.UNKNOWN) == 1
        and all(math.isfinite(piece.score) for piece in stored.pieces)
    )


def _flaw(stored: Any) -> str | None:  # noqa: ANN401 - as above
    """What keeps the model from being read, if anything does."""
    trainer, kinds = stored.trainer_spec, [piece.type for piece in stored.pieces]
    if trainer.model_type not in (trainer.UNIGRAM, trainer.BPE):
        kind = trainer.ModelType.Name(trainer.model_type).lower()
        return f"a SentencePiece model of kind {kind}: only unigram and bpe can be read"
    if trainer.treat_whitespace_as_suffix or not stored.normalizer_spec.escape_whitespaces:
        return (
            "its pieces hold spaces at their ends or as they are: only models with spaces as ▁ before words can be read"
        )
    if stored.denormalizer_spec.precompiled_charsmap:
        return "it has rules for writing text (denormalizer), which cannot be read"
    if PieceKind.UNUSED in kinds:
        return "some of its pieces are switched off, which cannot be read"
    if trainer.byte_fallback and kinds.count(PieceKind.BYTE) != 256:
        return "not a SentencePiece model, or a damaged one: some of the 256 bytes are missing"
    return None
