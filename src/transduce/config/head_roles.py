"""What is measured of an attention head over a corpus: the row of a head, and its measures as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal, final, get_args

from transduce.config.attention import AttentionHead, AttentionKind

MeasureKey = Literal[
    "entropy",
    "max_entropy",
    "distance",
    "offset",
    "previous",
    "same",
    "next",
    "end",
    "agreement",
    "aer",
    "bleu_loss",
    "p_value",
]
# What a picture may show.
ColourKey = Literal["entropy", "distance", "offset", "previous", "same", "next", "end", "agreement", "aer", "bleu_loss"]


@final
@dataclass(frozen=True)
class HeadRole:
    """What a head does over a corpus: means of its attention weights; None where a measure has no meaning.

    A query is a token of the text, never a special symbol: in the encoder the token at the position, in the decoder's
    self-attention the token just read, in the encoder-decoder attention (``cross``) the token to be written. Every
    query of the corpus counts once, and padding never. a(q, k) is the weight that query q gives to key k.

    Attributes:
        head: Which head.
        entropy: -sum_k a(q, k) ln a(q, k), in nats, over all keys, special symbols included.
        max_entropy: The largest that could be: the logarithm of the number of keys in the sentence, in the decoder of
            those up to the query.
        distance: |k - q| in tokens, weighted by a(q, k), over keys that are tokens of the text (``end`` tells of the
            rest). For ``cross``, whose sides have lengths of their own, the distance from the diagonal in source
            tokens: of source token j of n from the place of target token i of m, |(j + 1/2) - (i + 1/2) n / m|.
        offset: The same with its sign: negative where a head looks back, or left of the diagonal. The decoder's
            self-attention looks back alone, and has none.
        previous: The share of weight on the token before the query's, over the queries that have one. For ``cross``, on
            the word before the aligned one, over the queries that are aligned and have one.
        same: The share on the query's own token. For ``cross``, on the aligned words, over the queries that have such.
        next: As ``previous``, behind. The decoder's self-attention sees no next one.
        end: The share on the source's end symbol; in the decoder's self-attention on the begin symbol.
        agreement: Of the links that a head makes (``inference.alignment.align``: each target token to the source token
            that it weighs most), the share that is in the reference alignment: precision. For ``cross`` alone.
        aer: The alignment error rate (Och and Ney 2003) of these links, where a reference was given.
        bleu_loss: What muting the head costs in BLEU; negative where it is better without.
        p_value: Of that difference, by paired bootstrap resampling, two-sided.
    """

    head: AttentionHead
    entropy: float | None = None
    max_entropy: float | None = None
    distance: float | None = None
    offset: float | None = None
    previous: float | None = None
    same: float | None = None
    next: float | None = None
    end: float | None = None
    agreement: float | None = None
    aer: float | None = None
    bleu_loss: float | None = None
    p_value: float | None = None

    def of(self, measure: MeasureKey) -> float | None:
        """One of the measures, by its key."""
        value: float | None = getattr(self, measure)
        return value


@final
@dataclass(frozen=True)
class HeadMeasure:
    """A measure, apart from how it is computed: its name, its unit and what it says, for people; decimals shown."""

    name: str
    unit: str
    decimals: int
    meaning: str

    def show(self, value: float | None) -> str:
        """A value for people."""
        # Adding 0 leaves no minus before a 0.
        return "" if value is None else f"{round(value, self.decimals) + 0:.{self.decimals}f}"


MEASURES: Final[Mapping[MeasureKey, HeadMeasure]] = MappingProxyType(
    {
        "entropy": HeadMeasure("entropy", "nats", 2, "how widely a token spreads its weights; 0: over one position"),
        "max_entropy": HeadMeasure("max entropy", "nats", 2, "of weights that are all the same"),
        "distance": HeadMeasure(
            "distance", "tokens", 2, "how far away it looks; encoder-decoder attention: from the diagonal"
        ),
        "offset": HeadMeasure(
            "offset", "tokens", 2, "the same with its sign: negative back, or left of the diagonal; positive ahead"
        ),
        "previous": HeadMeasure(
            "previous", "share", 3, "of weight on the token before; encoder-decoder attention: before the aligned word"
        ),
        "same": HeadMeasure(
            "same", "share", 3, "of weight on the token itself; encoder-decoder attention: on the aligned words"
        ),
        "next": HeadMeasure(
            "next", "share", 3, "of weight on the token behind; encoder-decoder attention: behind the aligned word"
        ),
        "end": HeadMeasure("end", "share", 3, "of weight on the end symbol; decoder: on the begin symbol"),
        "agreement": HeadMeasure("agreement", "share", 3, "of a head's links that the alignment has"),
        "aer": HeadMeasure("AER", "share", 3, "alignment error rate against the given alignment; lower is better"),
        "bleu_loss": HeadMeasure("BLEU lost", "points", 2, "where the head is muted; negative: better without it"),
        "p_value": HeadMeasure("p", "", 3, "of the lost BLEU, by paired bootstrap resampling"),
    }
)
COLOURS: Final[tuple[ColourKey, ...]] = get_args(ColourKey)


@final
@dataclass(frozen=True)
class LayerMean:
    """The means of a layer's heads; of each measure, over those that have it."""

    kind: AttentionKind
    layer: int
    means: Mapping[MeasureKey, float]


def layer_means(roles: Sequence[HeadRole]) -> list[LayerMean]:
    """The mean of each layer of each kind, in the order of the rows, which lie layer by layer.

    A mean of p-values says nothing, and is left out.
    """
    found = []
    for (kind, layer), rows in groupby(roles, key=lambda role: role.head[:2]):
        heads = list(rows)
        columns = {key: [value for role in heads if (value := role.of(key)) is not None] for key in MEASURES}
        means: dict[MeasureKey, float] = {
            key: sum(values) / len(values) for key, values in columns.items() if values and key != "p_value"
        }
        found.append(LayerMean(kind, layer, means))
    return found


def measured(roles: Sequence[HeadRole]) -> list[MeasureKey]:
    """The measures that any of the rows has."""
    return [key for key in MEASURES if any(role.of(key) is not None for role in roles)]
