"""The figures of a race as Markdown for people and as data for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from benchmarks.peers.loss_curves import WINDOW, WITHIN, Comparison
from benchmarks.peers.race import Result, best_peer, best_threads


@final
@dataclass(frozen=True)
class Section:
    """All results of one model on one kind of batches; the first contestant's are ours as shipped."""

    size: str
    model: str
    batches: str
    results: list[Result]

    @property
    def best(self) -> list[Result]:
        """Each contestant with the threads that suit it, ours first and its products alone last."""
        return best_threads(self.results)

    @property
    def products_share(self) -> float:
        """Of our step's time, what its matrix products alone take."""
        return self.best[0].over(self.best[-1])

    @property
    def products_over_best_peer(self) -> float:
        """How many times as fast as the best peer a step of ours would be if it were its products alone."""
        return self.best[-1].over(self.best_peer)

    @property
    def best_peer(self) -> Result:
        """The fastest that is not ours."""
        return best_peer(self.best)

    @property
    def over_best_peer(self) -> float:
        """How many times as fast as it ours is."""
        return self.best[0].over(self.best_peer)

    @property
    def over_best_float32(self) -> float | None:
        """How many times as fast as the best peer in float32, where one ran."""
        if not any(each.contestant.precision == "float32" for each in self.best):
            return None
        return self.best[0].over(best_peer(self.best, "float32"))

    def show(self) -> list[str]:
        """A heading, and a table of all contestants."""
        ours, *others = self.best
        rows = [_show_row(one, ours) for one in (ours, *sorted(others, key=lambda one: -one.median))]
        return [
            f"## {self.size}: {self.model}; {self.batches}",
            "",
            "| | precision | threads | target tokens a second | ours is faster by |",
            "|---|---|---|---|---|",
            *rows,
        ]

    def record(self) -> dict[str, Any]:
        """Everything measured."""
        return {
            "size": self.size,
            "model": self.model,
            "batches": self.batches,
            "best_peer": _name(self.best_peer),
            "ratio_to_best_peer": self.over_best_peer,
            "ratio_to_best_float32_peer": self.over_best_float32,
            "products_share_of_step": self.products_share,
            "products_alone_to_best_peer": self.products_over_best_peer,
            "results": [_record_result(result) for result in self.results],
        }


def show_summary(sections: Sequence[Section]) -> list[str]:
    """Ours over the best peer, model by model."""
    rows = [
        f"| {section.size} | {section.batches} | {section.over_best_peer:.2f} | {_name(section.best_peer)} "
        f"| {_ratio(section.over_best_float32)} "
        f"| {section.products_share:.0%} | {section.products_over_best_peer:.2f} |"
        for section in sections
    ]
    return [
        "| model | batches | over the best peer | best peer | over the best in float32 | products' share of our step "
        "| our products alone, over the best peer |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]


def show_curves(what: str, curves: Sequence[Comparison]) -> list[str]:
    """What the comparison of loss curves found."""
    lines = [
        f"## Loss curves: {what}",
        "",
        f"From the same weights on the same batches; the objective in nats per target token, mean of {WINDOW} steps.",
        "",
        f"| dropout | steps | one | at the end | other | at the end | largest difference (at most {WITHIN} wanted) |",
        "|---|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {each.dropout} | {each.steps} | {each.one} | {each.one_end:.4f} | {each.other} | {each.other_end:.4f} "
        f"| {each.largest_difference:.4f} |"
        for each in curves
    ]


def _show_row(result: Result, ours: Result) -> str:
    contestant = result.contestant
    mark = "" if contestant.comparable else " (trains otherwise)"
    return (
        f"| {contestant.name} | {contestant.precision}{mark} | {result.threads} | {result.median:,.0f} "
        f"| {ours.over(result):.2f} |"
    )


def _record_result(result: Result) -> dict[str, Any]:
    contestant = result.contestant
    return {
        "family": contestant.family,
        "name": contestant.name,
        "precision": contestant.precision,
        "comparable": contestant.comparable,
        "threads": result.threads,
        "target_tokens_a_second": {"median": result.median, "rounds": result.speeds},
    }


def _name(result: Result) -> str:
    return f"{result.contestant}, {result.threads} threads"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
