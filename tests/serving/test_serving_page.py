"""The page of a server in a real browser."""

import base64

import numpy as np
import pytest

from tests.browser import NARROW, WIDE, console_of, set_size
from tests.serving.running_server import serving

pytest_plugins = ["tiny_run", "browser"]

TEXT = "bamo dulu kari"


@pytest.fixture(scope="module")
def server(trained_run, chromium):
    with serving(f"en-de={trained_run}", "--precision", "float32") as running:
        yield running


@pytest.fixture
def page(server, chromium):
    set_size(chromium, WIDE)
    chromium.get(server.address)
    yield chromium
    chromium.switch_to.default_content()
    assert console_of(chromium) == []


def wait(page, expression):
    """Until an expression holds."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 60).until(lambda driver: driver.execute_script(f"return Boolean({expression})"))


def type_text(page, text):
    page.find_element("id", "text").send_keys(text)


def output(page, expected):
    """Wait for an output, and that no other is on its way."""
    box = "document.getElementById('output')"
    wait(page, f"{box}.textContent === {expected!r} && !{box}.classList.contains('waiting')")


def look(page, which):
    """Into the frame that shows what is inside."""
    wait(page, "!document.getElementById('inside').hidden")
    page.execute_script(f"document.querySelector('[data-look={which}]').click()")
    wait(page, "document.querySelector('iframe')?.contentDocument?.querySelector('svg')")
    page.switch_to.frame(0)


def test_what_is_typed_is_translated(page):
    from selenium.webdriver.common.keys import Keys

    type_text(page, TEXT)
    output(page, "ti sor mup")
    type_text(page, " wemo")
    output(page, "ti sor mup yob")
    page.find_element("id", "text").send_keys(Keys.CONTROL, "a", Keys.DELETE)
    output(page, "")
    assert page.execute_script("return document.getElementById('inside').hidden")


def test_alternatives_are_shown(page, server):
    type_text(page, "bamo dulu")
    output(page, "ti sor")
    fields = {"q": "bamo dulu", "source": "en", "target": "de", "alternatives": 3}
    expected = server.call("/translate", fields).json["alternatives"]
    shown = page.execute_script(
        "return [...document.querySelectorAll('#alternatives li')].map((each) => each.textContent)"
    )
    assert shown == expected


def test_weights_are_those_of_the_interface(page, server):
    type_text(page, TEXT)
    output(page, "ti sor mup")
    look(page, "attention")
    page.execute_script("document.querySelector('[data-value=tokens]').click()")
    page.execute_script("document.querySelector('[data-value=map]').click()")
    (sentence,) = server.call("/v1/attention", {"text": TEXT, "source": "en", "target": "de"}).json["sentences"]
    for kind in ("encoder", "cross", "decoder"):
        packed = sentence["weights"][kind]
        weights = np.frombuffer(base64.b64decode(packed["float32"]), "<f4").reshape(packed["shape"])
        page.execute_script(f"document.querySelector('[data-value={kind}]').click()")
        for head in range(2):
            page.execute_script(f"document.querySelector('[data-head=\"0/{head}\"]').click()")
            drawn = page.execute_script(
                "return [...document.querySelectorAll('.cell')].map((each) => Number(each.dataset.weight))"
            )
            assert drawn == weights[0, head].ravel().astype(float).tolist()


def test_of_several_sentences_the_first_is_looked_at(page):
    type_text(page, "Bamo dulu. Wemo kari.")
    wait(page, "!document.getElementById('inside').hidden")
    assert page.find_element("id", "inside-text").text == "Of the first sentence: Bamo dulu."
    look(page, "attention")
    shown = page.execute_script("return JSON.parse(document.getElementById('data').textContent).sentences[0].source")
    assert " dulu" in shown
    assert " kari" not in shown


def test_lines_follow_the_pointer(page):
    from selenium.webdriver import ActionChains

    type_text(page, TEXT)
    output(page, "ti sor mup")
    look(page, "attention")
    every = len(page.find_elements("css selector", ".edge"))
    word = page.find_element("css selector", ".token[data-side=query][data-index='1']")
    ActionChains(page).move_to_element(word).perform()
    wait(page, f"document.querySelectorAll('.edge').length < {every}")
    assert {each.get_attribute("data-query") for each in page.find_elements("css selector", ".edge")} == {"1"}


def test_a_head_can_be_muted(page, server):
    type_text(page, TEXT)
    output(page, "ti sor mup")
    look(page, "attention")
    page.execute_script("document.querySelector('.mute').click()")
    wait(page, "document.querySelector('.without')")
    fields = {"text": TEXT, "source": "en", "target": "de", "mute": ["cross/0/0"]}
    without = server.call("/v1/attention", fields).json["sentences"][0]["text"]
    shown = page.find_element("css selector", ".without").text
    assert shown == ("Without this head: the same." if without == "ti sor mup" else f"Without this head: {without}")


def test_the_search_is_shown(page):
    type_text(page, TEXT)
    output(page, "ti sor mup")
    look(page, "search")
    assert "ti sor mup" in page.find_element("tag name", "body").text


def test_what_is_wrong_is_said(page):
    page.execute_script("document.getElementById('text').value = 'bamo '.repeat(3000)")
    type_text(page, "bamo")
    wait(page, "document.getElementById('message').textContent.includes('symbols')")
    assert all("400" in each for each in console_of(page))  # which the browser says itself


def test_a_phone_shows_all_of_it(page):
    set_size(page, NARROW)
    type_text(page, TEXT)
    output(page, "ti sor mup")
    look(page, "attention")
    page.switch_to.default_content()
    assert page.execute_script("return document.documentElement.scrollWidth") <= NARROW[0]
    for name in ("text", "output", "source", "target", "copy"):
        assert page.find_element("id", name).is_displayed()


def test_everything_can_be_reached_by_keys_and_has_a_name(page):
    from selenium.webdriver.common.keys import Keys

    type_text(page, TEXT)
    output(page, "ti sor mup")
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('button, select, textarea, input')].filter((each) =>"
        " !each.textContent.trim() && !each.getAttribute('aria-label') && !each.labels?.length).length"
    )
    assert unnamed == 0
    page.find_element("id", "text").send_keys(Keys.TAB)
    assert page.execute_script("return document.activeElement.id") == "copy"
