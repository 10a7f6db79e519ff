"""Table 3 of the paper as data, and its rows at another size: the same relative changes of a smaller base."""

from dataclasses import dataclass
from typing import Any, Final, final

from transduce.config.model import NormPosition, TransformerConfig
from transduce.config.presets import PRESETS, PUBLISHED
from transduce.config.run import TrainConfig

SMALL: Final = "tiny"


@final
@dataclass(frozen=True)
class Table3Row:
    """A row as printed: Vaswani et al. 2017, Table 3, English to German, newstest2013, one training each.

    ``preset`` is what it changes of base; ``perplexity`` is per word piece; ``millions`` are of parameters, where the
    row prints them.
    """

    preset: str
    part: str
    perplexity: float
    bleu: float
    millions: int | None = None


TABLE3: Final = (
    Table3Row("base", "base", 4.92, 25.8, 65),
    Table3Row("table3-a-h1", "(A)", 5.29, 24.9),
    Table3Row("table3-a-h4", "(A)", 5.00, 25.5),
    Table3Row("table3-a-h16", "(A)", 4.91, 25.8),
    Table3Row("table3-a-h32", "(A)", 5.01, 25.4),
    Table3Row("table3-b-dk16", "(B)", 5.16, 25.1, 58),
    Table3Row("table3-b-dk32", "(B)", 5.01, 25.4, 60),
    Table3Row("table3-c-n2", "(C)", 6.11, 23.7, 36),
    Table3Row("table3-c-n4", "(C)", 5.19, 25.3, 50),
    Table3Row("table3-c-n8", "(C)", 4.88, 25.5, 80),
    Table3Row("table3-c-d256", "(C)", 5.75, 24.5, 28),
    Table3Row("table3-c-d1024", "(C)", 4.66, 26.0, 168),
    Table3Row("table3-c-ff1024", "(C)", 5.12, 25.4, 53),
    Table3Row("table3-c-ff4096", "(C)", 4.75, 26.2, 90),
    Table3Row("table3-d-drop0.0", "(D)", 5.77, 24.6),
    Table3Row("table3-d-drop0.2", "(D)", 4.95, 25.5),
    Table3Row("table3-d-ls0.0", "(D)", 4.67, 25.3),
    Table3Row("table3-d-ls0.2", "(D)", 5.47, 25.7),
    Table3Row("table3-e", "(E)", 4.92, 25.7),
    Table3Row("big", "big", 4.33, 26.4, 213),
)

# The supplementary section "Two Feed-Forward Layers = Attention over Parameters": its table has the same base.
SUPPLEMENT: Final = (
    Table3Row("aop1", "(AOP)", 4.92, 25.5, 65),
    Table3Row("aop2", "(AOP)", 4.86, 25.9, 65),
)
VARIATIONS: Final = (*TABLE3, *SUPPLEMENT)


def scale_preset(name: str, small: str = SMALL, norm: NormPosition = "post") -> TransformerConfig:
    """The small preset with the relative changes that a row makes of base.

    A count or width n becomes n small / base, rounded, at least 1; rates and choices stay as they are; widths of heads
    that the row leaves out follow ``d_model / heads``. Attention over parameters has as many as the feed-forward
    network that it replaces, and the same share of them in its keys and values. ``norm`` is the same for all rows.

    Raises:
        KeyError: There is no such preset.
        pydantic.ValidationError: At this size the changes do not fit.
    """
    changes = {field: _scale(field, value, small) for field, value in PUBLISHED[name].model.items()}
    if changes.get("feed_forward") == "parameter_attention":
        changes |= _scale_parameter_attention(name, small)
    return TransformerConfig.model_validate({**PUBLISHED[small].model, **changes, "norm": norm})


def scale_steps(name: str, steps: int) -> int:
    """How long a row is trained where base has so many steps: the paper gives big three times base's."""
    base = TrainConfig().max_steps
    paper: int = PUBLISHED[name].regime.get("train", {}).get("max_steps", base)
    return round(steps * paper / base)


def _scale(field: str, value: Any, small: str) -> Any:  # noqa: ANN401 - a preset's values are of any type
    return max(1, round(value * _ratio(field, small))) if type(value) is int else value


def _scale_parameter_attention(name: str, small: str) -> dict[str, int]:
    """Of h_p heads of width d_p with n_p keys: 2 h_p d_p (d_model + n_p) parameters in place of 2 d_model d_ff.

    So h_p d_p becomes as much smaller as d_ff, and n_p as d_model.
    """
    row, heads = PRESETS[name], _ratio("heads", small)
    assert row.architecture == "transformer"
    ratios = {
        "parameter_heads": heads,
        "parameter_d_k": _ratio("d_ff", small) / heads,
        "parameter_d_v": _ratio("d_ff", small) / heads,
        "parameter_keys": _ratio("d_model", small),
    }
    return {field: max(1, round(getattr(row, field) * ratio)) for field, ratio in ratios.items()}


def _ratio(field: str, small: str) -> float:
    """How large the small preset is, base being 1."""
    ratio: float = getattr(PRESETS[small], field) / getattr(PRESETS["base"], field)
    return ratio
