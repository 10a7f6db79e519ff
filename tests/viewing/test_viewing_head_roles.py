"""The page about heads, and its pictures, from plain data."""

import json
import re

import numpy as np
import pytest

from tests.viewing.made_up_heads import made_up_heads
from transduce.config import BadInputError
from transduce.viewing import HeadRolesPage, draw_head_roles


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_the_page_holds_every_figure():
    roles = made_up_heads()
    data = data_of(HeadRolesPage(roles, "</script><b>", ["of <i> and & too"]).html())
    assert data["title"] == "</script><b>"
    assert data["notes"] == ["of <i> and & too"]
    assert data["kinds"] == {"encoder": "encoder self-attention", "cross": "encoder-decoder attention"}
    keys = ["entropy", "distance", "offset", "agreement", "bleu_loss", "p_value"]
    assert [measure["key"] for measure in data["measures"]] == keys
    assert [measure["key"] for measure in data["measures"] if measure["colour"]] == keys[:-1]
    for shown, role in zip(data["heads"], roles, strict=True):
        assert (shown["kind"], shown["layer"], shown["head"]) == role.head
        assert shown["values"] == {key: role.of(key) for key in keys}
    assert [(each["kind"], each["layer"], each["values"]["entropy"]) for each in data["layers"]] == [
        ("encoder", 0, 1.5),
        ("encoder", 1, 4.5),
        ("cross", 0, 1.5),
        ("cross", 1, 4.5),
    ]


def test_nothing_is_asked_for_from_elsewhere():
    page = HeadRolesPage(made_up_heads(), "</script><b>").html()
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe)|\bsrc=|@import|url\(|fetch\(|XMLHttp|\bon\w+=", page)
    assert page.count("</script>") == 2
    assert "{{" not in page


def test_a_notebook_and_a_file(tmp_path):
    page = HeadRolesPage(made_up_heads())
    page.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert page._repr_html_().startswith("<iframe srcdoc=")


def test_pictures_show_the_figures_layer_by_layer(tmp_path):
    figure = draw_head_roles(made_up_heads(), "distance", tmp_path / "a.png")
    encoder, cross = (axes.images[0].get_array() for axes in figure.axes[:2])
    np.testing.assert_array_equal(encoder, [[7, 6, 5], [4, 3, 2]])
    np.testing.assert_array_equal(cross, encoder)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    (only, _) = draw_head_roles(made_up_heads(), "agreement").axes  # the map of the one kind that has it, and the scale
    assert only.get_title() == "encoder-decoder attention"
    signed = draw_head_roles(made_up_heads(), "offset").axes[0].images[0]
    assert signed.get_clim() == (-3, 3)


def test_a_measure_that_no_head_has_is_named(tmp_path):
    with pytest.raises(BadInputError, match="aer: no head has it here; there is entropy, distance, offset, agreement"):
        draw_head_roles(made_up_heads(), "aer", tmp_path / "a.png")
    with pytest.raises(BadInputError, match="previous: no head has it here"):
        HeadRolesPage(made_up_heads(), colour="previous")
    with pytest.raises(BadInputError, match=r"a\.xyz: .*: give a name that ends with \.png or \.svg"):
        draw_head_roles(made_up_heads(), "distance", tmp_path / "a.xyz")
    assert not [*tmp_path.iterdir()]
