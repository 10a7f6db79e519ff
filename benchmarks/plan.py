"""What work of the internet's size would take, by formulas whose inputs were measured: docs/scaling.md's table.

    python -m benchmarks.plan [--machine-hour MONEY] [--device-hour MONEY]

Every measured input names the page of docs/ and the words in which it is stated there; what was assumed is said to be.
"""

import argparse
from dataclasses import dataclass
from typing import Final, final

from benchmarks.page import insert, table


@final
@dataclass(frozen=True)
class Input:
    """A number that the plan stands on; ``page`` has ``words`` in it, or is empty where it was assumed."""

    symbol: str
    value: float
    shown: str
    meaning: str
    page: str = ""
    words: str = ""


INPUTS: Final = (
    Input("a", 98.9, "98.9 s", "1,000,000 pairs prepared, two cores", "performance.md", "| 1,000,000 | 98.9 |"),
    Input("b", 258.8, "258.8 s", "3,000,000 pairs prepared", "performance.md", "| 3,000,000 | 258.8 |"),
    Input(
        "g",
        711,
        "711",
        "lines a second, base size, int8, greedy, two cores",
        "performance.md",
        "| 711 | **1.83** (388)",
    ),
    Input("s", 340, "340", "the same, beam of 4", "performance.md", "| 340 a second | **1.67** (198)"),
    Input("l", 62, "62", "bytes of a line that was translated (Multi30k's test2016, English)"),
    Input("m", 71, "71", "bytes of its translation"),
    Input("F", 9.67e18, "9.67e18", "operations of the big model's training, counted", "cost.md", "9.67e+18"),
    Input("P", 214_171_648, "214,171,648", "its parameters", "scaling.md", "214,171,648"),
    Input("R", 1e14, "10^14", "operations a second that a device sustains", "", ""),
    Input("B", 50e9, "50 GB/s", "of the link of a device", "", ""),
)
PAIRS: Final = 10**9
LINES: Final = 10**10
STEPS: Final = 300_000  # of the paper's big model, 25,000 target tokens each
_HOUR: Final = 3_600.0


@final
@dataclass(frozen=True)
class Figure:
    """A row of the plan."""

    what: str
    formula: str
    value: float
    unit: str

    @property
    def shown(self) -> str:
        """Three digits, which is more than inputs of shared machines are good for."""
        number = f"{float(f'{self.value:.3g}'):,.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{number} {self.unit}".strip()


def prepare(pairs: float, a: float, b: float, machine_hour: float) -> list[Figure]:
    """One machine: the command itself is what bounds the speed, whoever tokenizes."""
    hours = pairs * (b - a) / 2e6 / _HOUR
    return [
        Figure("10^9 pairs prepared", "10^9 (b - a) / 2,000,000", hours, "machine hours"),
        Figure("its price", "hours x price of a machine hour", hours * machine_hour, ""),
    ]


def translate(lines: float, rate: float, how: str, symbol: str, machine_hour: float) -> list[Figure]:
    """Machines share no work, so that their hours are what counts, and not their number."""
    hours = lines / rate / _HOUR
    return [
        Figure(f"10^10 lines translated, {how}", f"10^10 / {symbol}", hours, "machine hours"),
        Figure("machines for a day of it", "hours / 24", hours / 24, "machines"),
        Figure("its price", "hours x price of a machine hour", hours * machine_hour, ""),
    ]


def move(lines: float, read: float, written: float) -> Figure:
    """Text from the store and back to it."""
    return Figure("text over the network", "10^10 (l + m)", lines * (read + written) / 1e12, "TB")


def train(devices: int, larger: int, flops: float, parameters: float, rate: float, link: float) -> tuple[float, float]:
    """Seconds of products and of the exchange in a step that is so many times as large as the paper's."""
    products = larger * flops / STEPS / (devices * rate)
    exchange = 2 * (devices - 1) / devices * 4 * parameters / link
    return products, exchange


def train_big(devices: int, larger: int, device_hour: float) -> list[Figure]:
    """The slower of both decides, as the exchange goes on while the backward pass does: a lower bound."""
    given = {each.symbol: each.value for each in INPUTS}
    products, exchange = train(devices, larger, given["F"], given["P"], given["R"], given["B"])
    hours = STEPS / larger * max(products, exchange) / _HOUR
    size = "the paper's steps" if larger == 1 else f"steps {larger} times as large"
    moved = STEPS / larger * 2 * (devices - 1) / devices * 4 * given["P"] / 1e12
    k = "" if larger == 1 else f"{larger} "
    steps = "S" if larger == 1 else f"S/{larger}"
    return [
        Figure(f"big, {devices} devices, {size}: products", f"{k}F / (S N R)", 1e3 * products, "ms a step"),
        Figure("exchange", "8 P (N - 1)/N / B", 1e3 * exchange, "ms a step"),
        Figure("the training, at least", f"{steps} x the longer of both", hours, "hours"),
        Figure("sent by each device", f"{steps} x 8 P (N - 1)/N", moved, "TB"),
        Figure("its price", "hours x N x price of a device hour", hours * devices * device_hour, ""),
    ]


def plan(machine_hour: float, device_hour: float) -> list[Figure]:
    """All rows."""
    given = {each.symbol: each.value for each in INPUTS}
    return [
        *prepare(PAIRS, given["a"], given["b"], machine_hour),
        *translate(LINES, given["g"], "greedily", "g", machine_hour),
        *translate(LINES, given["s"], "beam of 4", "s", machine_hour),
        move(LINES, given["l"], given["m"]),
        *train_big(8, 1, device_hour),
        *train_big(64, 1, device_hour),
        *train_big(64, 8, device_hour),
    ]


def report(machine_hour: float, device_hour: float) -> list[str]:
    """Inputs, and what follows from them."""
    inputs = [
        [each.symbol, each.shown, each.meaning, f"[{each.page}]({each.page})" if each.page else _origin(each)]
        for each in INPUTS
    ]
    figures = [[each.what, each.formula, each.shown] for each in plan(machine_hour, device_hour)]
    return [
        *table(["input", "value", "what it is", "stated in"], inputs),
        "",
        f"Prices are assumed: {machine_hour:g} for an hour of two cores, {device_hour:g} for one of a device. "
        f"S is {STEPS:,} steps.",
        "",
        *table(["what", "formula", "figure"], figures),
    ]


def _origin(each: Input) -> str:
    return "assumed" if each.symbol in "RB" else "counted with wc"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine-hour", type=float, default=0.1)
    parser.add_argument("--device-hour", type=float, default=3.0)
    options = parser.parse_args()
    insert("scaling.md", "plan", report(options.machine_hour, options.device_hour))


if __name__ == "__main__":
    main()
