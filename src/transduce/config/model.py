"""What a model is: every choice of sections 3 and 5.4 of the paper, as validated, frozen data."""

from typing import Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

NormPosition = Literal["post", "pre"]
Positions = Literal["sinusoidal", "none"]
SinusoidLayout = Literal["interleaved", "concatenated"]

# These follow from the tokenizers: no run file sets them.
VOCABULARY_SIZES: Final = frozenset({"vocab_size", "source_vocab_size"})


class Section(BaseModel):
    """A frozen table of a configuration file: unknown keys are errors, values never change."""

    # Strict: `max_steps = true` is no 1, and `"yes"` no boolean; every number is one to calculate with.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# TOML has lists, frozen sections have tuples.
FROM_LIST: Final = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)


def check_word(text: str) -> str:
    """The text, which is one word without white space.

    Raises:
        ValueError: It is none.
    """
    if text.split() != [text]:
        raise ValueError(f"{text!r} is not one word without white space")
    return text


class ModelConfig(Section):
    """An encoder-decoder Transformer; the defaults are the paper's base model (Table 3, row "base").

    ``d_k`` and ``d_v`` are per head; left out, they are ``d_model / heads`` (section 3.2.2).
    """

    encoder_layers: int = Field(6, ge=1, description="N of the encoder")
    decoder_layers: int = Field(6, ge=1, description="N of the decoder")
    d_model: int = Field(512, ge=1, description="width of every sub-layer's output")
    d_ff: int = Field(2048, ge=1, description="width inside the feed-forward sub-layers")
    heads: int = Field(8, ge=1, description="h, the number of attention heads")
    d_k: int = Field(0, ge=0, description="width of a head's queries and keys; 0 means d_model / heads")
    d_v: int = Field(0, ge=0, description="width of a head's values; 0 means d_model / heads")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="on each sub-layer's output and on the sums of embeddings and positions"
    )
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="epsilon_ls of section 5.4")
    vocab_size: int = Field(37_000, ge=1, description="symbols of the target's vocabulary, which the source shares")
    source_vocab_size: int | None = Field(
        None, ge=1, description="symbols of the source's own vocabulary, where it shares none"
    )
    positions: Positions = Field("sinusoidal", description="what tells positions apart (section 3.5)")
    sinusoid_layout: SinusoidLayout = Field(
        "interleaved",
        description="sines in the even dimensions, as in the paper, or all sines first, as in its code",
    )
    norm: NormPosition = Field("post", description="post: LayerNorm(x + Sublayer(x)); pre: x + Sublayer(LayerNorm(x))")
    norm_epsilon: float = Field(1e-6, gt=0, description="added to the variance inside LayerNorm")
    attention_bias: bool = Field(False, description="bias in the attention projections; the paper's formulas have none")

    @model_validator(mode="before")
    @classmethod
    def _derive_head_widths(cls, values: object) -> object:
        """Fill ``d_k`` and ``d_v`` in while the data is still data: the finished configuration has no blanks."""
        if not isinstance(values, dict):
            return values
        d_model, heads = values.get("d_model", 512), values.get("heads", 8)
        if not (isinstance(d_model, int) and isinstance(heads, int) and heads > 0):
            return values  # the fields' own checks will name these
        blanks = [name for name in ("d_k", "d_v") if not values.get(name)]
        if blanks and d_model % heads:
            raise ValueError(
                f"heads = {heads} does not divide d_model = {d_model}: "
                f"choose a divisor of {d_model}, or give {' and '.join(blanks)}"
            )
        return values | dict.fromkeys(blanks, d_model // heads)

    @model_validator(mode="after")
    def _check_sinusoids(self) -> Self:
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model = {self.d_model} is odd: sinusoids come in pairs, choose an even d_model")
        return self
