"""The page of a training in a real browser."""

import pytest

from tests.browser import NARROW, WIDE, console_of, set_size
from tests.viewing.made_up_training import dev, train
from transduce.viewing import ReportPage, TrainingRecord

pytest_plugins = ["browser"]

STEPS = range(1, 40)
LINES = [*(train(step, loss=4 / step) for step in STEPS), *(dev(step, float(step), [f"w{step % 3}"]) for step in STEPS)]


@pytest.fixture
def page(chromium, tmp_path):
    long = "a word that has no end: " + 300 * "x"
    record = TrainingRecord(long, LINES, settings=long, preparation=long, notes=[long], facts={"Model": long})
    ReportPage(record).save(tmp_path / "page.html")
    set_size(chromium, WIDE)
    chromium.get((tmp_path / "page.html").as_uri())
    yield chromium
    assert console_of(chromium) == []


def readout(page):
    return page.execute_script("return document.querySelector('.readout').textContent")


def press(page, key):
    page.execute_script(
        "document.querySelector('.chart svg')"
        ".dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))",
        key,
    )


def test_the_arrow_keys_go_from_step_to_step(page):
    assert readout(page) == "step 39: train 0.103; dev 3.000"
    for key, step in (("ArrowLeft", 38), ("PageUp", 39), ("Home", 1), ("ArrowRight", 2), ("PageUp", 12), ("End", 39)):
        press(page, key)
        assert readout(page) == f"step {step}: train {4 / step:.3f}; dev 3.000"
    said = page.execute_script("return document.querySelector('.chart svg').getAttribute('aria-valuetext')")
    assert said == readout(page)


def test_the_pointer_finds_the_nearest_step(page):
    page.execute_script(
        "const chart = document.querySelector('.chart svg'), point = chart.querySelector('circle[data-step=\"17\"]');"
        "const { x, y, width } = point.getBoundingClientRect();"
        "chart.dispatchEvent(new PointerEvent('pointermove', { clientX: x + width / 2 + 2, clientY: y + 40 }))"
    )
    assert readout(page) == "step 17: train 0.235; dev 3.000"


def test_every_chart_can_be_reached_and_has_a_name(page):
    charts = page.execute_script(
        "return [...document.querySelectorAll('.chart svg')]"
        ".map((each) => [each.tabIndex, each.getAttribute('role'), each.getAttribute('aria-label').length > 20])"
    )
    assert charts == 5 * [[0, "slider", True]]


def test_a_telephone_is_wide_enough(page):
    set_size(page, NARROW)
    page.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.execute_script("return document.documentElement.scrollWidth") <= NARROW[0]
