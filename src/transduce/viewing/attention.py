"""Attention weights as a page to explore: every kind, layer and head, of one sentence or of several side by side."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError
from transduce.config.attention import AttentionHead, AttentionKind
from transduce.config.disk import write_whole
from transduce.viewing.page import framed, standalone

KINDS: Final[tuple[AttentionKind, ...]] = ("encoder", "cross", "decoder")
_HEIGHT: Final = 900  # of the page in a notebook


class HasAttention(Protocol):
    """The attention weights of one pair of texts, as ``Translator.attend`` gives them."""

    @property
    def source(self) -> Sequence[str]:
        """The source's tokens, the end symbol last."""
        ...

    @property
    def target(self) -> Sequence[str]:
        """The target's tokens, the end symbol last."""
        ...

    @property
    def read(self) -> Sequence[str]:
        """What the decoder has read when it writes each token."""
        ...

    @property
    def source_words(self) -> Sequence[int]:
        """The number of each source token's word."""
        ...

    @property
    def target_words(self) -> Sequence[int]:
        """The number of each target token's word."""
        ...

    @property
    def encoder(self) -> NDArray[np.float32] | None:
        """(layers, heads, source, source)."""
        ...

    @property
    def decoder(self) -> NDArray[np.float32] | None:
        """(layers, heads, target, read)."""
        ...

    @property
    def cross(self) -> NDArray[np.float32] | None:
        """(layers, heads, target, source)."""
        ...


@final
@dataclass(frozen=True)
class ViewedSentence:
    """A sentence's weights, what was written for it, and what is written where one head is muted."""

    maps: HasAttention
    text: str = ""
    muted: Mapping[AttentionHead, str] = field(default_factory=dict)


@final
class AttentionPage:
    """A page with the attention of some sentences; a notebook shows it where it is the value of a cell."""

    def __init__(self, sentences: Sequence[ViewedSentence | HasAttention], title: str = "Attention") -> None:
        """Sentences with their weights, or those beside what was written for them.

        Raises:
            BadInputError: There are no weights in all of them: the model has no attention.
        """
        self._sentences = [each if isinstance(each, ViewedSentence) else ViewedSentence(each) for each in sentences]
        self._title = title
        maps = [each.maps for each in self._sentences]
        if all(kind is None for each in maps for kind in (each.encoder, each.decoder, each.cross)):
            raise BadInputError("the model has no attention to show")

    def data(self) -> dict[str, Any]:
        """What the page is made of, as JSON has it."""
        return {
            "sentences": [_describe(each) for each in self._sentences],
            "moved": moved_heads([each.maps for each in self._sentences]),
        }

    def html(self) -> str:
        """The whole page; it asks for nothing from elsewhere."""
        return standalone("attention", self._title, self.data())

    def save(self, path: Path | str) -> None:
        """Write the page into a file, whole or not at all."""
        write_whole(Path(path), self.html())

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        return framed(self.html(), _HEIGHT)


def moved_heads(sentences: Sequence[HasAttention]) -> dict[str, list[list[float]]]:
    """How far each head's weights move from the first sentence to the others, by kind, layer and head.

    It is the largest total variation of a row, in 0 to 1. A kind whose weights have not the same shape in all sentences
    is left out: sentences are compared that differ in a word.
    """
    found: dict[str, list[list[float]]] = {}
    for kind in KINDS:
        maps = [weights for each in sentences if (weights := getattr(each, kind)) is not None]
        if len(maps) < max(2, len(sentences)) or len({each.shape for each in maps}) > 1:
            continue
        apart = [0.5 * np.abs(each - maps[0]).sum(axis=-1).max(axis=-1) for each in maps[1:]]
        found[kind] = np.max(apart, axis=0).round(4).tolist()
    return found


def _describe(sentence: ViewedSentence) -> dict[str, Any]:
    maps = sentence.maps
    return {
        **{name: list(getattr(maps, name)) for name in ("source", "target", "read", "source_words", "target_words")},
        "weights": {kind: _pack(weights) for kind in KINDS if (weights := getattr(maps, kind)) is not None},
        "text": sentence.text,
        "muted": {f"{head.kind}/{head.layer}/{head.head}": text for head, text in sentence.muted.items()},
    }


def _pack(weights: NDArray[np.float32]) -> dict[str, Any]:
    """The numbers as they are, without a digit lost and with few bytes."""
    numbers = np.ascontiguousarray(weights, dtype="<f4")
    return {"shape": list(numbers.shape), "float32": base64.b64encode(numbers.tobytes()).decode()}
