"""All attention weights of forced passes: who looks at what, in every layer and head."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from transduce.config import BadInputError, TransduceError
from transduce.config.attention import AttentionKind
from transduce.data import bare
from transduce.inference.alignment import words_of_tokens
from transduce.inference.encoding import encode_within
from transduce.inference.engine import Engine
from transduce.models import AttentionWeights
from transduce.search import TooLittleMemory
from transduce.text import Tokenizer, TokenizerPair

# Layer, head, position of the query, position of the key; each row of keys sums to 1.
Maps = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention weights of a model that reads ``source`` and writes ``target``.

    ``source`` and ``target`` are tokens, the end symbol last; ``read`` is what the decoder has read when it writes each
    token of the target: the begin symbol, then the target without its end. Each kind of weights is an array (layers,
    heads, queries, keys), or None where the model has no attention of that kind; a model that does not read the end of
    the source (``source_end``) has weights of 0 for it. ``encoder``: source to source.
    ``decoder``: target to ``read``; what comes later has weight 0. ``cross``: target to source.

    ``source_words`` and ``target_words`` are the number of the word that each token is in, counted from 0; the end
    symbol is a word of its own.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    read: tuple[str, ...]
    source_words: tuple[int, ...]
    target_words: tuple[int, ...]
    encoder: Maps | None
    decoder: Maps | None
    cross: Maps | None

    def __repr__(self) -> str:
        kinds = {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}
        shapes = ", ".join(f"{kind} {maps.shape}" for kind, maps in kinds.items() if maps is not None)
        return f"AttentionMaps({' '.join(self.source)} -> {' '.join(self.target)}: {shapes or 'no attention'})"

    def of(self, kind: AttentionKind) -> Maps:
        """The weights of one kind.

        Raises:
            BadInputError: The model has none.
        """
        maps: Maps | None = getattr(self, kind)
        if maps is None:
            known = [each for each in ("encoder", "decoder", "cross") if getattr(self, each) is not None]
            raise BadInputError(f"the model has no {kind} attention; it has {', '.join(known) or 'none at all'}")
        return maps

    def keys(self, kind: AttentionKind) -> tuple[str, ...]:
        """What the columns of a kind's weights are."""
        return self.read if kind == "decoder" else self.source

    def queries(self, kind: AttentionKind) -> tuple[str, ...]:
        """What the rows of a kind's weights are."""
        return self.source if kind == "encoder" else self.target


def attend(
    engine: Engine, tokenizers: TokenizerPair, pairs: Sequence[tuple[str, str]], limit: int
) -> Iterator[tuple[int, AttentionMaps | TransduceError]]:
    """The weights of each pair of texts, or why there are none, with its index.

    No side has more than ``limit`` symbols. First come those that are too long, then the others, as batches are done:
    no more than one batch's weights are kept.
    """
    read: list[list[list[int] | BadInputError]] = [
        encode_within(tokenizer, [bare(pair[side]) for pair in pairs], limit, engine.longest, "look at a shorter one")
        for side, tokenizer in enumerate((tokenizers.source, tokenizers.target))
    ]
    ids: dict[int, tuple[list[int], list[int]]] = {}
    for index, (source, target) in enumerate(zip(*read, strict=True)):
        if isinstance(source, TransduceError):
            yield index, BadInputError(f"source: {source}")
        elif isinstance(target, TransduceError):
            yield index, BadInputError(f"target: {target}")
        else:
            ids[index] = source, target
    places = list(ids)
    for row, weights in engine.attend([source for source, _ in ids.values()], [target for _, target in ids.values()]):
        index = places[row]
        source, target = ids[index]
        if isinstance(weights, TooLittleMemory):
            symbols = len(source) + len(target)
            reason = f"too little memory for the attention of {symbols:,} symbols ({weights.reason})"
            yield index, TransduceError(reason)
        else:
            yield index, _describe(tokenizers, pairs[index], source, target, weights)


def _describe(
    tokenizers: TokenizerPair, texts: tuple[str, str], source: list[int], target: list[int], weights: AttentionWeights
) -> AttentionMaps:
    special = tokenizers.special
    read = tokenizers.target.tokens([special.begin, *target])
    encoder, decoder, cross = (_stack(getattr(weights, kind)) for kind in ("encoder", "decoder", "cross"))
    symbols = len(source) + 1
    return AttentionMaps(
        tuple(tokenizers.source.tokens([*source, special.end])),
        tuple(tokenizers.target.tokens([*target, special.end])),
        tuple(read),
        _words(tokenizers.source, bare(texts[0])),
        _words(tokenizers.target, bare(texts[1])),
        None if encoder is None else _fill_up(encoder, queries=symbols, keys=symbols),
        decoder,
        None if cross is None else _fill_up(cross, queries=cross.shape[2], keys=symbols),
    )


def _fill_up(maps: Maps, *, queries: int, keys: int) -> Maps:
    """With weights of 0 for the end symbol, where the model does not read it."""
    filled: Maps = np.pad(maps, ((0, 0), (0, 0), (0, queries - maps.shape[2]), (0, keys - maps.shape[3])))
    return filled


def _words(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    numbers = words_of_tokens(tokenizer, text)
    return (*numbers, max(numbers, default=-1) + 1)


def _stack(layers: dict[int, Tensor]) -> Maps | None:
    """The layers of a pair, in their order."""
    if not layers:
        return None
    maps: Maps = np.stack([layers[number][0].float().cpu().numpy() for number in sorted(layers)])
    return maps
