"""``transduce attention``: pages and pictures of what a model attends to."""

import json
import re

import pytest

from transduce.cli import main

pytest_plugins = ["tiny_run"]


def sentences(path):
    page = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])["sentences"]


def test_a_page_and_pictures(trained_run, tmp_path, capfd):
    page, png, svg = tmp_path / "a.html", tmp_path / "a.png", tmp_path / "a.svg"
    texts = ["--text", "bamo dulu kari", "--text", "wemo"]
    files = ["--out", str(page), "--png", str(png), "--svg", str(svg), "--kind", "encoder", "--head", "2"]
    assert main._run(["attention", str(trained_run), *texts, *files, "--mute"]) == 0
    one, other = sentences(page)
    assert (one["text"], other["text"]) == ("ti sor mup", "yob")
    assert len(one["muted"]) == 2 * 3  # heads of three kinds, one layer each
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text(encoding="utf-8")
    assert capfd.readouterr() == (f"{page}\n{png}\n{svg}\n", "")


def test_a_target_of_ones_own(trained_run, tmp_path):
    page = tmp_path / "a.html"
    assert main._run(["attention", str(trained_run), "--text", "bamo", "--target", "mup ti", "--out", str(page)]) == 0
    (sentence,) = sentences(page)
    assert sentence["target"] == [" mup", " ti", "</s>"]
    assert sentence["text"] == "ti"  # what the model itself writes
    assert sentence["muted"] == {}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--text", "bamo"], "nowhere to put it"),
        (["--text", "bamo", "--target", "a", "--target", "b", "--out", "F"], "1 texts and 2 targets"),
        (["--text", " ", "--out", "F"], "the source is empty"),
        (["--text", "bamo", "--svg", "F.jpg"], "--svg F.jpg: give a name that ends with .svg"),
        (["--text", "bamo", "--out", "no/F"], "no is missing: make it first"),
        (["--text", "bamo", "--out", "F", "--kind", "cross", "--layer", "1"], "--kind and --layer: for a picture"),
        (["--text", "bamo", "--png", "F.png", "--mute"], "--mute: for the page"),
        (
            ["--text", "bamo", "--out", "F", "--svg", "F.svg", "--layer", "2"],
            "cross layer 2, head 1: there are 1 layers",
        ),
        (["--text", "bamo", "--png", "F.png", "--head", "3"], "cross layer 1, head 3: there are 1 layers of 2 heads"),
    ],
)
def test_what_cannot_be_shown_is_named(trained_run, tmp_path, monkeypatch, capfd, arguments, named):
    monkeypatch.chdir(tmp_path)
    assert main._run(["attention", str(trained_run), *arguments]) == 2
    assert named in capfd.readouterr().err
    assert not [*tmp_path.iterdir()]
