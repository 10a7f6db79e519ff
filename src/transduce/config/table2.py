"""Table 2 of the paper as data: the systems that it is measured against."""

from dataclasses import dataclass
from typing import Final, Literal, final

Part = Literal["single", "ensemble", "transformer"]


@final
@dataclass(frozen=True)
class Table2Row:
    """A row as printed: Vaswani et al. 2017, Table 2, newstest2014, English to German and to French.

    ``part`` is which of the table's three parts it stands in; BLEU is on a scale of 100; ``flops_de`` and ``flops_fr``
    are the floating point operations of training, estimated as time x GPUs x a GPU's sustained rate (section 6.1).
    None is a cell that the table leaves empty. ``preset`` is the Transformer's configuration here, for German.
    """

    system: str
    part: Part
    bleu_de: float | None
    bleu_fr: float | None
    flops_de: float | None
    flops_fr: float | None
    preset: str | None = None


# The Transformer's costs are printed across both columns. To French big has 41.8 here, and 41.0 in section 6.1.
TABLE2: Final = (
    Table2Row("ByteNet", "single", 23.75, None, None, None),
    Table2Row("Deep-Att + PosUnk", "single", None, 39.2, None, 1.0e20),
    Table2Row("GNMT + RL", "single", 24.6, 39.92, 2.3e19, 1.4e20),
    Table2Row("ConvS2S", "single", 25.16, 40.46, 9.6e18, 1.5e20),
    Table2Row("MoE", "single", 26.03, 40.56, 2.0e19, 1.2e20),
    Table2Row("Deep-Att + PosUnk Ensemble", "ensemble", None, 40.4, None, 8.0e20),
    Table2Row("GNMT + RL Ensemble", "ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Table2Row("ConvS2S Ensemble", "ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Table2Row("Transformer (base model)", "transformer", 27.3, 38.1, 3.3e18, 3.3e18, "base"),
    Table2Row("Transformer (big)", "transformer", 28.4, 41.8, 2.3e19, 2.3e19, "big"),
)
