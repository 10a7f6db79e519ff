"""What a recurrent encoder-decoder is: the choices of the models that the paper is measured against, as data."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from transduce.config.experts import (
    WITH_EXPERTS,
    Balance,
    ExpertNoise,
    Experts,
    ExpertsPerToken,
    ImportanceLoss,
    LoadLoss,
    check_experts,
    without_noise_no_load,
)
from transduce.config.model import MOST_LAYERS, MOST_SYMBOLS, MOST_WIDE
from transduce.config.section import ALLOWED, REFUSED, Section, Setting

Cell = Literal["lstm", "gru"]
Directions = Literal["one", "first", "all", "interleaved"]
RecurrentFeedForward = Literal["none", "mixture_of_experts"]
ExpertPlaces = Literal["top", "all"]
AttentionPlace = Literal["none", "bahdanau", "luong", "gnmt", "conditional"]
DecoderStart = Literal["last", "mean"]
Readout = Literal["tanh", "maxout", "state"]
AttentionScore = Literal["dot", "general", "additive", "concat", "linear", "location"]
AttentionWindow = Literal["none", "median", "trainable"]

_WITH_LUONG: Final = Setting("refused", read_with=("attention", ("luong",)))
_WITHOUT_LUONG: Final = Setting("refused", read_with=("attention", ("none", "bahdanau", "gnmt", "conditional")))
_WITH_ATTENTION: Final = Setting("refused", read_with=("attention", ("bahdanau", "luong", "gnmt", "conditional")))
_WITH_LOCATION: Final = Setting("refused", read_with=("attention_score", ("location",)))
_WITH_MEDIAN_WINDOW: Final = Setting("refused", read_with=("attention_window", ("median",)))
_WITH_TRAINABLE_WINDOW: Final = Setting("refused", read_with=("attention_window", ("trainable",)))
_HIDDEN_LAYER_SCORES: Final = ("additive", "concat", "location")


class RecurrentConfig(Section):
    """A recurrent encoder-decoder; the defaults are Bahdanau et al.'s model (2015) at half its size, with LSTM cells.

    ``embedding_dropout`` and ``readout_dropout``, left out, are ``dropout``; ``readout_size``, left out, is
    ``embedding_size``. Where the readout is the decoder's state itself, it is ``hidden_size``, with a dropout of 0: the
    top layer's falls on it.
    """

    architecture: Annotated[Literal["recurrent"], REFUSED] = Field(
        default="recurrent", description="the kind of model that this section is of"
    )
    cell: Annotated[Cell, REFUSED] = Field(
        default="lstm",
        description="lstm (Hochreiter and Schmidhuber 1997, with a forget gate) or gru (Cho et al. 2014, whose "
        "candidate is tanh(W x + U (r * h)); here it is PyTorch's, tanh(W x + b + r * (U h + b')))",
    )
    encoder_layers: Annotated[int, REFUSED] = Field(
        default=1, ge=1, le=MOST_LAYERS, description="layers of the encoder"
    )
    decoder_layers: Annotated[int, REFUSED] = Field(
        default=1, ge=1, le=MOST_LAYERS, description="layers of the decoder"
    )
    embedding_size: Annotated[int, REFUSED] = Field(default=512, ge=1, le=MOST_WIDE, description="width of embeddings")
    hidden_size: Annotated[int, REFUSED] = Field(
        default=512, ge=1, le=MOST_WIDE, description="width of a layer's state, in each direction"
    )
    directions: Annotated[Directions, REFUSED] = Field(
        default="all",
        description="of the encoder's layers: one: all read from the left; first: the first reads both ways (GNMT); "
        "all: each reads both ways; interleaved: two stacks, whose layers read from the left and from the right by "
        "turns (Deep-Att)",
    )
    residual_from: Annotated[int | None, REFUSED] = Field(
        default=None,
        ge=2,
        le=MOST_LAYERS,
        description="the first layer, counted from 1, whose input is added to its output (GNMT: 3); left out: none",
    )
    fast_forward: Annotated[bool, REFUSED] = Field(
        default=False,
        description="fast-forward connections between layers (Zhou et al. 2016): half of f_k, what layer k's gates add "
        "up of its input [h_(k-1); half of f_(k-1)], is handed on",
    )

    feed_forward: Annotated[RecurrentFeedForward, REFUSED] = Field(
        default="none",
        description="what stands between the layers of a stack: none; mixture_of_experts: of several networks, those "
        "that a gate chooses (Shazeer et al. 2017)",
    )
    expert_places: Annotated[ExpertPlaces, WITH_EXPERTS] = Field(
        default="top",
        description="where: top: one mixture in each stack, below its top layer (Shazeer et al. 2017: encoders of "
        "three, decoders of two layers); all: one between each two layers",
    )
    d_ff: Annotated[int, WITH_EXPERTS] = Field(default=2048, ge=1, le=MOST_WIDE, description="width inside each expert")
    experts: Experts = 8
    experts_per_token: ExpertsPerToken = 2
    expert_noise: ExpertNoise = True
    importance_loss: ImportanceLoss = 0.1
    load_loss: LoadLoss = 0.1
    expert_balance: Balance = "batch"

    attention: Annotated[AttentionPlace, REFUSED] = Field(
        default="bahdanau",
        description="how the decoder reads the source: none: one vector c in every step (Cho et al. 2014); bahdanau: "
        "the state before asks, the cell reads the context (2015); luong: the top layer's state asks, and both make "
        "the output (2015); gnmt: the bottom layer's state asks, all layers above read the context (Wu et al. 2016); "
        "conditional: the bottom layer has two cells, the first one's state asks, the second reads the context "
        "(Sennrich et al. 2017)",
    )
    decoder_start: Annotated[DecoderStart, _WITH_ATTENTION] = Field(
        default="last",
        description="what the decoder's states begin from: last: the encoder's last states (Bahdanau et al. 2015); "
        "mean: the mean of its outputs (Sennrich et al. 2017)",
    )
    input_feeding: Annotated[bool, _WITH_LUONG] = Field(
        default=True,
        description="the decoder also reads the attentional state of the step before (Luong et al. 2015, 3.3)",
    )
    readout: Annotated[Readout, _WITHOUT_LUONG] = Field(
        default="tanh",
        description="what scores the next symbol, made of state, context and the symbol before: tanh(W [s; c; y]); "
        "maxout: the larger one of each two of W [s; c; y] (Bahdanau et al. 2015); state: the top layer's state "
        "itself (GNMT)",
    )
    readout_size: Annotated[int, REFUSED] = Field(
        default=0,
        ge=0,
        le=MOST_WIDE,
        description="width of the readout, or of Luong's attentional state; 0 means embedding_size",
    )

    attention_score: Annotated[AttentionScore, _WITH_ATTENTION] = Field(
        default="additive",
        description="of a state s of the decoder and an output h of the encoder: dot: s h; general: s W h; additive: "
        "v tanh(W s + V h + b); concat: v tanh(W [s; h]); linear: w [s; h]; location: as additive, and sees the "
        "weights of the step before",
    )
    attention_size: Annotated[int, REFUSED] = Field(
        default=512,
        ge=1,
        le=MOST_WIDE,
        description="units of the hidden layer of scores (additive, concat, location) and of a trainable window's MLPs",
    )
    attention_filters: Annotated[int, _WITH_LOCATION] = Field(
        default=10, ge=1, le=MOST_WIDE, description="filters of the convolution over the weights of the step before"
    )
    attention_filter_width: Annotated[int, _WITH_LOCATION] = Field(
        default=11,
        ge=1,
        le=MOST_WIDE,
        description="positions that a filter sees, an odd number: as many on either side",
    )
    attention_sharpness: Annotated[float, _WITH_ATTENTION] = Field(
        default=1.0, gt=0, description="beta, the inverse temperature of the softmax: above 1 sharper, below 1 smoother"
    )
    attention_smoothing: Annotated[bool, _WITH_ATTENTION] = Field(
        default=False,
        description="weights by sigmoid(e) / sum of sigmoids in the softmax's place (Chorowski et al. 2015)",
    )
    attention_top_k: Annotated[int | None, _WITH_ATTENTION] = Field(
        default=None, ge=1, le=MOST_WIDE, description="only the k largest weights, which sum to 1; left out: all"
    )
    attention_window: Annotated[AttentionWindow, _WITH_ATTENTION] = Field(
        default="none",
        description="what a step may look at: none: all; median: positions around the median of the weights before "
        "(Chorowski et al. 2015); trainable: a window whose length and way are learned (Zhang et al. 2019)",
    )
    attention_window_reach: Annotated[int, _WITH_MEDIAN_WINDOW] = Field(
        default=5, ge=1, le=MOST_WIDE, description="w: the 2 w positions from p - w to p + w - 1, p being the median"
    )
    attention_window_longest: Annotated[float, _WITH_TRAINABLE_WINDOW] = Field(
        default=10.0, gt=0, le=MOST_WIDE, description="L_max, the most positions on either side of its centre"
    )
    attention_window_shift: Annotated[float, _WITH_TRAINABLE_WINDOW] = Field(
        default=2.0, gt=0, le=MOST_WIDE, description="S_max, the most positions that it moves to the right in a step"
    )

    dropout: Annotated[float, ALLOWED] = Field(default=0.2, ge=0, lt=1, description="dropout on every layer's output")
    embedding_dropout: Annotated[float, ALLOWED] = Field(
        default=0.2, ge=0, lt=1, description="dropout on embeddings; left out: as dropout"
    )
    readout_dropout: Annotated[float, ALLOWED] = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="dropout on the readout, or on Luong's attentional state; left out: as dropout, and 0 where the "
        "readout is the top layer's state, on which the layer's own falls",
    )
    label_smoothing: Annotated[float, ALLOWED] = Field(
        default=0.1, ge=0, lt=1, description="epsilon_ls, label smoothing, as the Transformer's (section 5.4)"
    )

    vocab_size: Annotated[int, REFUSED] = Field(
        default=30_000, ge=1, le=MOST_SYMBOLS, description="symbols of the target's vocabulary, which the source shares"
    )
    source_vocab_size: Annotated[int | None, REFUSED] = Field(
        default=None, ge=1, le=MOST_SYMBOLS, description="symbols of the source's own vocabulary, where it shares none"
    )
    tied_projection: Annotated[bool, REFUSED] = Field(
        default=True, description="the target's embedding also scores the output; false: a matrix of its own"
    )
    output_bias: Annotated[bool, REFUSED] = Field(default=False, description="a trained bias of each symbol's logit")

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, values: object) -> object:
        """Fill blanks in while the data is still data: the finished configuration has none."""
        if not isinstance(values, dict):
            return values
        if values.get("readout") == "state":  # which has its layer's dropout already
            values = {"readout_dropout": 0.0} | values
        if isinstance(rate := values.get("dropout"), int | float) and 0 <= rate < 1:
            values = {"embedding_dropout": rate, "readout_dropout": rate} | values
        values = without_noise_no_load(values)
        width = "hidden_size" if values.get("readout") == "state" else "embedding_size"
        return values if values.get("readout_size") else values | {"readout_size": values.get(width, 512)}

    @model_validator(mode="after")
    def _check_widths(self) -> Self:
        if self.readout == "state" and self.readout_size != self.hidden_size:
            raise ValueError(
                f"readout = 'state' is hidden_size = {self.hidden_size} wide, and readout_size = {self.readout_size}: "
                "leave readout_size out"
            )
        if self.tied_projection and self.readout_size != self.embedding_size:
            own = "hidden_size" if self.readout == "state" else "readout_size"
            raise ValueError(
                f"a readout of {self.readout_size} cannot be scored by embeddings of {self.embedding_size}: make "
                f"{own} as large as embedding_size, or set tied_projection = false"
            )
        return self

    @model_validator(mode="after")
    def _check_depth(self) -> Self:
        if self.residual_from is not None:
            if self.fast_forward:
                raise ValueError("residual_from and fast_forward are two ways to the same end: leave one of them out")
            deepest = max(self.encoder_layers, self.decoder_layers)
            if self.residual_from > deepest:
                raise ValueError(
                    f"residual_from = {self.residual_from}: no side has more layers than {deepest}: leave it out, or "
                    f"begin at one of these"
                )
            if self.directions == "first" and self.residual_from < 3 and self.encoder_layers > 1:
                raise ValueError(
                    "residual_from = 2: with directions = 'first', the second layer's input is twice as wide as its "
                    "output; begin at 3"
                )
        if self.attention == "gnmt" and self.decoder_layers == 1:
            raise ValueError(
                "attention = 'gnmt' is read by the layers above the first: set decoder_layers to 2 or more"
            )
        return self

    @model_validator(mode="after")
    def _check_experts(self) -> Self:
        if self.feed_forward == "mixture_of_experts":
            if max(self.encoder_layers, self.decoder_layers) == 1:
                raise ValueError(
                    "feed_forward = 'mixture_of_experts' stands between layers, and neither side has two: set "
                    "encoder_layers or decoder_layers to 2 or more"
                )
            check_experts(
                experts=self.experts,
                mixtures=self.mixtures,
                experts_per_token=self.experts_per_token,
                expert_noise=self.expert_noise,
                load_loss=self.load_loss,
            )
        return self

    @model_validator(mode="after")
    def _check_attention(self) -> Self:
        if self.attention != "none" and self.attention_score == "dot" and self.hidden_size != self.memory_size:
            both = self.directions == "all"
            narrower = "fast_forward = false" if self.fast_forward else "directions = 'one'"
            narrower += " with directions = 'one'" if self.fast_forward and both else ""
            raise ValueError(
                f"attention_score = 'dot' compares the decoder's states, {self.hidden_size} wide, with the encoder's "
                f"outputs, {self.memory_size} wide, as they are: choose 'general', or {narrower}"
            )
        hidden_layer = self.attention_score in _HIDDEN_LAYER_SCORES or self.attention_window == "trainable"
        if self.attention_size != 512 and (self.attention == "none" or not hidden_layer):
            raise ValueError(
                f"attention_size = {self.attention_size} is for attention with a score of a hidden layer (additive, "
                "concat, location) or a trainable window: leave it out, or give its default 512, or choose one of them"
            )
        return self

    @model_validator(mode="after")
    def _check_what_attention_sees(self) -> Self:
        if self.attention_filter_width % 2 == 0:
            raise ValueError(
                f"attention_filter_width = {self.attention_filter_width} is even: a filter sees a position and as many "
                f"on its left as on its right, choose {self.attention_filter_width + 1}"
            )
        window, k = 2 * self.attention_window_reach, self.attention_top_k
        if self.attention_window == "median" and k is not None and k >= window:
            raise ValueError(
                f"attention_top_k = {k} keeps all of a window of 2 * attention_window_reach = {window} positions: "
                "leave it out, or choose fewer"
            )
        return self

    def has_experts_below(self, number: int, layers: int) -> bool:
        """Whether a mixture of experts is below layer ``number``, counted from 1, of a stack of so many ``layers``."""
        if self.feed_forward == "none" or number == 1:
            return False
        return self.expert_places == "all" or number == layers

    @property
    def mixtures(self) -> int:
        """How many mixtures of experts it has."""
        encoders = 2 if self.directions == "interleaved" else 1
        stacks = [*[self.encoder_layers] * encoders, self.decoder_layers]
        return sum(self.has_experts_below(number, layers) for layers in stacks for number in range(1, layers + 1))

    @property
    def summary_size(self) -> int:
        """Width of the encoder's last states, of all directions of its top layer."""
        both = self.directions in ("all", "interleaved") or (self.directions == "first" and self.encoder_layers == 1)
        return self.hidden_size * (2 if both else 1)

    @property
    def memory_size(self) -> int:
        """Width of the encoder's output at each position: its top layer's, and what is handed on beside it."""
        return self.summary_size + self.handed_on * (self.summary_size // self.hidden_size)

    @property
    def handed_on(self) -> int:
        """What a fast-forward connection hands on of a layer in one direction: half of what its gates add up."""
        gates = 4 if self.cell == "lstm" else 3
        return gates * self.hidden_size // 2 if self.fast_forward else 0

    @property
    def longest(self) -> int | None:
        """Sequences may have any length."""
        return None

    @property
    def least_tensors(self) -> int:
        """Tensors that its weights are at least: one for each layer, and for each expert between layers."""
        return self.encoder_layers + self.decoder_layers + self.mixtures * self.experts

    @property
    def summary(self) -> str:
        """How large it is, for people."""
        layers = f"{self.encoder_layers} + {self.decoder_layers} layers of {self.cell.upper()}"
        experts = f", {self.experts:,} experts of {self.d_ff:,}" if self.feed_forward == "mixture_of_experts" else ""
        return f"{layers}, hidden {self.hidden_size:,}{experts}"
