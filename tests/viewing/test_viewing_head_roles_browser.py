"""The page about heads in a real browser."""

import pytest

from tests.browser import NARROW, WIDE, console_of, set_size
from tests.viewing.made_up_heads import made_up_heads
from transduce.viewing import HeadRolesPage

pytest_plugins = ["browser"]


@pytest.fixture
def page(chromium, tmp_path):
    HeadRolesPage(made_up_heads(), "Heads", ["a note"]).save(tmp_path / "page.html")
    set_size(chromium, WIDE)
    chromium.get((tmp_path / "page.html").as_uri())
    yield chromium
    assert console_of(chromium) == []


def look(page, selector, what="textContent"):
    return page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each[arguments[1]])", selector, what
    )


def press(page, selector):
    page.execute_script("document.querySelector(arguments[0]).click()", selector)


def test_maps_follow_the_measure(page):
    assert look(page, "#title, #notes li") == ["Heads", "a note"]
    assert look(page, "section[aria-label^=encoder-decoder] .head") == ["7.00", "6.00", "5.00", "4.00", "3.00", "2.00"]
    assert look(page, "section[aria-label^=encoder-decoder] .mean") == ["6.00", "3.00"]
    assert look(page, "#chart circle[data-value] title")[0] == "encoder self-attention, layer 1: 6.00"
    press(page, "[data-measure=bleu_loss]")
    assert look(page, "section[aria-label^=encoder-decoder] .head") == [
        "−1.00",
        "0.00",
        "1.00",
        "2.00",
        "3.00",
        "4.00*",
    ]
    assert look(page, ".head.negative", "title")[0].startswith(
        "encoder self-attention, layer 1, head 1: entropy 0.50 nats, distance 7.00 tokens"
    )
    darkest = "return [...document.querySelectorAll('.head')].map((each) => each.style.getPropertyValue('--dark'))"
    assert [float(each) for each in page.execute_script(darkest)][:6] == pytest.approx(
        [1 / 8, 0, 1 / 8, 2 / 8, 3 / 8, 0.5]
    )
    press(page, "[data-measure=agreement]")
    assert look(page, "#maps section[aria-label^='encoder self'] p") == ["This measure has no meaning here."]
    assert look(page, "#chart [data-kind]", "dataset") == [{"kind": "cross"}]
    assert look(page, "[data-measure][aria-pressed=true]") == ["agreement"]


def test_the_table_is_sorted_either_way_and_missing_figures_come_last(page):
    rows = "tbody [data-row]"
    assert [each["row"] for each in look(page, rows, "dataset")][:2] == ["encoder/0/0", "encoder/0/1"]
    press(page, "[data-column=agreement]")  # the largest first
    found = [each["row"] for each in look(page, rows, "dataset")]
    assert found[:2] == ["cross/1/2", "cross/1/1"]
    assert found[6:] == [f"encoder/{layer}/{head}" for layer in range(2) for head in range(3)]
    assert page.execute_script("return document.activeElement.dataset.column") == "agreement"
    assert look(page, "th[aria-sort=descending] button", "dataset") == [{"column": "agreement"}]
    press(page, "[data-column=agreement]")
    found = [each["row"] for each in look(page, rows, "dataset")]
    assert (found[0], found[6]) == ("cross/0/0", "encoder/0/0")


def test_a_head_that_is_chosen_is_said_and_marked(page):
    press(page, "[data-head='cross/1/0']")
    assert look(page, "#said") == [
        "encoder-decoder attention, layer 2, head 1: entropy 3.50 nats, distance 4.00 tokens, offset 1.00 tokens, "
        "agreement 0.375, BLEU lost 2.00 points, p 0.500"
    ]
    assert look(page, "tr.chosen", "dataset") == [{"row": "cross/1/0"}]
    assert page.execute_script("return document.activeElement.dataset.head") == "cross/1/0"
    press(page, "[data-head='cross/1/0']")
    assert look(page, "tr.chosen", "dataset") == []


def test_a_telephone_is_wide_enough(page):
    set_size(page, NARROW)
    assert page.execute_script("return document.documentElement.scrollWidth") <= NARROW[0]


def test_everything_has_a_name(page):
    names = page.execute_script(
        "return [...document.querySelectorAll('button, [role=img], [role=region], [role=group]')]"
        ".map((each) => each.getAttribute('aria-label') ?? each.getAttribute('aria-labelledby')"
        " ?? each.textContent.trim())"
    )
    assert all(names)
    assert look(page, "#table", "tabIndex") == [0]
