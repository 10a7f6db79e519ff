"""``transduce search``: how the search for an output went, as a page or as data."""

import json
import re

import pytest

from transduce.cli import main

pytest_plugins = ["tiny_run"]


def test_a_page(trained_run, tmp_path, capfd):
    page = tmp_path / "s.html"
    assert (
        main._run(["search", str(trained_run), "--text", "bamo dulu kari", "--out", str(page), "--beam-size", "3"]) == 0
    )
    assert capfd.readouterr() == (f"{page}\n", "")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S)[1])
    assert (data["text"], data["beam_size"]) == ("ti sor mup", 3)
    assert [node["symbol"] for node in data["nodes"] if node["best"]] == ["<s>", " ti", " sor", " mup", "</s>"]
    assert {len(node["following"]) for node in data["nodes"]} == {0, 10}


def test_data(trained_run, tmp_path, capfd):
    given = ["search", str(trained_run), "--text", "bamo", "--format", "json", "--top", "2", "--prefix", "mup yob"]
    assert main._run([*given, "--max-length", "2"]) == 0
    shown = capfd.readouterr().out
    data = json.loads(shown)
    assert data["text"] == "mup yob"
    assert {len(node["following"]) for node in data["nodes"]} == {0, 2}
    assert main._run([*given, "--max-length", "2", "--out", str(tmp_path / "s.json")]) == 0
    assert (tmp_path / "s.json").read_text(encoding="utf-8") == shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--text", "bamo"], "nowhere to put it: give --out F.html, or --format json"),
        (["--text", " ", "--out", "F"], "the text is empty"),
        (["--text", "bamo", "--out", "F", "--beam-size", "0"], "beam size"),
        (["--text", "bamo", "--out", "F", "--prefix", "ti ti ti", "--max-length", "2"], "found no output of at most 2"),
        (["--text", "bamo", "--out", "F", "--top", "0"], "top 0: must be 1 or more"),
    ],
)
def test_what_cannot_be_shown_is_named(trained_run, tmp_path, monkeypatch, capfd, arguments, named):
    monkeypatch.chdir(tmp_path)
    assert main._run(["search", str(trained_run), *arguments]) == 2
    assert named in capfd.readouterr().err
    assert not [*tmp_path.iterdir()]
