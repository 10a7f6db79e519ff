import pytest

from benchmarks import page


def test_what_a_script_printed_takes_the_place_of_what_it_printed_before(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page, "DOCS", tmp_path)
    path = tmp_path / "p.md"
    path.write_text("before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n<!-- b -->\n<!-- end of b -->\n")
    page.insert("p.md", "a", page.table(["x", "y"], [["1", r"\2"]]))
    new = "| x | y |\n| --- | --- |\n| 1 | \\2 |"
    assert capsys.readouterr().out == f"{new}\n\n"
    expected = f"before\n<!-- a -->\n\n{new}\n\n<!-- end of a -->\nafter\n<!-- b -->\n<!-- end of b -->\n"
    assert path.read_text() == expected
    page.insert("p.md", "a", page.table(["x", "y"], [["1", r"\2"]]))
    assert path.read_text() == expected


def test_a_page_without_the_place_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "DOCS", tmp_path)
    (tmp_path / "p.md").write_text("<!-- a -->\nno end\n")
    with pytest.raises(ValueError, match=r"p\.md: 0 places for 'a': have one line"):
        page.insert("p.md", "a", ["x"])
