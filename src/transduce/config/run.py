"""What a run is: corpora, tokenizer, model, training and generation settings, as one frozen value."""

from typing import Annotated, Final, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from transduce.config.architectures import ModelConfig, read_model
from transduce.config.convolutional import ConvolutionalConfig
from transduce.config.corpora import DataConfig
from transduce.config.generation import GenerationConfig
from transduce.config.metrics import METRICS, MetricKey
from transduce.config.model import TransformerConfig
from transduce.config.section import ALLOWED, REFUSED, SAFE, Section, Setting
from transduce.config.tokenizer import TokenizerConfig

Precision = Literal["auto", "float32", "bfloat16", "int8"]
TrainingPrecision = Literal["auto", "float32", "bfloat16"]
Parallel = Literal["data", "sharded"]
Objective = Literal["likelihood", "minimum_risk", "reinforce"]

_OF_LIKELIHOOD: Final = Setting("allowed", read_with=("objective", ("likelihood",)))
# Settings of training by the score of a model's own outputs.
_BY_SCORE: Final = Setting("allowed", read_with=("objective", ("minimum_risk", "reinforce")))
_OF_RISK: Final = Setting("allowed", read_with=("objective", ("minimum_risk",)))
_OF_REINFORCE: Final = Setting("allowed", read_with=("objective", ("reinforce",)))


class TrainConfig(Section):
    """The regime of section 5, with its constants as settings. Steps are optimizer steps."""

    batch_tokens: Annotated[int, REFUSED] = Field(
        default=4096, ge=1, description="tokens of a batch on its longer side, padding included; the paper: 25,000"
    )
    accumulate: Annotated[int, REFUSED] = Field(
        default=1, ge=1, description="batches whose gradients are summed for one optimizer step"
    )
    max_steps: Annotated[int, SAFE] = Field(
        default=100_000, ge=1, description="optimizer steps; the paper's base model: 100,000"
    )
    max_minutes: Annotated[float | None, SAFE] = Field(
        default=None,
        gt=0,
        description="minutes of training, validation excluded, after which it ends even before max_steps",
    )
    seed: Annotated[int, REFUSED] = Field(
        default=1, ge=0, description="random seed of the first weights, the order of the data and dropout"
    )
    precision: Annotated[TrainingPrecision, REFUSED] = Field(
        default="auto", description="number format of matrix products; auto: by the processor or GPU"
    )
    parallel: Annotated[Parallel, SAFE] = Field(
        default="data",
        description="several processes: data: each holds the whole model; sharded: each a part (FSDP)",
    )
    hang_minutes: Annotated[float, SAFE] = Field(
        default=10,
        gt=0,
        le=1_000_000,  # two years: timers of the system know no much longer time
        description="with several processes: a step that takes longer ends them all, with stack traces",
    )
    learning_rate: Annotated[float | None, ALLOWED] = Field(
        default=None,
        gt=0,
        description="constant learning rate after the warm-up, in place of section 5.3's schedule; for fine-tuning",
    )
    learning_rate_factor: Annotated[float, ALLOWED] = Field(
        default=1.0, gt=0, description="factor of the learning rate schedule of section 5.3"
    )
    warmup_steps: Annotated[int, ALLOWED] = Field(
        default=4000, ge=1, description="first steps, over which the learning rate rises linearly (section 5.3)"
    )
    cooldown_steps: Annotated[int, ALLOWED] = Field(
        default=0, ge=0, description="last steps, over which the learning rate falls linearly to 0; the paper: none"
    )
    adam_beta1: Annotated[float, ALLOWED] = Field(default=0.9, ge=0, lt=1, description="beta_1 of Adam (section 5.3)")
    adam_beta2: Annotated[float, ALLOWED] = Field(default=0.98, ge=0, lt=1, description="beta_2 of Adam (section 5.3)")
    adam_epsilon: Annotated[float, ALLOWED] = Field(default=1e-9, gt=0, description="epsilon of Adam (section 5.3)")
    symbol_dropout: Annotated[float, _OF_LIKELIHOOD] = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of input tokens that become the unknown symbol in training; the paper: none",
    )
    objective: Annotated[Objective, ALLOWED] = Field(
        default="likelihood",
        description="what is learned from: likelihood: the references; minimum_risk (Shen et al. 2016), reinforce (Wu "
        "et al. 2016): the sentence GLEU of a finished model's own outputs",
    )
    samples: Annotated[int, _BY_SCORE] = Field(
        default=15, ge=2, description="outputs drawn for each pair; Wu et al.: 15, Shen et al.: 100"
    )
    sample_extra_length: Annotated[int, _BY_SCORE] = Field(
        default=20,
        ge=0,
        description="longest output drawn, in tokens more than the longer one of source and reference has",
    )
    sample_temperature: Annotated[float, _OF_RISK] = Field(
        default=1.0, gt=0, description="softmax temperature that outputs are drawn with"
    )
    risk_sharpness: Annotated[float, _OF_RISK] = Field(
        default=0.005,
        gt=0,
        description="alpha of Shen et al. 2016: an output's share of the risk is p^alpha / sum of p^alpha",
    )
    risk_with_reference: Annotated[bool, _OF_RISK] = Field(
        default=True, description="the reference is one of the outputs whose risk is weighed, as in Shen et al. 2016"
    )
    likelihood_weight: Annotated[float, _OF_REINFORCE] = Field(
        default=0.017,
        ge=0,
        description="alpha of Wu et al. 2016: weight of the references' likelihood beside the reward",
    )
    log_every: Annotated[int, SAFE] = Field(default=50, ge=1, description="steps from one line of the log to the next")
    validate_every: Annotated[int, SAFE] = Field(
        default=1000, ge=1, description="steps from one measurement of dev to the next"
    )
    checkpoint_every: Annotated[int, SAFE] = Field(
        default=1000, ge=1, description="steps from one checkpoint to the next"
    )
    checkpoint_minutes: Annotated[float | None, SAFE] = Field(
        default=None,
        gt=0,
        description="minutes of training from one checkpoint to the next, where that is sooner; the paper: 10",
    )
    keep_checkpoints: Annotated[int, SAFE] = Field(default=5, ge=1, description="newest checkpoints that stay on disk")
    average_last: Annotated[int, SAFE] = Field(
        default=1,
        ge=1,
        description="newest checkpoints whose averaged weights are measured on dev too; the paper: 5, 20",
    )
    early_stop: Annotated[int | None, SAFE] = Field(
        default=None, ge=1, description="validations in a row without a better model that end the training"
    )
    best_metric: Annotated[MetricKey, SAFE] = Field(
        default="bleu", description="metric by which a model is the best on dev"
    )
    tensorboard: Annotated[bool, SAFE] = Field(
        default=False, description="write the measurements for TensorBoard too, into RUN/tensorboard"
    )

    @model_validator(mode="after")
    def _check_rate(self) -> "TrainConfig":
        if self.learning_rate is not None and self.learning_rate_factor != 1:
            raise ValueError(
                f"learning_rate = {self.learning_rate:g} is the rate itself, in place of the schedule that "
                f"learning_rate_factor = {self.learning_rate_factor:g} multiplies: leave one of them out (or set "
                f"learning_rate_factor = 1.0)"
            )
        return self

    @model_validator(mode="after")
    def _check_objective(self) -> "TrainConfig":
        if self.objective != "likelihood" and self.parallel == "sharded":
            raise ValueError(
                f'objective = "{self.objective}" has every process draw outputs with the whole model: '
                f'set parallel = "data"'
            )
        return self

    @model_validator(mode="after")
    def _check_averaging(self) -> "TrainConfig":
        if self.average_last > self.keep_checkpoints:
            raise ValueError(
                f"average_last = {self.average_last} needs as many checkpoints, but keep_checkpoints = "
                f"{self.keep_checkpoints}: raise that"
            )
        return self

    @field_validator("best_metric")
    @classmethod
    def _check_best_metric(cls, value: MetricKey) -> MetricKey:
        if METRICS[value].needs == "trained":
            known = [key for key, metric in METRICS.items() if metric.needs != "trained"]
            raise ValueError(
                f"needs a trained model that judges outputs, which a training does not load: choose from "
                f"{', '.join(known)} (evaluate --metric {value} scores the finished model)"
            )
        return value

    @field_validator("precision", mode="before")
    @classmethod
    def _check_precision(cls, value: object) -> object:
        if value == "int8":
            raise ValueError(
                "for finished models (translate, evaluate): whole numbers have no gradients; "
                "choose auto, float32 or bfloat16"
            )
        return value


class RunConfig(Section):
    """A whole run file."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: SerializeAsAny[ModelConfig] = TransformerConfig()
    train: TrainConfig = TrainConfig()
    generation: Annotated[GenerationConfig, SAFE] = GenerationConfig()

    @field_validator("model", mode="wrap")
    @classmethod
    def _choose_architecture(cls, value: object, _: object) -> ModelConfig:
        return read_model(value)

    @model_validator(mode="before")
    @classmethod
    def _measure_trees_by_brackets(cls, values: object) -> object:
        """Where nothing else is said, a treebank's checkpoints are compared by brackets: BLEU is of texts."""
        if not isinstance(values, dict):
            return values
        match values:
            case {"data": {"dev": {"trees": str() | list()}}}:
                train = values.get("train", {})
                return {**values, "train": {"best_metric": "brackets", **train}} if isinstance(train, dict) else values
        return values

    @model_validator(mode="after")
    def _check_best_metric(self) -> "RunConfig":
        if self.train.best_metric == "brackets" and self.data.dev.trees is None:
            raise ValueError(
                'train.best_metric = "brackets" is for treebanks: give data.dev trees, or take another one'
            )
        return self

    @model_validator(mode="after")
    def _check_objective(self) -> "RunConfig":
        objective = self.train.objective
        if objective != "likelihood" and self.model.label_smoothing:
            raise ValueError(
                f'train.objective = "{objective}" weighs outputs by their probabilities, which label smoothing would '
                f"not leave as they are: set model.label_smoothing = 0.0"
            )
        if objective != "likelihood" and self.tokenizer.bpe_dropout:
            raise ValueError(
                f'train.objective = "{objective}" compares the tokens of outputs and references, which BPE-dropout '
                f"splits by chance: set tokenizer.bpe_dropout = 0.0"
            )
        return self

    @model_validator(mode="after")
    def _check_vocabularies(self) -> "RunConfig":
        if isinstance(self.model, ConvolutionalConfig) and self.model.shared_embedding and not self.tokenizer.shared:
            raise ValueError(
                "model.shared_embedding = true needs one vocabulary, and the sides have their own: leave it out, or "
                "[tokenizer.source] and [tokenizer.target]"
            )
        return self

    @model_validator(mode="after")
    def _check_stream(self) -> "RunConfig":
        if self.data.streaming and self.data.max_length > self.train.batch_tokens:
            raise ValueError(
                f"data.max_length = {self.data.max_length} is beyond train.batch_tokens = {self.train.batch_tokens}: "
                f"of a stream nobody knows the longest pair before it comes: raise the budget, or lower data.max_length"
            )
        return self

    @model_validator(mode="after")
    def _check_lengths(self) -> "RunConfig":
        longest = self.model.longest
        if longest is not None and self.data.max_length > longest:
            raise ValueError(
                f"data.max_length = {self.data.max_length} is beyond the positions that are learned: raise "
                f"model.max_positions = {longest}, or lower data.max_length to {longest} or less"
            )
        return self
