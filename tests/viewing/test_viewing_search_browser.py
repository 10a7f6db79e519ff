"""The page of a search in a real browser."""

import math

import pytest

from tests.browser import NARROW, WIDE, console_of, set_size
from tests.viewing.made_up_search import BEST, LOST, NODES, made_up_search
from transduce.viewing import SearchPage

pytest_plugins = ["browser"]


@pytest.fixture
def page(chromium, tmp_path):
    SearchPage(made_up_search()).save(tmp_path / "page.html")
    set_size(chromium, WIDE)
    chromium.get((tmp_path / "page.html").as_uri())
    yield chromium
    assert console_of(chromium) == []


def drawn(page, selector, name="id"):
    """What the elements say of themselves, in their order."""
    found = page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.dataset[arguments[1]])", selector, name
    )
    return [float(each) for each in found]


def click(page, selector):
    page.execute_script(
        "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', {bubbles: true}))", selector
    )


def press(page, key):
    """A key, where the focus is."""
    page.execute_script(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))", key
    )


def text(page, selector):
    return page.execute_script("return document.querySelector(arguments[0])?.textContent ?? null", selector)


def test_drawn_probabilities_are_the_datas(page):
    click(page, "#dropped")
    assert drawn(page, ".node") == [*range(len(NODES))]
    edges = dict(zip(drawn(page, ".edge"), drawn(page, ".edge", "probability"), strict=True))
    assert edges == pytest.approx({index: node[2] for index, node in enumerate(NODES) if index})
    widths = page.execute_script(
        "return [...document.querySelectorAll('.edge')].map((each) => Number(each.getAttribute('stroke-width')))"
    )
    assert [*edges.values()] == pytest.approx([(width - 1) / 5 for width in widths])
    beside = dict(zip(drawn(page, ".node"), drawn(page, ".box", "beside"), strict=True))
    expected = [1, 1, 0.3 / 0.6, 0, 1, 0, 0.3 * 0.2 / (0.6 * 0.5), 0, 0, 1]
    assert beside == pytest.approx(dict(enumerate(expected)))


def test_what_was_dropped_comes_when_it_is_asked_for(page):
    shown = [index for index, node in enumerate(NODES) if node[3] != "dropped"]
    assert drawn(page, ".node") == shown
    assert text(page, "#dropped") == "Show what was dropped (2)"
    click(page, "#dropped")
    assert drawn(page, ".node.dropped") == [3, 7]
    click(page, "#dropped")
    assert drawn(page, ".node") == shown


def test_the_best_output_and_what_led_nowhere_are_marked(page):
    assert drawn(page, ".node.best") == BEST
    assert drawn(page, ".edge.best") == BEST[1:]
    assert drawn(page, ".node.lost") == LOST


def test_each_column_is_a_round(page):
    click(page, "#dropped")
    places = page.execute_script(
        "return [...document.querySelectorAll('.node .box')]"
        ".map((each) => [each.x.baseVal.value, each.y.baseVal.value])"
    )
    columns = sorted({x for x, _ in places})
    rounds = [node["round"] for node in made_up_search().to_dict()["nodes"]]
    assert [columns.index(x) for x, _ in places] == rounds
    assert len(set(map(tuple, places))) == len(NODES)


def test_a_chosen_hypothesis_tells_all_of_itself(page):
    click(page, ".node[data-id='4']")
    assert text(page, ".written") == "ac"
    assert text(page, ".written strong") == "c"
    facts = text(page, "#chosen dl")
    assert "50.0%" in facts
    assert f"{math.log(0.3):.3f}".replace("-", "−") in facts
    assert drawn(page, "#following rect", "probability") == pytest.approx([0.9, 0.08, 0.01, 0.01])
    names = page.execute_script(
        "return [...document.querySelectorAll('#following th')].map((each) => each.textContent)"
    )
    assert names == ["</s>", "␣d", "␣never", "all others"]
    click(page, "#following tr[data-symbol='</s>'] button")
    assert drawn(page, ".node[aria-selected=true]") == [8]
    facts = text(page, "#chosen dl")
    assert "1. of 2 that ended" in facts
    assert f"{math.log(0.27) / 3:.3f}".replace("-", "−") in facts
    assert text(page, "#following") is None


def test_going_on_to_what_was_dropped_shows_it(page):
    click(page, ".node[data-id='2']")
    click(page, "#following tr[data-symbol='</s>'] button")
    assert drawn(page, ".node[aria-selected=true]") == [7]
    assert "dropped" in text(page, "#chosen")
    click(page, "#dropped")
    assert drawn(page, ".node[aria-selected=true]") == [2]


def test_outputs_are_listed_best_first(page):
    listed = page.execute_script(
        "return [...document.querySelectorAll('#finished button')].map((each) => each.textContent)"
    )
    scores = [f"{score:.3f}".replace("-", "−") for score in (math.log(0.27) / 3, math.log(0.24) / 2)]
    assert listed == [f"1. {scores[0]} ac", f"2. {scores[1]} a"]
    click(page, "#finished button[data-rank='2']")
    assert drawn(page, ".node[aria-selected=true]") == [5]
    click(page, "#winner")
    assert drawn(page, ".node[aria-selected=true]") == [8]


def test_arrow_keys_go_through_the_tree(page):
    page.execute_script("document.querySelector('.node[tabindex=\"0\"]').focus()")
    went = []
    for key in (
        "ArrowRight",
        "ArrowDown",
        "ArrowDown",
        "ArrowUp",
        "ArrowRight",
        "ArrowDown",
        "ArrowLeft",
        "End",
        "Home",
    ):
        press(page, key)
        went += drawn(page, ".node[aria-selected=true]")
        assert drawn(page, ".node[tabindex='0']") == went[-1:]
        assert page.execute_script("return document.activeElement.dataset.id") == str(int(went[-1]))
    assert went == [1, 2, 2, 1, 4, 6, 2, 8, 0]


def test_every_hypothesis_says_what_it_is(page):
    labels = page.execute_script(
        "return [...document.querySelectorAll('[role=tree] [role=treeitem]')]"
        ".map((each) => [Number(each.getAttribute('aria-level')), each.getAttribute('aria-label')])"
    )
    assert labels[1] == [2, "round 1: a, 60.0%, open, of the best output"]
    assert labels[4][1].startswith("round 2: </s>, 40.0%, ended, 2. with score −0.7")


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_it_fits_the_screen(page, size):
    set_size(page, size)
    click(page, "#winner")
    assert page.execute_script("return document.documentElement.scrollWidth") <= size[0]
