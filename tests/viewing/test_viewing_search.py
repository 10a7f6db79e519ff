"""The page of a search, from plain data."""

import json
import re

from tests.viewing.made_up_search import made_up_search
from transduce.viewing import SearchPage


def test_the_page_holds_every_number():
    search = made_up_search()
    page = SearchPage(search, title="<b>&").html()
    assert "<title>&lt;b&gt;&amp;</title>" in page
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    assert data == search.to_dict()


def test_nothing_is_asked_for_from_elsewhere_and_nothing_is_inline():
    """A strict content security policy allows neither handlers nor styles in attributes."""
    page = SearchPage(made_up_search()).html()
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe)|\bsrc=|@import|url\(|fetch\(|XMLHttp|\son\w+=|\sstyle=|eval\(", page)
    assert page.count("</script>") == 2  # no symbol ends an element
    assert "{{" not in page


def test_a_notebook_shows_it_inline_and_a_file_keeps_it(tmp_path):
    page = SearchPage(made_up_search())
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown
    page.save(tmp_path / "s.html")
    assert (tmp_path / "s.html").read_text(encoding="utf-8") == page.html()
