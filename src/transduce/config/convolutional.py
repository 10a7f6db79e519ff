"""What a convolutional encoder-decoder is: ConvS2S (Gehring et al. 2017) or ByteNet (Kalchbrenner et al. 2017)."""

from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from transduce.config.model import MOST_LAYERS, MOST_SYMBOLS, MOST_WIDE
from transduce.config.section import ALLOWED, REFUSED, Section, Setting

Network = Literal["convs2s", "bytenet"]
# Channels, width of the kernel, and how many such layers follow each other: 9 of [512, 3] are [512, 3, 9].
Convolutions = tuple[tuple[int, int, int], ...]

_OF_CONVS2S: Final = Setting("refused", read_with=("network", ("convs2s",)))
_OF_BYTENET: Final = Setting("refused", read_with=("network", ("bytenet",)))
_FORM: Final = "must be a list of [channels, kernel width, layers], such as [[512, 3, 9], [1024, 3, 4]]"


def _read_convolutions(value: object) -> object:
    """TOML's lists as tuples, which are checked here: an error in a list of lists would name numbers, not the rule."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(_FORM)
    for each in value:
        if not isinstance(each, list | tuple) or len(each) != 3 or not all(type(number) is int for number in each):
            raise ValueError(f"{_FORM}, not {each!r}")
        if not all(1 <= number <= most for number, most in zip(each, (MOST_WIDE, MOST_WIDE, MOST_LAYERS), strict=True)):
            raise ValueError(
                f"{list(each)}: channels and kernel width must be between 1 and {MOST_WIDE:,}, layers between 1 and "
                f"{MOST_LAYERS:,}"
            )
    if (layers := sum(each[2] for each in value)) > MOST_LAYERS:
        raise ValueError(f"{layers:,} layers in all, where {MOST_LAYERS:,} are possible: choose fewer")
    return tuple(tuple(each) for each in value)


_FROM_LISTS: Final = BeforeValidator(_read_convolutions)


class ConvolutionalConfig(Section):
    """A convolutional encoder-decoder: the ``network`` says which, and which of the settings are read.

    The sizes that are the defaults are of ConvS2S' model for WMT'16 English-Romanian, and of ByteNet's for WMT'14
    English-German. Dropout and label smoothing are 0.1; of the presets, only the label smoothing is the papers' (none).
    """

    architecture: Annotated[Literal["convolutional"], REFUSED] = Field(
        default="convolutional", description="the kind of model that this section is of"
    )
    network: Annotated[Network, REFUSED] = Field(
        default="convs2s",
        description="convs2s: gated convolutions, attention in every decoder layer (Gehring et al. 2017); bytenet: "
        "dilated residual blocks, the decoder on top of the encoder (Kalchbrenner et al. 2017)",
    )

    embedding_width: Annotated[int, _OF_CONVS2S] = Field(
        default=512,
        ge=1,
        le=MOST_WIDE,
        description="numbers of a symbol's embedding, in which the attention compares, too",
    )
    output_width: Annotated[int, _OF_CONVS2S] = Field(
        default=512, ge=1, le=MOST_WIDE, description="numbers of a hidden state from which the next symbol is predicted"
    )
    encoder_convolutions: Annotated[Convolutions, _FROM_LISTS, _OF_CONVS2S] = Field(
        default=((512, 3, 20),),
        description="the encoder's layers, as [channels, kernel width, number of such layers]",
        examples=[[[512, 3, 9], [1024, 3, 4], [2048, 1, 2]]],
    )
    decoder_convolutions: Annotated[Convolutions, _FROM_LISTS, _OF_CONVS2S] = Field(
        default=((512, 3, 20),),
        description="the decoder's layers, as [channels, kernel width, number of such layers]",
        examples=[[[512, 3, 9], [1024, 3, 4], [2048, 1, 2]]],
    )
    weight_normalization: Annotated[bool, _OF_CONVS2S] = Field(
        default=True,
        description="train the length and direction of each row of a weight matrix apart (Salimans and Kingma 2016)",
    )
    max_positions: Annotated[int, _OF_CONVS2S] = Field(
        default=1024, ge=1, le=MOST_SYMBOLS, description="positions that learned embeddings have: the longest sequence"
    )

    encoder_blocks: Annotated[int, _OF_BYTENET] = Field(
        default=30, ge=1, le=MOST_LAYERS, description="residual blocks of the encoder"
    )
    decoder_blocks: Annotated[int, _OF_BYTENET] = Field(
        default=30, ge=1, le=MOST_LAYERS, description="residual blocks of the decoder"
    )
    channels: Annotated[int, _OF_BYTENET] = Field(
        default=800, ge=1, le=MOST_WIDE // 2, description="d, the width inside a block; between blocks it is 2 d"
    )
    kernel_width: Annotated[int, _OF_BYTENET] = Field(
        default=3, ge=1, le=MOST_WIDE, description="k, symbols that a kernel reads"
    )
    largest_dilation: Annotated[int, _OF_BYTENET] = Field(
        default=16,
        ge=1,
        le=MOST_WIDE,
        description="from block to block the distance between the symbols that a kernel reads doubles up to this one, "
        "then begins at 1 again; 1: no dilation",
    )
    unfold_factor: Annotated[float, _OF_BYTENET] = Field(
        default=1.2,
        ge=1,
        le=100,
        description="a of a |s| + b, the positions that a source of |s| symbols is encoded as",
    )
    unfold_extra: Annotated[float, _OF_BYTENET] = Field(
        default=0.0,
        ge=0,
        le=MOST_WIDE,
        description="b of a |s| + b, the positions that a source of |s| symbols is encoded as",
    )

    dropout: Annotated[float, ALLOWED] = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share that dropout leaves out of embeddings, what convolutions read and what is projected "
        "(convs2s), or of the blocks' outputs (bytenet)",
    )
    label_smoothing: Annotated[float, ALLOWED] = Field(
        default=0.1, ge=0, lt=1, description="epsilon_ls, label smoothing"
    )
    vocab_size: Annotated[int, REFUSED] = Field(
        default=37_000, ge=1, le=MOST_SYMBOLS, description="symbols of the target's vocabulary, which the source shares"
    )
    source_vocab_size: Annotated[int | None, REFUSED] = Field(
        default=None, ge=1, le=MOST_SYMBOLS, description="symbols of the source's own vocabulary, where it shares none"
    )
    shared_embedding: Annotated[bool, REFUSED] = Field(
        default=False, description="one matrix embeds sources and targets, where they share a vocabulary"
    )
    tied_projection: Annotated[bool, REFUSED] = Field(
        default=False, description="the target's embedding also scores the output; false: a matrix of its own"
    )

    @model_validator(mode="after")
    def _check_embeddings(self) -> Self:
        if self.shared_embedding and self.source_vocab_size is not None:
            raise ValueError("shared_embedding = true needs one vocabulary, and the sides have their own: leave it out")
        if self.network == "convs2s" and self.tied_projection and self.output_width != self.embedding_width:
            raise ValueError(
                f"tied_projection = true needs output_width = embedding_width, and they are {self.output_width} and "
                f"{self.embedding_width}"
            )
        return self

    @model_validator(mode="after")
    def _check_kernels(self) -> Self:
        """An encoder's kernel is centred, so that it reads as many symbols before as behind a symbol."""
        match self.network:
            case "convs2s":
                even = [kernel for _, kernel, _ in self.encoder_convolutions if kernel % 2 == 0]
                setting = "encoder_convolutions"
            case "bytenet":
                even = [self.kernel_width] if self.kernel_width % 2 == 0 else []
                setting = "kernel_width"
        if even:
            raise ValueError(f"{setting}: a kernel of {even[0]} symbols has no middle: choose an odd width")
        return self

    @property
    def dilations(self) -> tuple[int, ...]:
        """ByteNet's distances between the symbols that a kernel reads, block after block, until they begin again."""
        return tuple(2**power for power in range(self.largest_dilation.bit_length()))

    @property
    def longest(self) -> int | None:
        """The most symbols that a sequence may have, where there is such a limit."""
        return self.max_positions if self.network == "convs2s" else None

    @property
    def least_tensors(self) -> int:
        """Tensors that its weights are at least: one for each layer or block."""
        match self.network:
            case "convs2s":
                return sum(layers for *_, layers in (*self.encoder_convolutions, *self.decoder_convolutions))
            case "bytenet":
                return self.encoder_blocks + self.decoder_blocks

    @property
    def summary(self) -> str:
        """How large it is, for people."""
        match self.network:
            case "convs2s":
                sides = (self.encoder_convolutions, self.decoder_convolutions)
                encoder, decoder = (sum(layers for *_, layers in side) for side in sides)
                return f"ConvS2S, {encoder} + {decoder} layers, embeddings of {self.embedding_width:,}"
            case "bytenet":
                return f"ByteNet, {self.encoder_blocks} + {self.decoder_blocks} blocks, d {self.channels:,}"
