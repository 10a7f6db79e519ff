"""The page of attention weights in a real browser."""

import numpy as np
import pytest

from tests.browser import NARROW, WIDE, console_of, set_size
from tests.viewing.made_up import made_up
from transduce.config.attention import AttentionHead
from transduce.viewing import AttentionPage, ViewedSentence

pytest_plugins = ["browser"]


@pytest.fixture
def maps():
    return made_up()


@pytest.fixture
def page(chromium, tmp_path, maps):
    other = made_up(cross=maps.cross.copy(), encoder=maps.encoder, decoder=maps.decoder)
    other.cross[1, 2] = other.cross[1, 2, :, ::-1]
    muted = {AttentionHead("cross", 0, 0): "x other", AttentionHead("cross", 0, 1): "x"}
    AttentionPage([ViewedSentence(maps, "x", muted), other]).save(tmp_path / "page.html")
    set_size(chromium, WIDE)
    chromium.get((tmp_path / "page.html").as_uri())
    yield chromium
    assert console_of(chromium) == []


def press(page, value):
    page.execute_script(f"document.querySelector('[data-value=\"{value}\"]').click()")


def choose(page, layer, head):
    page.execute_script(f"document.querySelector('[data-head=\"{layer}/{head}\"]').click()")


def drawn(page, kind):
    """The weights of the first sentence's drawing, by row and column."""
    found = page.execute_script(
        "return [...document.querySelector('.sentence svg').querySelectorAll(arguments[0])]"
        ".map((each) => [each.dataset.query, each.dataset.key, each.dataset.weight].map(Number))",
        kind,
    )
    return {(int(query), int(key)): weight for query, key, weight in found}


def test_every_weight_is_drawn(page, maps):
    press(page, "tokens")
    press(page, "map")
    for kind in ("encoder", "decoder", "cross"):
        press(page, kind)
        for layer, head in ((0, 0), (1, 3)):
            choose(page, layer, head)
            weights = getattr(maps, kind)[layer, head]
            assert drawn(page, ".cell") == {place: float(weight) for place, weight in np.ndenumerate(weights)}


def test_sub_words_are_put_together(page, maps):
    press(page, "map")
    press(page, "encoder")  # two tokens of one word, and the end
    rows = maps.encoder[0, 0]
    together = np.stack([rows[:2].mean(axis=0), rows[2]])
    together = np.stack([together[:, :2].sum(axis=1), together[:, 2]], axis=1)
    assert drawn(page, ".cell") == pytest.approx(dict(np.ndenumerate(together)), abs=1e-6)
    labels = page.execute_script(
        "return [...document.querySelectorAll('.sentence svg text')].map((each) => each.textContent)"
    )
    assert labels[:2] == ["ab", "</s>"]


@pytest.mark.parametrize("side", ["query", "key"])
def test_lines_follow_the_pointer_and_a_click_keeps_them(page, maps, side):
    press(page, "tokens")
    token = f".sentence .token[data-side={side}][data-index='1']"
    before = drawn(page, ".edge")
    assert {query for query, _ in before} == {0, 1}
    page.execute_script(f"document.querySelector(\"{token}\").dispatchEvent(new PointerEvent('pointerenter'))")
    pointed = drawn(page, ".edge")
    assert pointed
    assert {place[side == "key"] for place in pointed} == {1}
    assert pointed.items() <= before.items()
    leave = f"document.querySelector(\"{token}\").dispatchEvent(new PointerEvent('pointerleave'))"
    page.execute_script(leave)
    assert drawn(page, ".edge") == before
    page.execute_script(
        f'document.querySelector("{token}")'
        ".dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))"
    )
    page.execute_script(leave)
    assert drawn(page, ".edge") == pointed
    said = page.execute_script("return document.getElementById('said').textContent")
    assert ("attends to" if side == "query" else "is attended to by") in said


def test_what_a_head_is_for(page):
    def without():
        return page.execute_script("return document.querySelector('.without')?.textContent ?? null")

    press(page, "cross")
    assert without() == "Without this head: x other"
    assert page.execute_script("return document.querySelector('.without .changed').textContent") == "other"
    choose(page, 0, 1)
    assert without() == "Without this head: the same."
    choose(page, 1, 1)
    assert without() is None


def test_heads_that_the_changed_word_moves_are_marked(page):
    press(page, "cross")
    marked = page.execute_script(
        "return [...document.querySelectorAll('.head.moved')].map((each) => each.dataset.head)"
    )
    assert marked == ["1/2"]


def test_a_telephone_is_wide_enough(page):
    set_size(page, NARROW)
    for view in ("lines", "map"):
        press(page, view)
        assert page.execute_script("return document.documentElement.scrollWidth") <= NARROW[0]


def test_the_keyboard_reaches_everything(page):
    names = page.execute_script(
        "return [...document.querySelectorAll('button, .token')]"
        ".map((each) => each.getAttribute('aria-label') ?? each.textContent.trim())"
    )
    assert all(names)
    assert page.execute_script("return [...document.querySelectorAll('.token')].every((each) => each.tabIndex === 0)")
