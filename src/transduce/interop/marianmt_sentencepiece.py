"""Our tokenizers as MarianTokenizer reads them: two SentencePiece models, and a ``vocab.json`` of its numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor

from transduce.interop.json_files import write_json
from transduce.interop.marianmt_vocabulary import MODELS, RENAMED, TARGET_VOCABULARY, UNUSED, VOCABULARY
from transduce.interop.renumbering import Renumbering
from transduce.text import (
    StoredModel,
    Tokenizer,
    TokenizerPair,
    sentencepiece_in,
    whole_sentencepiece,
    write_sentencepiece,
)
from transduce.text.tokenizer import BEGIN

_BIAS: Final = "output_bias"
_SOURCE: Final = "source_embedding.weight"
_OF_TARGET: Final = ("embedding.weight", "projection.weight")
_BEGIN, _UNKNOWN = 1, 3  # ours


@final
@dataclass(frozen=True)
class Pieces:
    """The SentencePiece models of both sides, and the numbers of their symbols there."""

    models: tuple[StoredModel, StoredModel]
    source: Renumbering
    target: Renumbering

    def write(self, tokenizers: TokenizerPair, folder: Path) -> None:
        """Write both models, the vocabulary or vocabularies, and what says that MarianTokenizer reads them."""
        for name, stored in zip(MODELS, self.models, strict=True):
            write_sentencepiece(stored, folder / name)
        separate = self.source is not self.target
        write_json(folder / VOCABULARY, _vocabulary(tokenizers.source, self.source))
        if separate:
            write_json(folder / TARGET_VOCABULARY, _vocabulary(tokenizers.target, self.target))
        said = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate, "model_max_length": 512}
        if self.target.owners[_BEGIN]:
            # A symbol of its own, which that tokenizer else writes out at the beginning of every output.
            said["bos_token"] = BEGIN
        write_json(folder / "tokenizer_config.json", said)


def as_numbered_here(tokenizers: TokenizerPair) -> tuple[Renumbering, Renumbering]:
    """Our own numbers on both sides."""
    target = Renumbering.of(tokenizers.target.vocab_size, pad=0, begin=1, end=2, unknown=3)
    if tokenizers.shared:
        return target, target
    return Renumbering.of(tokenizers.source.vocab_size, pad=0, begin=1, end=2, unknown=3), target


def find_pieces(tokenizers: TokenizerPair, weights: Mapping[str, Tensor]) -> Pieces | None:
    """The models that the tokenizers are of, where they are of such; ``weights`` are ours, under our names.

    Symbols have OPUS-MT's numbers where the weights came so, and nothing of them is lost: the end symbol is 0, the
    unknown one 1, padding the last one, with which the decoder begins. Else they have ours.
    """
    source, target = _model(tokenizers.source), _model(tokenizers.target)
    # Unknown characters that are spelled in bytes go with no vocabulary that has more symbols.
    if source is None or target is None or source.byte_fallback or target.byte_fallback:
        return None
    return Pieces((source, target), *(_as_opus(tokenizers, weights) or as_numbered_here(tokenizers)))


def _model(tokenizer: Tokenizer) -> StoredModel | None:
    return whole_sentencepiece(tokenizer) or sentencepiece_in(tokenizer)


def _as_opus(tokenizers: TokenizerPair, weights: Mapping[str, Tensor]) -> tuple[Renumbering, Renumbering] | None:
    """OPUS-MT's numbers, where the weights are what these make of a model of OPUS-MT's."""
    matrices = [weights[name] for name in _OF_TARGET if name in weights]
    copies = min(map(_count_copies, matrices))
    size = tokenizers.target.vocab_size - 1 - copies
    target = _numbers(size, copies, begin=True)
    if _BIAS not in weights or not _kept(target, matrices, [weights[_BIAS]]):
        return None
    if tokenizers.shared and _SOURCE not in weights:
        return target, target
    if tokenizers.shared:
        return (target, target) if _kept(target, [weights[_SOURCE]]) else None
    copies = _count_copies(weights[_SOURCE])
    source = _numbers(tokenizers.source.vocab_size - 1 - copies, copies, begin=False)
    return (source, target) if _kept(source, [weights[_SOURCE]]) else None


def _numbers(size: int, copies: int, *, begin: bool) -> Renumbering:
    pad = size - 1
    return Renumbering.of(size, pad=pad, begin=pad if begin else None, end=0, unknown=1, copies=[1] * copies)


def _count_copies(matrix: Tensor) -> int:
    """How many symbols behind all others have the unknown symbol's row: pieces that the other vocabulary lacks."""
    same = (matrix == matrix[_UNKNOWN]).all(dim=1)
    others = (~same).nonzero().flatten()
    return len(matrix) - 1 - max(int(others[-1]) if len(others) else 0, _UNKNOWN)


def _kept(numbers: Renumbering, matrices: Iterable[Tensor], biases: Sequence[Tensor] = ()) -> bool:
    """Whether there and back is the same."""
    return all(torch.equal(numbers.permute(numbers.restore(each)), each) for each in matrices) and all(
        torch.equal(numbers.bias(numbers.restore(each)), each) for each in biases
    )


def _vocabulary(tokenizer: Tokenizer, numbers: Renumbering) -> dict[str, Any]:
    """Symbols and their numbers, in the order of these; what has none but a row is left out."""
    names = {renamed: name for name, renamed in RENAMED.items() if not numbers.owners[_BEGIN]}
    return dict(sorted(_entries(tokenizer, numbers, names), key=lambda entry: entry[1]))


def _entries(tokenizer: Tokenizer, numbers: Renumbering, names: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for name, index in tokenizer.vocabulary.items():
        if numbers.owners[index] and not name.startswith(UNUSED):
            yield names.get(name, name), numbers.rows[index]
