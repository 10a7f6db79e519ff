"""The plan's figures by hand, and its inputs as the pages state them."""

from pathlib import Path

import pytest

from benchmarks.plan import INPUTS, Figure, move, plan, prepare, report, train, translate

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("each", [each for each in INPUTS if each.page], ids=lambda each: each.symbol)
def test_an_input_is_what_its_page_states(each):
    assert each.words in (DOCS / each.page).read_text(encoding="utf-8")
    assert each.shown.split()[0].replace(",", "") in each.words.replace(",", "").replace("e+", "e")


def test_the_page_has_the_plan_as_it_is_computed():
    page = (DOCS / "scaling.md").read_text(encoding="utf-8")
    assert "\n".join(report(0.1, 3.0)) in page


def test_preparing_by_hand():
    hours, price = prepare(7.2e6, 10, 30, 0.5)  # 10 microseconds a pair
    assert hours.value == pytest.approx(0.02)
    assert price.value == pytest.approx(0.01)


def test_translating_by_hand():
    hours, machines, price = translate(7.2e6, 20, "greedily", "g", 0.5)
    assert (hours.value, machines.value, price.value) == pytest.approx((100, 100 / 24, 50))
    assert move(10**10, 60, 40).value == pytest.approx(1.0)


def test_training_by_hand():
    # 300,000 steps of 6 operations each; 4 devices of 3 a second; 5 parameters,
    # 20 bytes a copy, over 10 bytes a second.
    products, exchange = train(4, 1, 1.8e6, 5, 3, 10)
    assert (products, exchange) == pytest.approx((0.5, 3.0))
    assert train(4, 7, 1.8e6, 5, 3, 10) == pytest.approx((3.5, 3.0))


def test_figures_have_three_digits():
    assert Figure("", "", 5935.4, "machine hours").shown == "5,940 machine hours"
    assert Figure("", "", 22.208, "machine hours").shown == "22.2 machine hours"
    assert Figure("", "", 0.4213, "hours").shown == "0.421 hours"
    assert len(plan(1, 1)) == 2 + 3 + 3 + 1 + 3 * 5
