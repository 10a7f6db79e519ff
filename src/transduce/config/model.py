"""What a model is: every choice of sections 3 and 5.4 of the paper, as validated, frozen data."""

from typing import Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

NormPosition = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned", "relative", "none"]
SinusoidLayout = Literal["interleaved", "concatenated"]
SinusoidRange = Literal["open", "closed"]
PositionCombination = Literal["add", "concatenate"]
Compatibility = Literal["scaled_dot_product", "dot_product", "multiplicative", "additive"]
FeedForwardKind = Literal["relu", "parameter_attention"]
Initializer = Literal["glorot_uniform", "unit_scaling"]

# These follow from the tokenizers: no run file sets them.
VOCABULARY_SIZES: Final = frozenset({"vocab_size", "source_vocab_size"})

# What changes how a model is trained, and not what it computes.
REGULARIZATION: Final = frozenset(
    {"dropout", "embedding_dropout", "attention_dropout", "relu_dropout", "label_smoothing"}
)


# Far beyond what anyone uses. Files may be damaged, or a stranger's: what they ask for is known to fit in numbers of 64
# bits before anything is made of that size.
MOST_LAYERS: Final = 1_000
MOST_WIDE: Final = 2**20
MOST_SYMBOLS: Final = 2**24
_LARGEST: Final = 2**53  # the integers that floating-point numbers have, too


class Section(BaseModel):
    """A frozen table of a configuration file: unknown keys are errors, values never change."""

    # Strict: `max_steps = true` is no 1, and `"yes"` no boolean; every number is one to calculate with.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_magnitude(cls, value: object) -> object:
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError(f"no number here may be beyond 2^53 = {_LARGEST:,}")
        return value


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

    ``d_k`` and ``d_v`` are per head; left out, they are ``d_model / heads`` (section 3.2.2). ``embedding_dropout``,
    left out, is ``dropout``: the paper has one rate for both (section 5.4).
    """

    encoder_layers: int = Field(6, ge=1, le=MOST_LAYERS, description="N of the encoder")
    decoder_layers: int = Field(6, ge=1, le=MOST_LAYERS, description="N of the decoder")
    d_model: int = Field(512, ge=1, le=MOST_WIDE, description="width of every sub-layer's output")
    d_ff: int = Field(2048, ge=1, le=MOST_WIDE, description="width inside the feed-forward sub-layers")
    heads: int = Field(8, ge=1, le=MOST_WIDE, description="h, the number of attention heads")
    d_k: int = Field(0, ge=0, le=MOST_WIDE, description="width of a head's queries and keys; 0 means d_model / heads")
    d_v: int = Field(0, ge=0, le=MOST_WIDE, description="width of a head's values; 0 means d_model / heads")

    dropout: float = Field(0.1, ge=0, lt=1, description="P_drop, on each sub-layer's output")
    embedding_dropout: float = Field(
        0.1, ge=0, lt=1, description="on the sums of embeddings and positions; dropout's rate where it is left out"
    )
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on the attention weights; the paper: none")
    relu_dropout: float = Field(0.0, ge=0, lt=1, description="inside the feed-forward sub-layers; the paper: none")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="epsilon_ls of section 5.4")

    vocab_size: int = Field(
        37_000, ge=1, le=MOST_SYMBOLS, description="symbols of the target's vocabulary, which the source shares"
    )
    source_vocab_size: int | None = Field(
        None, ge=1, le=MOST_SYMBOLS, description="symbols of the source's own vocabulary, where it shares none"
    )
    tied_projection: bool = Field(
        True, description="the target's embedding also scores the output (section 3.4); false: a matrix of its own"
    )

    positions: Positions = Field(
        "sinusoidal",
        description="what tells positions apart: sinusoidal, learned (section 3.5), relative (Shaw et al. 2018), none",
    )
    position_combination: PositionCombination = Field(
        "add",
        description="how positions join embeddings: add; concatenate: side by side, then a learned map to d_model",
    )
    positions_at_every_layer: bool = Field(
        False, description="positions come in before every layer, not only the first"
    )
    sinusoid_layout: SinusoidLayout = Field(
        "interleaved",
        description="sines in the even dimensions, as in the paper, or all sines first, as in its code",
    )
    sinusoid_range: SinusoidRange = Field(
        "open",
        description="wavelengths up to, but without, 10000 2 pi, as in the paper's formula, or with it, as in its code",
    )
    max_positions: int = Field(1024, ge=1, le=MOST_SYMBOLS, description="how many positions learned embeddings know")
    max_relative_distance: int = Field(
        16,
        ge=1,
        le=MOST_WIDE,
        description="k of Shaw et al. 2018: all distances from here on are one to relative positions",
    )

    compatibility: Compatibility = Field(
        "scaled_dot_product",
        description="of a query and a key (section 3.2.1): q k / sqrt(d_k); dot_product: q k; multiplicative: q W k; "
        "additive: w tanh(q + k)",
    )
    neighbourhood: int | None = Field(
        None,
        ge=1,
        description="r of section 4: in self-attention a position sees those at most r / 2 from it; left out: all",
    )
    attention_bias: bool = Field(False, description="bias in the attention projections; the paper's formulas have none")

    feed_forward: FeedForwardKind = Field(
        "relu",
        description="relu: two linear maps around a ReLU (section 3.3); parameter_attention: attention over parameters",
    )
    parameter_heads: int = Field(8, ge=1, le=MOST_WIDE, description="h_p, heads of the attention over parameters")
    parameter_d_k: int = Field(64, ge=1, le=MOST_WIDE, description="d_pk, width of its queries and keys")
    parameter_d_v: int = Field(64, ge=1, le=MOST_WIDE, description="d_pv, width of its values")
    parameter_keys: int = Field(1536, ge=1, le=MOST_WIDE, description="n_p, key-value pairs of each of its heads")

    norm: NormPosition = Field("post", description="post: LayerNorm(x + Sublayer(x)); pre: x + Sublayer(LayerNorm(x))")
    norm_epsilon: float = Field(1e-6, gt=0, description="added to the variance inside LayerNorm")
    residual: bool = Field(True, description="x + Sublayer(x), not Sublayer(x) alone, which only a study wants")
    initializer: Initializer = Field(
        "glorot_uniform",
        description="of linear maps: uniform up to sqrt(6 / (inputs + outputs)); unit_scaling: up to sqrt(3 / inputs)",
    )

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, values: object) -> object:
        """Fill blanks in while the data is still data: the finished configuration has none."""
        if not isinstance(values, dict):
            return values
        if isinstance(rate := values.get("dropout"), int | float) and 0 <= rate < 1:
            values = {"embedding_dropout": rate} | values
        d_model, heads = values.get("d_model", 512), values.get("heads", 8)
        if not (isinstance(d_model, int) and isinstance(heads, int) and 0 < d_model <= MOST_WIDE and heads > 0):
            return values  # the fields' own checks will name these
        blanks = [name for name in ("d_k", "d_v") if not values.get(name)]
        # What does not divide is refused behind the fields' own checks, so that it hides none of them.
        return values if d_model % heads else values | dict.fromkeys(blanks, d_model // heads)

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if blanks := [name for name in ("d_k", "d_v") if not getattr(self, name)]:
            raise ValueError(
                f"heads = {self.heads} does not divide d_model = {self.d_model}: "
                f"choose a divisor of {self.d_model}, or give {' and '.join(blanks)}"
            )
        return self

    @model_validator(mode="after")
    def _check_sinusoids(self) -> Self:
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model = {self.d_model} is odd: sinusoids come in pairs, choose an even d_model")
        if self.positions == "sinusoidal" and self.sinusoid_range == "closed" and self.d_model < 4:
            raise ValueError(f"sinusoid_range = 'closed' needs two wavelengths: d_model = {self.d_model} has one")
        return self

    @model_validator(mode="after")
    def _check_that_all_is_read(self) -> Self:
        """A setting that another one makes idle is a mistake, not a preference."""
        idle = []
        for name, (other, readers) in _READ_ONLY_WITH.items():
            default = type(self).model_fields[name].default
            if getattr(self, name) != default and getattr(self, other) not in readers:
                allowed = " or ".join(repr(reader) for reader in readers)
                idle.append(
                    f"{name} = {getattr(self, name)!r} is for {other} = {allowed}: leave it out, or give its default "
                    f"{default!r}, as {other} is {getattr(self, other)!r}"
                )
        if idle:
            raise ValueError("; ".join(idle))
        return self

    @property
    def longest(self) -> int | None:
        """The most symbols that a sequence may have, where there is such a limit."""
        return self.max_positions if self.positions == "learned" else None


# Fields that mean something only where another one has one of some values.
_READ_ONLY_WITH: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "sinusoid_layout": ("positions", ("sinusoidal",)),
    "sinusoid_range": ("positions", ("sinusoidal",)),
    "max_positions": ("positions", ("learned",)),
    "max_relative_distance": ("positions", ("relative",)),
    "position_combination": ("positions", ("sinusoidal", "learned")),
    "positions_at_every_layer": ("positions", ("sinusoidal", "learned")),
    "parameter_heads": ("feed_forward", ("parameter_attention",)),
    "parameter_d_k": ("feed_forward", ("parameter_attention",)),
    "parameter_d_v": ("feed_forward", ("parameter_attention",)),
    "parameter_keys": ("feed_forward", ("parameter_attention",)),
    "relu_dropout": ("feed_forward", ("relu",)),
}
