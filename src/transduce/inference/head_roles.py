"""What each attention head does over a corpus, measured on the weights of forced passes.

Every measure is a mean: a sum over the corpus divided by another. Only these sums are kept, and those of several
corpora add up. What each measure means is told by ``config.head_roles.HeadRole``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from transduce.config import BadInputError, TransduceError
from transduce.config.attention import AttentionHead, AttentionKind
from transduce.config.head_roles import HeadRole, MeasureKey
from transduce.data import bare
from transduce.inference.alignment import Alignment, ReferenceAlignment, align, read_pharaoh
from transduce.inference.attention import AttentionMaps, Maps, attend
from transduce.inference.engine import Engine
from transduce.text import TokenizerPair

KINDS: Final[tuple[AttentionKind, ...]] = ("encoder", "decoder", "cross")
Numbers = NDArray[np.float64]
# Sums and what they are divided by: two numbers for each layer and head.
Ratios = dict[MeasureKey, Numbers]


@final
@dataclass(frozen=True)
class HeadStatistics:
    """The sums over ``pairs`` sentence pairs; ``left_out`` says by index why a pair is not among them."""

    ratios: Mapping[AttentionKind, Ratios] = field(default_factory=dict)
    pairs: int = 0
    left_out: Mapping[int, TransduceError] = field(default_factory=dict)

    def __add__(self, other: "HeadStatistics") -> "HeadStatistics":
        """Those of both corpora; the indices of the other go on from this one's."""
        both = [kind for kind in KINDS if kind in self.ratios or kind in other.ratios]
        ratios = {kind: _add(self.ratios.get(kind, {}), other.ratios.get(kind, {})) for kind in both}
        seen = self.pairs + len(self.left_out)
        moved = {seen + index: error for index, error in other.left_out.items()}
        return HeadStatistics(ratios, self.pairs + other.pairs, {**self.left_out, **moved})

    def roles(self) -> list[HeadRole]:
        """The means: a row for each head, by kind, layer and head."""
        return [row for kind, ratios in self.ratios.items() for row in _rows(kind, ratios)]


def measure_heads(
    engine: Engine,
    tokenizers: TokenizerPair,
    pairs: Sequence[tuple[str, str]],
    limit: int,
    alignments: Sequence[str] | None = None,
    first_number: int = 1,
) -> HeadStatistics:
    """Measure every head on pairs of texts, no side of which has more than ``limit`` symbols.

    ``alignments`` are the pairs' reference alignments in Pharaoh form; without them, the model's own stands in for
    them, which ``Translator.translate`` gives too. A pair with a side that is empty or too long, or that memory is too
    small for, is left out.

    Raises:
        BadInputError: An alignment is none, or not of its pair; its number, from ``first_number``, is named.
    """
    texts = [(bare(source), bare(target)) for source, target in pairs]
    references = None if alignments is None else _read_references(texts, alignments, first_number)
    left_out: dict[int, TransduceError] = {}
    sums = HeadStatistics()
    for index, maps in attend(engine, tokenizers, texts, limit):
        if isinstance(maps, TransduceError):
            left_out[index] = maps
        elif not all(text.strip() for text in texts[index]) or min(len(maps.source), len(maps.target)) == 1:
            left_out[index] = BadInputError("a side is empty: there is nothing to measure")
        else:
            sums += HeadStatistics(measure(maps, None if references is None else references[index]), 1)
    return HeadStatistics(sums.ratios, sums.pairs, {index: left_out[index] for index in sorted(left_out)})


def measure(maps: AttentionMaps, reference: ReferenceAlignment | None = None) -> dict[AttentionKind, Ratios]:
    """The sums of one pair, of each kind of attention that there is; without a reference, by ``own_alignment``."""
    found: dict[AttentionKind, Ratios] = {}
    if maps.encoder is not None:
        found["encoder"] = _of_encoder(maps.encoder)
    if maps.decoder is not None:
        found["decoder"] = _of_decoder(maps.decoder)
    if maps.cross is not None:
        found["cross"] = _of_cross(maps, maps.cross, reference)
    return found


def own_alignment(maps: AttentionMaps) -> ReferenceAlignment:
    """The model's: by the mean of the heads of the layer before the last, or of the only one (Garg et al. 2019)."""
    weights = maps.of("cross")
    return ReferenceAlignment.of(_links(maps, weights[max(len(weights) - 2, 0)].mean(axis=0)))


@final
@dataclass(frozen=True)
class _Queries:
    """The rows of a kind's weights that are tokens of the text.

    ``text`` are the weights of keys that are tokens of the text as well, (layers, heads, queries, tokens), and
    ``offsets`` how far ahead of its query each of them is. ``special`` are the weights of the key that is none,
    (layers, heads, queries), and ``visible`` is how many keys each query can attend to.
    """

    text: Maps
    special: Maps
    offsets: Numbers
    visible: NDArray[np.int_]

    def ratios(self) -> Ratios:
        """What all kinds of attention have."""
        entropy = -(_times_logarithm(self.text).sum(axis=(2, 3)) + _times_logarithm(self.special).sum(axis=2))
        queries = len(self.visible)
        return {
            "entropy": _ratio(entropy, queries),
            "max_entropy": _ratio(np.full(entropy.shape, np.log(self.visible).sum()), queries),
            "distance": self._mean_over_text(np.abs(self.offsets)),
            "end": _ratio(self.special.sum(axis=2, dtype=np.float64), queries),
        }

    def offset(self) -> Numbers:
        """How far ahead the weight on the text lies."""
        return self._mean_over_text(self.offsets)

    def share(self, places: NDArray[np.bool_]) -> Numbers:
        """How much weight lies on these places, over the queries that have such."""
        weights = np.einsum("lhqk,qk->lh", self.text, places, dtype=np.float64)
        return _ratio(weights, places.any(axis=1).sum())

    def _mean_over_text(self, values: Numbers) -> Numbers:
        weighted = np.einsum("lhqk,qk->lh", self.text, values)
        return _ratio(weighted, self.text.sum(axis=(2, 3), dtype=np.float64))


def _of_encoder(weights: Maps) -> Ratios:
    tokens = weights.shape[2] - 1
    offsets = _offsets(tokens)
    special = weights[:, :, :-1, -1]
    queries = _Queries(weights[:, :, :-1, :-1], special, offsets, np.full(tokens, tokens + _is_read(special)))
    places: dict[MeasureKey, int] = {"previous": -1, "same": 0, "next": 1}
    shares = {key: queries.share(offsets == offset) for key, offset in places.items()}
    return {**queries.ratios(), "offset": queries.offset(), **shares}


def _of_decoder(weights: Maps) -> Ratios:
    """The first row has read the begin symbol alone, and is no token's; no row sees what comes next."""
    tokens = weights.shape[2] - 1
    offsets = _offsets(tokens)
    queries = _Queries(weights[:, :, 1:, 1:], weights[:, :, 1:, 0], offsets, np.arange(tokens) + 2)
    places: dict[MeasureKey, int] = {"previous": -1, "same": 0}
    return queries.ratios() | {key: queries.share(offsets == offset) for key, offset in places.items()}


def _is_read(end: Maps) -> bool:
    """Whether the model reads the end of the source at all: its weights are never all 0 then."""
    return bool(end.any())


def _of_cross(maps: AttentionMaps, weights: Maps, reference: ReferenceAlignment | None) -> Ratios:
    """The last row writes the end symbol, and is no token's."""
    known = own_alignment(maps) if reference is None else reference
    targets, sources = weights.shape[2] - 1, weights.shape[3] - 1
    diagonal = (np.arange(targets) + 0.5) * sources / targets
    offsets = np.arange(sources) + 0.5 - diagonal[:, np.newaxis]
    special = weights[:, :, :-1, -1]
    queries = _Queries(weights[:, :, :-1, :-1], special, offsets, np.full(targets, sources + _is_read(special)))
    before, aligned, behind = (_in_words(maps, known, offset) for offset in (-1, 0, 1))
    agreement, errors = _hold_against(maps, weights, known)
    return {
        **queries.ratios(),
        "offset": queries.offset(),
        "previous": queries.share(before & ~aligned),
        "same": queries.share(aligned),
        "next": queries.share(behind & ~aligned),
        "agreement": agreement,
        **({} if reference is None else {"aer": errors}),
    }


def _offsets(tokens: int) -> Numbers:
    """Key minus query."""
    positions = np.arange(tokens, dtype=np.float64)
    return positions - positions[:, np.newaxis]


def _in_words(maps: AttentionMaps, reference: ReferenceAlignment, offset: int) -> NDArray[np.bool_]:
    """Which source tokens (columns) are in a word so far from one that a target token's word (rows) is aligned with."""
    links = {(source + offset, target) for source, target in reference.possible}
    return np.array(
        [[(source, target) in links for source in maps.source_words[:-1]] for target in maps.target_words[:-1]]
    )


def _hold_against(maps: AttentionMaps, weights: Maps, reference: ReferenceAlignment) -> tuple[Numbers, Numbers]:
    """Of each head's links, how many are right; and of its links and the sure ones, how many are errors."""
    layers, heads = weights.shape[:2]
    links = [[frozenset(_links(maps, weights[layer, head])) for head in range(heads)] for layer in range(layers)]

    def count(known: frozenset[tuple[int, int]] | None = None) -> Numbers:
        return np.array([[len(each if known is None else each & known) for each in row] for row in links], np.float64)

    made, possible, sure = count(), count(reference.possible), count(reference.sure)
    both = made + len(reference.sure)
    return _ratio(possible, made), _ratio(both - possible - sure, both)


def _links(maps: AttentionMaps, weights: Maps) -> Alignment:
    return align(torch.from_numpy(weights), maps.source_words[:-1], maps.target_words[:-1])


def _times_logarithm(weights: Maps) -> Numbers:
    """The product w ln w, which goes to 0 with w."""
    exact = weights.astype(np.float64)
    return exact * np.log(exact, where=exact > 0, out=np.zeros_like(exact))


def _ratio(sums: Numbers, divisor: Numbers | float) -> Numbers:
    return np.stack([sums, np.broadcast_to(divisor, sums.shape)])


def _add(one: Ratios, other: Ratios) -> Ratios:
    return one | other | {key: one[key] + other[key] for key in one.keys() & other.keys()}


def _rows(kind: AttentionKind, ratios: Ratios) -> list[HeadRole]:
    _, layers, heads = next(iter(ratios.values())).shape
    return [
        HeadRole(
            AttentionHead(kind, layer, head), **{key: _mean(*each[:, layer, head]) for key, each in ratios.items()}
        )
        for layer in range(layers)
        for head in range(heads)
    ]


def _mean(total: float, divisor: float) -> float | None:
    return None if divisor == 0 else float(total / divisor)


def _read_references(
    pairs: Sequence[tuple[str, str]], alignments: Sequence[str], first_number: int
) -> list[ReferenceAlignment]:
    if len(alignments) != len(pairs):
        raise BadInputError(f"{len(alignments):,} alignments and {len(pairs):,} pairs: give one for each pair")
    found = []
    for number, (line, pair) in enumerate(zip(alignments, pairs, strict=True), first_number):
        try:
            found.append(read_pharaoh(line, *pair))
        except BadInputError as error:
            raise BadInputError(f"alignment {number:,}: {error}") from error
    return found
