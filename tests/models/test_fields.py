"""Every field of a model's configuration changes the model as it says, alone; and so does every field of every preset.

The presets' values are scaled down with the base model, so that each is as many times the base model's as published.
"""

import math
from collections import Counter
from fractions import Fraction
from functools import cache
from importlib import import_module

import pytest
import torch

from transduce.config import PRESETS, PUBLISHED, TransformerConfig
from transduce.layers import Stream
from transduce.models import Tokens, build

BASE = PRESETS["base"].model_dump()
# Numbers that every published ratio of theirs leaves whole, and that no other field shares.
SMALL = {
    "encoder_layers": 3,
    "decoder_layers": 6,
    "d_model": 56,
    "d_ff": 72,
    "heads": 8,
    "d_k": 20,
    "d_v": 24,
    "vocab_size": 296,
    "parameter_heads": 2,
    "parameter_keys": 15,
    "parameter_d_k": 5,
    "parameter_d_v": 11,
    "max_positions": 13,
}
LEARNED, RELATIVE, OVER_PARAMETERS = (
    {"positions": "learned"},
    {"positions": "relative"},
    {"feed_forward": "parameter_attention"},
)
EXPERTS = {"feed_forward": "mixture_of_experts"}
AVERAGE = {"decoder_self_attention": "average"}
# Layers enough to change one field of a model that is compared with nothing published.
TWO_EACH = {"encoder_layers": 2, "decoder_layers": 2}
# What has to be so for a field to be read at all.
GROUNDS = {
    "final_norm": {"norm": "pre"},  # behind post-norm one without weights of its own changes nothing
    "max_positions": LEARNED,
    "max_relative_distance": RELATIVE,
    **dict.fromkeys(("parameter_heads", "parameter_keys", "parameter_d_k", "parameter_d_v"), OVER_PARAMETERS),
    **dict.fromkeys(("experts", "experts_per_token", "expert_noise", "expert_balance"), EXPERTS),
    **dict.fromkeys(("average_feed_forward", "average_gate"), AVERAGE),
    **dict.fromkeys(("importance_loss", "load_loss"), EXPERTS),
}
# Of every field, another value than the base model's.
OTHERS = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 14,
    "d_ff": 31,
    "heads": 3,
    "d_k": 7,
    "d_v": 7,
    "dropout": 0.3,
    "embedding_dropout": 0.3,
    "attention_dropout": 0.3,
    "activation_dropout": 0.3,
    "label_smoothing": 0.3,
    "vocab_size": 79,
    "source_vocab_size": 37,
    "tied_projection": False,
    "source_end": False,
    "positions": "relative",
    "position_combination": "concatenate",
    "positions_at_every_layer": True,
    "sinusoid_layout": "concatenated",
    "sinusoid_range": "closed",
    "sinusoid_start": 2,
    "max_positions": 17,
    "max_relative_distance": 2,
    "compatibility": "additive",
    "attention_window": 2,
    "attention_bias": True,
    "feed_forward": "parameter_attention",
    "activation": "silu",
    "feed_forward_bias": False,
    "output_bias": True,
    "scale_embedding": False,
    "embedding_norm": True,
    "parameter_heads": 3,
    "parameter_d_k": 7,
    "parameter_d_v": 7,
    "parameter_keys": 7,
    "decoder_self_attention": "average",
    "average_feed_forward": False,
    "average_gate": False,
    "experts": 3,
    "experts_per_token": 1,
    "expert_noise": False,
    "importance_loss": 0.5,
    "load_loss": 0.5,
    "expert_balance": "pair",
    "norm": "pre",
    "final_norm": False,
    "norm_epsilon": 0.5,
    "residual": False,
    "initializer": "unit_scaling",
}


def config(field: str | None = None, value: object = None, **sizes: int) -> TransformerConfig:
    """The small model, or what is needed for a field to be read, with one field changed."""
    small = {name: size for name, size in (SMALL | sizes).items() if not name.startswith(("parameter", "max"))}
    ground = GROUNDS.get(field or "", {})
    read = {name: size for name, size in SMALL.items() if GROUNDS.get(name) == ground and ground}
    changes = {} if field is None or value is None else {field: value}
    rates = {name: BASE[name] for name in ("dropout", "embedding_dropout")}
    return TransformerConfig.model_validate({**rates, **small, **ground, **read, **changes})


def count(c: TransformerConfig) -> int:
    """Parameters, by the sums of the paper's formulas."""

    def attention(*, relative: bool = False) -> int:
        maps = c.heads * c.d_model * (2 * c.d_k + 2 * c.d_v)
        biases = (c.heads * (2 * c.d_k + c.d_v) + c.d_model) * c.attention_bias
        own = {"additive": c.heads * c.d_k, "multiplicative": c.heads * c.d_k**2}.get(c.compatibility, 0)
        return maps + biases + own + (2 * c.max_relative_distance + 1) * (c.d_k + c.d_v) * relative

    pairs = c.parameter_heads * (c.parameter_keys + c.d_model) * (c.parameter_d_k + c.parameter_d_v)
    mlp = 2 * c.d_model * c.d_ff + (c.d_ff + c.d_model) * c.feed_forward_bias
    networks = {
        "mlp": mlp,
        "mixture_of_experts": c.experts * (mlp + c.d_model * (1 + c.expert_noise)),
        "gated": 3 * c.d_model * c.d_ff + (2 * c.d_ff + c.d_model) * c.feed_forward_bias,
        "parameter_attention": pairs,
    }
    norm, to_self = 2 * c.d_model, attention(relative=c.positions == "relative")
    encoder = c.encoder_layers * (to_self + networks[c.feed_forward] + 2 * norm)
    average = mlp * c.average_feed_forward + 4 * c.d_model**2 * c.average_gate
    to_past = average if c.decoder_self_attention == "average" else to_self
    decoder = c.decoder_layers * (to_past + attention() + networks[c.feed_forward] + 3 * norm)
    positions = (c.positions == "learned") * c.max_positions + (c.position_combination == "concatenate") * 2 * c.d_model
    rows = c.vocab_size * (1 if c.tied_projection else 2) + (c.source_vocab_size or 0) + 2 * positions
    norms = 2 * norm * (c.final_norm + c.embedding_norm)
    return encoder + decoder + rows * c.d_model + norms + c.vocab_size * c.output_bias


SOURCE = Tokens(torch.tensor([[5, 7, 11, 13, 17, 2], [19, 23, 29, 2, 0, 0]]), torch.tensor([6, 4]))
TARGET = Tokens(torch.tensor([[1, 6, 8, 12, 14, 18], [1, 20, 24, 30, 0, 0]]), torch.tensor([6, 4]))
LABELS = torch.tensor([[6, 8, 12, 14, 18, 2], [20, 24, 30, 2, 0, 0]])


def observe(c: TransformerConfig) -> tuple[int, float, float]:
    """How many parameters there are, and the objective in training and else, everything drawn with one seed."""
    return observed(c.model_dump_json())


@cache  # most fields are changed on the same ground
def observed(c: str) -> tuple[int, float, float]:
    torch.manual_seed(3)
    model = build(TransformerConfig.model_validate_json(c))
    if isinstance(model.output_bias, torch.Tensor):  # which starts as zeros
        torch.nn.init.normal_(model.output_bias)
    for name, parameter in model.named_parameters():
        if name.endswith("feed_forward.gate"):  # a mixture's, zeros too
            torch.nn.init.normal_(parameter)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    training, other = (model.train(mode)(SOURCE, TARGET, LABELS).objective.item() for mode in (True, False))
    return parameters, training, other


def test_a_gated_network_has_as_many_parameters_as_its_formulas():
    gated = config("feed_forward", "gated")
    assert observe(gated)[0] == count(gated)
    assert count(gated) - count(config()) == (3 + 6) * (SMALL["d_model"] + 1) * SMALL["d_ff"]


@pytest.mark.parametrize("field", [name for name in TransformerConfig.model_fields if name != "architecture"])
def test_no_field_is_unread(field):
    """A field that is new, and has no other value here yet, fails; tests/test_architectures.py reads this one."""
    ground, changed = config(field, **TWO_EACH), config(field, OTHERS[field], **TWO_EACH)
    one, other = observe(ground), observe(changed)
    assert (one[0], other[0]) == (count(ground), count(changed))
    assert one[1] != other[1]
    assert (one[2] != other[2]) != field.endswith("dropout")  # which is for training only


@pytest.mark.parametrize("field", ["d_ff", "activation", "activation_dropout", "feed_forward_bias"])
def test_the_network_of_average_attention_reads_its_fields_beside_attention_over_parameters(field):
    ground = OVER_PARAMETERS | AVERAGE | TWO_EACH
    one, other = observe(config(**ground)), observe(config(field, OTHERS[field], **ground))
    assert one[1] != other[1]


def scaled(field, value):
    """As many times the small model's value as the published one is the base model's, where that is a size."""
    if field not in SMALL and field != "source_vocab_size":
        return value
    size = "vocab_size" if field == "source_vocab_size" else field
    found = Fraction(value, BASE[size]) * SMALL[size]
    assert found.denominator == 1
    return int(found)


def check_sizes(ground, changed):
    """Nothing but shapes: as many parameters as the formulas of the paper have, and a model that runs."""
    found, before = observe(changed), observe(ground)
    assert (before[0], found[0]) == (count(ground), count(changed))
    assert found[0] != before[0]
    assert math.isfinite(found[1])


def check_sinusoids(_, changed):
    """sin and cos of pos / 10000^(i / n) for i = 0, 1 ...; n = d_model / 2 or one less; by turns, or sines first."""
    pairs = changed.d_model // 2
    steps = pairs if changed.sinusoid_range == "open" else pairs - 1
    angles = [11 / 10000 ** (i / steps) for i in range(pairs)]
    sines, cosines = map(math.sin, angles), map(math.cos, angles)
    in_turn = [x for pair in zip(sines, cosines, strict=True) for x in pair]
    expected = in_turn if changed.sinusoid_layout == "interleaved" else in_turn[::2] + in_turn[1::2]
    model = build(changed)
    for side in (model.encoder_positions, model.decoder_positions):
        assert side.table(torch.tensor([[11]]), 12)[0, 0].tolist() == pytest.approx(expected, abs=1e-6)


def check_initializer(_, changed):
    """Uniform up to sqrt(3 / inputs), in every map; with a thousand numbers and more, one comes within 2% of it."""
    maps = [module for module in build(changed).modules() if isinstance(module, torch.nn.Linear)]
    assert len(maps) == 3 * (4 + 2) + 6 * (8 + 2)
    for each in maps:
        limit = math.sqrt(3 / each.in_features)
        assert 0.98 * limit < each.weight.abs().max().item() <= limit


@torch.no_grad()
def check_norm(ground, changed):
    """Pre-norm: a layer's output is a sum, and a norm stands behind each stack."""
    check_sizes(ground, changed)
    assert count(changed) - count(ground) == 2 * 2 * changed.d_model
    x = torch.randn(SOURCE.layout().tokens, changed.d_model)
    for c, normalized in ((ground, True), (changed, False)):
        output = build(c).eval().encoder[0](Stream(x), SOURCE.layout(), None)[0].settle()
        variance = output.var(-1, correction=0)
        assert variance.sub(1).abs().lt(1e-4).all().item() == normalized


@torch.no_grad()
def check_smoothing(_, changed):
    """-(1 - epsilon) log p(label) - epsilon times the mean of log p over the vocabulary; the other figure has none."""
    model = build(changed).eval()
    sums = model(SOURCE, TARGET, LABELS)
    logits = TARGET.layout().pad(model.decode(model.encode(SOURCE), TARGET).hidden) @ model.embedding.weight.T
    nll = objective = 0.0
    for row, length in enumerate((6, 4)):
        for time in range(length):
            scores = logits[row, time].double()
            log_p = (scores - scores.exp().sum().log()).tolist()
            own, mean = log_p[LABELS[row, time]], sum(log_p) / len(log_p)
            nll -= own
            objective -= (1 - changed.label_smoothing) * own + changed.label_smoothing * mean
    assert (sums.nll.item(), sums.objective.item()) == pytest.approx((nll, objective), rel=1e-5)


def rates(c, *, training):
    """Where the plain kernels call dropout in a forward pass, how often, and with what rate."""
    called = Counter()
    model = build(c).train(training)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transduce.kernels.native._library", lambda: None)
        for place in ("kernels.add_norm", "kernels.feed_forward", "layers.dropout", "kernels.scores"):

            def record(x, dropped, place=place):
                called[place, dropped.share] += 1
                return x

            patch.setattr(import_module(f"transduce.{place}"), "dropout", record)
        model(SOURCE, TARGET, LABELS)
    return called


def check_dropout(ground, changed):
    """Each rate in its own place, in every layer, in training only."""
    for c in (ground, changed):
        layers = c.encoder_layers + c.decoder_layers
        places = [
            ("kernels.add_norm", c.dropout, 2 * layers + c.decoder_layers),
            ("layers.dropout", c.embedding_dropout, 2),
            ("kernels.feed_forward", c.activation_dropout, layers),
            ("kernels.scores", c.attention_dropout, layers + c.decoder_layers),
        ]
        training, serving = Counter(), Counter()
        for place, rate, times in places:
            training[place, rate] += times
            serving[place, 0.0] += times
        assert (rates(c, training=True), rates(c, training=False)) == (training, serving)


PREDICTIONS = {
    **dict.fromkeys(("encoder_layers", "decoder_layers", "d_model", "d_ff", "heads", "d_k", "d_v"), check_sizes),
    **dict.fromkeys(("vocab_size", "source_vocab_size", "tied_projection", "positions", "feed_forward"), check_sizes),
    **dict.fromkeys(("parameter_heads", "parameter_keys"), check_sizes),
    **dict.fromkeys(("dropout", "embedding_dropout", "attention_dropout", "activation_dropout"), check_dropout),
    **dict.fromkeys(("sinusoid_layout", "sinusoid_range"), check_sinusoids),
    "label_smoothing": check_smoothing,
    "norm": check_norm,
    "initializer": check_initializer,
}
# Presets of other architectures have tests of their own.
TRANSFORMERS = {name: config for name, config in PRESETS.items() if isinstance(config, TransformerConfig)}
CHANGED = [
    (name, field, value)
    for name, published in TRANSFORMERS.items()
    for field, value in published.model_dump().items()
    if value != BASE[field] and field != "final_norm"  # which follows from the norm's place
]


def tried():
    """Every field with every value of a preset; from the third value of a field on, they are slow."""
    seen = Counter()
    for field, value in sorted({(field, value) for _, field, value in CHANGED}, key=str):
        seen[field] += 1
        yield pytest.param(field, value, marks=[pytest.mark.slow] if seen[field] > 2 else [])


@pytest.mark.parametrize(("field", "value"), [*tried()])
def test_each_field_of_each_preset_alone_does_what_it_should(field, value):
    """Presets share values, and each is tried once; one without a prediction fails."""
    torch.manual_seed(3)
    PREDICTIONS[field](config(field), config(field, scaled(field, value)))


def test_the_values_tried_are_those_of_all_presets():
    assert {name for name, _, _ in CHANGED} == TRANSFORMERS.keys() - {"base"}
    assert {field for name in TRANSFORMERS for field in PUBLISHED[name].model} <= PREDICTIONS.keys()


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_published_model_has_as_many_parameters_as_its_formulas(name):
    with torch.device("meta"):
        model = build(PRESETS[name])
    assert sum(parameter.numel() for parameter in model.parameters()) == count(PRESETS[name])
