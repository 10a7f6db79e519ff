"""What a Transformer is: every choice of sections 3 and 5.4 of the paper, as validated, frozen data."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from transduce.config.experts import (
    Balance,
    ExpertNoise,
    Experts,
    ExpertsPerToken,
    ImportanceLoss,
    LoadLoss,
    check_experts,
    without_noise_no_load,
)
from transduce.config.section import ALLOWED, REFUSED, Section, Setting, describe_idle

NormPosition = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned", "relative", "none"]
SinusoidLayout = Literal["interleaved", "concatenated"]
SinusoidRange = Literal["open", "closed"]
PositionCombination = Literal["add", "concatenate"]
Compatibility = Literal["scaled_dot_product", "dot_product", "multiplicative", "additive"]
FeedForwardKind = Literal["mlp", "gated", "parameter_attention", "mixture_of_experts"]
SelfAttention = Literal["multi_head", "average"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
Initializer = Literal["glorot_uniform", "unit_scaling"]

# These follow from the tokenizers: no run file sets them.
VOCABULARY_SIZES: Final = frozenset({"vocab_size", "source_vocab_size"})

# Far beyond what anyone uses. Files may be damaged, or a stranger's: what they ask for is known to fit in numbers of 64
# bits before anything is made of that size.
MOST_LAYERS: Final = 1_000
MOST_WIDE: Final = 2**20
MOST_SYMBOLS: Final = 2**24

# Settings that mean something only where another one has one of some values.
_WITH_SINUSOIDS: Final = Setting("refused", read_with=("positions", ("sinusoidal",)))
_WITH_LEARNED_POSITIONS: Final = Setting("refused", read_with=("positions", ("learned",)))
_WITH_RELATIVE_POSITIONS: Final = Setting("refused", read_with=("positions", ("relative",)))
_WITH_ADDED_POSITIONS: Final = Setting("refused", read_with=("positions", ("sinusoidal", "learned")))
_WITH_AVERAGE: Final = Setting("refused", read_with=("decoder_self_attention", ("average",)))
_WITH_PARAMETER_ATTENTION: Final = Setting("refused", read_with=("feed_forward", ("parameter_attention",)))
# Read wherever a network has a hidden layer: the feed-forward sub-layers, or the network of average attention.
_OF_HIDDEN_LAYERS: Final = ("activation", "activation_dropout", "feed_forward_bias")


class TransformerConfig(Section):
    """An encoder-decoder Transformer; the defaults are the paper's base model (Table 3, row "base").

    ``d_k`` and ``d_v`` are per head; left out, they are ``d_model / heads`` (section 3.2.2). ``embedding_dropout``,
    left out, is ``dropout``: the paper has one rate for both (section 5.4). ``final_norm`` follows from ``norm``.
    """

    architecture: Annotated[Literal["transformer"], REFUSED] = Field(
        default="transformer", description="the kind of model that this section is of"
    )
    encoder_layers: Annotated[int, REFUSED] = Field(default=6, ge=1, le=MOST_LAYERS, description="N of the encoder")
    decoder_layers: Annotated[int, REFUSED] = Field(default=6, ge=1, le=MOST_LAYERS, description="N of the decoder")
    d_model: Annotated[int, REFUSED] = Field(
        default=512, ge=1, le=MOST_WIDE, description="width of every sub-layer's output"
    )
    d_ff: Annotated[int, REFUSED] = Field(
        default=2048, ge=1, le=MOST_WIDE, description="width inside feed-forward networks"
    )
    heads: Annotated[int, REFUSED] = Field(
        default=8, ge=1, le=MOST_WIDE, description="h, the number of attention heads"
    )
    d_k: Annotated[int, REFUSED] = Field(
        default=0, ge=0, le=MOST_WIDE, description="width of a head's queries and keys; 0 means d_model / heads"
    )
    d_v: Annotated[int, REFUSED] = Field(
        default=0, ge=0, le=MOST_WIDE, description="width of a head's values; 0 means d_model / heads"
    )

    dropout: Annotated[float, ALLOWED] = Field(
        default=0.1, ge=0, lt=1, description="P_drop, dropout on each sub-layer's output (section 5.4)"
    )
    embedding_dropout: Annotated[float, ALLOWED] = Field(
        default=0.1, ge=0, lt=1, description="dropout on the sums of embeddings and positions; left out: as dropout"
    )
    attention_dropout: Annotated[float, ALLOWED] = Field(
        default=0.0, ge=0, lt=1, description="dropout on the attention weights; the paper: none"
    )
    activation_dropout: Annotated[float, Setting("allowed", formerly=("relu_dropout",))] = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="dropout behind the activation of feed-forward networks; the paper: none",
    )
    label_smoothing: Annotated[float, ALLOWED] = Field(
        default=0.1, ge=0, lt=1, description="epsilon_ls, label smoothing (section 5.4)"
    )

    vocab_size: Annotated[int, REFUSED] = Field(
        default=37_000, ge=1, le=MOST_SYMBOLS, description="symbols of the target's vocabulary, which the source shares"
    )
    source_vocab_size: Annotated[int | None, REFUSED] = Field(
        default=None, ge=1, le=MOST_SYMBOLS, description="symbols of the source's own vocabulary, where it shares none"
    )
    tied_projection: Annotated[bool, REFUSED] = Field(
        default=True,
        description="the target's embedding also scores the output (section 3.4); false: a matrix of its own",
    )

    source_end: Annotated[bool, REFUSED] = Field(
        default=True,
        description="the encoder reads the end symbol behind each source; of OpenNMT-py's models it does not",
    )
    output_bias: Annotated[bool, REFUSED] = Field(
        default=False, description="a trained bias of each symbol's logit, as in Marian's models; the paper has none"
    )
    scale_embedding: Annotated[bool, REFUSED] = Field(
        default=True, description="multiply embeddings by sqrt(d_model) (section 3.4); BART and others do not"
    )
    embedding_norm: Annotated[bool, REFUSED] = Field(
        default=False, description="LayerNorm of the sums of embeddings and positions, as in BART's and mBART's models"
    )

    positions: Annotated[Positions, REFUSED] = Field(
        default="sinusoidal",
        description="what tells positions apart: sinusoidal, learned (section 3.5), relative (Shaw et al. 2018), none",
    )
    position_combination: Annotated[PositionCombination, _WITH_ADDED_POSITIONS] = Field(
        default="add",
        description="how positions join embeddings: add; concatenate, with a learned linear map to d_model",
    )
    positions_at_every_layer: Annotated[bool, _WITH_ADDED_POSITIONS] = Field(
        default=False, description="add positions before every layer, not only the first"
    )
    sinusoid_layout: Annotated[SinusoidLayout, _WITH_SINUSOIDS] = Field(
        default="interleaved",
        description="order of sinusoids: sine and cosine by turns, as in the paper, or all sines first, as in its code",
    )
    sinusoid_range: Annotated[SinusoidRange, _WITH_SINUSOIDS] = Field(
        default="open",
        description="wavelengths: open: below 10000 2 pi (the paper's formula); closed: up to it (its code)",
    )
    sinusoid_start: Annotated[int, _WITH_SINUSOIDS] = Field(
        default=0, ge=0, le=MOST_WIDE, description="number of the first position: 0; of fairseq's models 2"
    )
    max_positions: Annotated[int, _WITH_LEARNED_POSITIONS] = Field(
        default=1024, ge=1, le=MOST_SYMBOLS, description="positions that learned embeddings have: the longest sequence"
    )
    max_relative_distance: Annotated[int, _WITH_RELATIVE_POSITIONS] = Field(
        default=16,
        ge=1,
        le=MOST_WIDE,
        description="k of Shaw et al. 2018: all distances from here on are one to relative positions",
    )

    compatibility: Annotated[Compatibility, REFUSED] = Field(
        default="scaled_dot_product",
        description="of a query and a key (section 3.2.1): q k / sqrt(d_k); dot_product: q k; multiplicative: q W k; "
        "additive: w tanh(q + k)",
    )
    attention_window: Annotated[int | None, Setting("refused", formerly=("neighbourhood",))] = Field(
        default=None,
        ge=1,
        description="local self-attention, r of section 4: a position sees those at most r / 2 from it; left out: all",
    )
    attention_bias: Annotated[bool, REFUSED] = Field(
        default=False, description="bias in the attention projections; the paper: none"
    )
    decoder_self_attention: Annotated[SelfAttention, REFUSED] = Field(
        default="multi_head",
        description="multi_head: section 3.2.2; average: the mean of the past, whatever it is (Zhang et al. 2018)",
    )
    average_feed_forward: Annotated[bool, _WITH_AVERAGE] = Field(
        default=True, description="a feed-forward network behind the mean, d_ff wide"
    )
    average_gate: Annotated[bool, _WITH_AVERAGE] = Field(
        default=True, description="gates between the position itself and the mean"
    )

    feed_forward: Annotated[FeedForwardKind, REFUSED] = Field(
        default="mlp",
        description="mlp: two linear maps around an activation (section 3.3); gated: the hidden layer is multiplied by "
        "a second linear map of its input (GLU variants, Shazeer 2020); parameter_attention: attention over "
        "parameters; mixture_of_experts: of several networks, those that a gate chooses (Shazeer et al. 2017)",
    )
    activation: Annotated[Activation, REFUSED] = Field(
        default="relu",
        description="of feed-forward networks: relu (section 3.3), gelu (exact), gelu_tanh (its approximation), "
        "silu (also called swish)",
    )
    feed_forward_bias: Annotated[bool, REFUSED] = Field(
        default=True, description="bias in feed-forward networks; T5 has none"
    )
    parameter_heads: Annotated[int, _WITH_PARAMETER_ATTENTION] = Field(
        default=8, ge=1, le=MOST_WIDE, description="h_p, heads of the attention over parameters"
    )
    parameter_d_k: Annotated[int, _WITH_PARAMETER_ATTENTION] = Field(
        default=64, ge=1, le=MOST_WIDE, description="d_pk, width of its queries and keys"
    )
    parameter_d_v: Annotated[int, _WITH_PARAMETER_ATTENTION] = Field(
        default=64, ge=1, le=MOST_WIDE, description="d_pv, width of its values"
    )
    parameter_keys: Annotated[int, _WITH_PARAMETER_ATTENTION] = Field(
        default=1536, ge=1, le=MOST_WIDE, description="n_p, key-value pairs of each of its heads"
    )
    experts: Experts = 8
    experts_per_token: ExpertsPerToken = 2
    expert_noise: ExpertNoise = True
    importance_loss: ImportanceLoss = 0.1
    load_loss: LoadLoss = 0.1
    expert_balance: Balance = "batch"

    norm: Annotated[NormPosition, REFUSED] = Field(
        default="post", description="post: LayerNorm(x + Sublayer(x)); pre: x + Sublayer(LayerNorm(x))"
    )
    final_norm: Annotated[bool, REFUSED] = Field(
        default=False, description="LayerNorm behind the last layer of each stack; left out: with norm = 'pre' alone"
    )
    norm_epsilon: Annotated[float, REFUSED] = Field(
        default=1e-6, gt=0, description="added to the variance inside LayerNorm"
    )
    residual: Annotated[bool, REFUSED] = Field(
        default=True, description="residual connections, x + Sublayer(x); false is for studies"
    )
    initializer: Annotated[Initializer, REFUSED] = Field(
        default="glorot_uniform",
        description="of linear maps: uniform up to sqrt(6 / (inputs + outputs)); unit_scaling: up to sqrt(3 / inputs)",
    )

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, values: object) -> object:
        """Fill blanks in while the data is still data: the finished configuration has none."""
        if not isinstance(values, dict):
            return values
        if values.get("feed_forward") == "relu" and values.get("activation", "relu") == "relu":
            values = values | {"feed_forward": "mlp"}  # what files said before there were other activations
        if isinstance(rate := values.get("dropout"), int | float) and 0 <= rate < 1:
            values = {"embedding_dropout": rate} | values
        values = without_noise_no_load(values)
        # Pre-norm leaves the last sum of a stack without normalization; post-norm has none left to do.
        values = {"final_norm": values.get("norm") == "pre"} | values
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
    def _check_average(self) -> Self:
        if self.decoder_self_attention == "average" and self.attention_window is not None:
            raise ValueError(
                f"attention_window = {self.attention_window} is for attention that looks at positions, and "
                f"decoder_self_attention = 'average' sums up all of the past: leave one out"
            )
        return self

    @model_validator(mode="after")
    def _check_hidden_layers(self) -> Self:
        """Attention over parameters has none. Its ``d_ff`` is idle and let pass: presets of a size bring one along."""
        of_average = self.decoder_self_attention == "average" and self.average_feed_forward
        if self.feed_forward != "parameter_attention" or of_average:
            return self
        fields, networks = type(self).model_fields, ("mlp", "gated", "mixture_of_experts")
        idle = [name for name in _OF_HIDDEN_LAYERS if getattr(self, name) != fields[name].default]
        if idle:
            raise ValueError("; ".join(describe_idle(self, name, "feed_forward", networks) for name in idle))
        return self

    @model_validator(mode="after")
    def _check_experts(self) -> Self:
        if self.feed_forward == "mixture_of_experts":
            check_experts(
                experts=self.experts,
                mixtures=self.encoder_layers + self.decoder_layers,
                experts_per_token=self.experts_per_token,
                expert_noise=self.expert_noise,
                load_loss=self.load_loss,
            )
        return self

    @property
    def longest(self) -> int | None:
        """The most symbols that a sequence may have, where there is such a limit."""
        return self.max_positions if self.positions == "learned" else None

    @property
    def least_tensors(self) -> int:
        """Tensors that its weights are at least: one for each layer, or for each expert of its layers."""
        experts = self.experts if self.feed_forward == "mixture_of_experts" else 1
        return (self.encoder_layers + self.decoder_layers) * experts

    @property
    def summary(self) -> str:
        """How large it is, for people."""
        return f"{self.encoder_layers} + {self.decoder_layers} layers, d_model {self.d_model:,}"
