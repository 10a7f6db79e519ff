"""What attention is called wherever one speaks of it."""

from typing import Literal, NamedTuple, final

AttentionKind = Literal["encoder", "decoder", "cross"]


@final
class AttentionHead(NamedTuple):
    """One head: of the encoder's self-attention, the decoder's, or the encoder-decoder attention (``cross``).

    Layers and heads are counted from 0.
    """

    kind: AttentionKind
    layer: int
    head: int

    def __str__(self) -> str:
        """For people, who count from 1."""
        return f"{self.kind} layer {self.layer + 1}, head {self.head + 1}"
