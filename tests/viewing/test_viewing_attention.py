"""The page of attention weights, and its pictures, from plain data."""

import base64
import json
import re

import numpy as np
import pytest

from tests.viewing.made_up import made_up
from transduce.config import BadInputError
from transduce.config.attention import AttentionHead
from transduce.viewing import AttentionPage, ViewedSentence, draw_attention
from transduce.viewing.attention import moved_heads


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_the_page_holds_every_weight_to_the_last_bit():
    maps = made_up()
    muted = {AttentionHead("cross", 1, 3): "y"}
    page = AttentionPage([ViewedSentence(maps, "x", muted)], title="<b>&").html()
    assert "<title>&lt;b&gt;&amp;</title>" in page
    (sentence,) = data_of(page)["sentences"]
    assert sentence["target"] == list(maps.target)
    assert sentence["muted"] == {"cross/1/3": "y"}
    for kind in ("encoder", "decoder", "cross"):
        packed = sentence["weights"][kind]
        numbers = np.frombuffer(base64.b64decode(packed["float32"]), "<f4").reshape(packed["shape"])
        np.testing.assert_array_equal(numbers, getattr(maps, kind))


def test_a_text_that_looks_like_a_mark_is_a_text():
    page = AttentionPage([ViewedSentence(made_up(), "{{script}} {{title}}")], title="{{body}}").html()
    assert data_of(page)["sentences"][0]["text"] == "{{script}} {{title}}"
    assert "<title>{{body}}</title>" in page


def test_nothing_is_asked_for_from_elsewhere():
    page = AttentionPage([made_up()]).html()
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe)|\bsrc=|@import|url\(|fetch\(|XMLHttp", page)
    assert page.count("</script>") == 2  # no text of a sentence ends an element
    assert "{{" not in page


def test_a_model_without_a_kind_of_attention_has_none_on_its_page():
    (sentence,) = data_of(AttentionPage([made_up(encoder=None)]).html())["sentences"]
    assert set(sentence["weights"]) == {"decoder", "cross"}


def test_a_model_without_any_attention_has_no_page():
    with pytest.raises(BadInputError, match="the model has no attention to show"):
        AttentionPage([made_up(encoder=None, decoder=None, cross=None)])


def test_a_notebook_shows_it_inline():
    shown = AttentionPage([made_up()])._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "sandbox" in shown
    assert "<script" not in shown  # escaped: it is an attribute's value


def test_heads_that_move_with_a_changed_word():
    one, other = made_up(), made_up()
    other.cross = one.cross.copy()
    other.cross[1, 2, 0] = [0, 0, 1]
    moved = moved_heads([one, other])
    assert np.flatnonzero(np.array(moved["cross"])).tolist() == [1 * 4 + 2]
    assert moved["cross"][1][2] == pytest.approx(1 - one.cross[1, 2, 0, 2], abs=1e-4)
    assert not np.array(moved["encoder"]).any()
    assert moved_heads([one]) == {}
    longer = made_up(cross=np.zeros((2, 4, 5, 3), "f4"))
    assert "cross" not in moved_heads([one, longer])


def test_a_page_in_a_file(tmp_path):
    AttentionPage([made_up()]).save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_show_the_weights(tmp_path, suffix):
    maps = made_up()
    figure = draw_attention(maps, AttentionHead("cross", 1, 3), tmp_path / f"a.{suffix}")
    (image,) = figure.axes[0].images
    np.testing.assert_array_equal(image.get_array(), maps.cross[1, 3])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["a", "b", "</s>"]
    start = (tmp_path / f"a.{suffix}").read_bytes()[:5]
    assert start in (b"\x89PNG\r", b"<?xml")


def test_dollar_signs_are_no_formulas(tmp_path):
    tokens = ("$$", "$\\frac$", "$x$")
    maps = made_up(source=tokens, cross=np.full((1, 1, 2, 3), 0.5, "f4"))
    draw_attention(maps, AttentionHead("cross", 0, 0), tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {token} -->" in drawn for token in tokens)  # it says so beside each that is drawn as it is


def test_a_picture_of_a_long_text_has_no_more_dots_than_memory_takes(tmp_path):
    """A hundred tokens at three tenths of an inch would be 4,700 dots a side, and 2,000 tokens more than memory has."""
    maps = made_up(source=("x",) * 100, encoder=np.full((1, 1, 100, 100), 0.01, "f4"))
    draw_attention(maps, AttentionHead("encoder", 0, 0), tmp_path / "a.png")
    head = (tmp_path / "a.png").read_bytes()
    assert all(int.from_bytes(side, "big") in range(2990, 3001) for side in (head[16:20], head[20:24]))


def test_a_format_that_is_unknown_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"a\.xyz: .*: give a name that ends with \.png or \.svg"):
        draw_attention(made_up(), AttentionHead("cross", 0, 0), tmp_path / "a.xyz")


@pytest.mark.parametrize("head", [("cross", 2, 0), ("cross", 0, 4), ("cross", -1, 0), ("encoder", 0, 0)])
def test_a_head_that_is_not_there_has_no_picture(head):
    with pytest.raises(BadInputError, match=r"encoder|layer"):
        draw_attention(made_up(encoder=None), AttentionHead(*head))
