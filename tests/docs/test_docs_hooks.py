"""The parts of the documentation site that are made of the code; the site itself is built by ``make docs``."""

from pathlib import Path

import pytest

from docs.hooks.blocks import name_languages, read_blocks
from docs.hooks.links import lead_to_pages, page_of, path_of, show, targets
from docs.hooks.reference import pages, rooms
from docs.hooks.sources import include, read_code
from transduce.cli.main import app
from transduce.config.run import TrainConfig

ROOT = Path(__file__).parents[2]


def test_blocks_are_found_with_what_they_are_written_in():
    page = "Run\n\n    transduce doctor a.toml\n\nwith\n\n    [data]\n    root = 1\n\n- item\n  continued\n\n"
    page += "```js\nf()\n```\n\n    t -> u\n"
    assert [(block.language, block.text) for block in read_blocks(page)] == [
        ("shell", "transduce doctor a.toml\n"),
        ("toml", "[data]\nroot = 1\n"),
        ("js", "f()\n"),
        ("text", "t -> u\n"),
    ]


def test_named_languages_leave_the_blocks_as_they_are():
    page = "A\n\n    import x\n\n    x.y\n\nB\n\n```text\nz\n```\n"
    named = name_languages(page)
    assert named == "A\n\n```python\nimport x\n\nx.y\n```\n\nB\n\n```text\nz\n```\n"
    assert [block.text for block in read_blocks(named)] == [block.text for block in read_blocks(page)]


def test_links_to_files_of_the_repository_lead_to_pages_of_the_site():
    text = "[a](../README.md#b) [c](text.md#d) [e](../recipes/x.toml) [f](https://g) [h](#i) `[j](k.md)`"
    led = lead_to_pages(text, "docs/training.md", "training.md")
    assert led == "[a](index.md#b) [c](text.md#d) [e](files/recipes/x.toml.md) [f](https://g) [h](#i) `[j](k.md)`"
    assert targets(text, "docs/training.md") == {"README.md", "docs/text.md", "recipes/x.toml"}
    assert lead_to_pages("[t](docs/text.md)", "README.md", "index.md") == "[t](text.md)"
    assert (
        path_of(page_of("CHANGELOG.md")) == "CHANGELOG.md"
        and path_of("notebook/parsing.md") == "docs/notebook/parsing.md"
    )


def test_files_and_folders_are_shown():
    assert "```toml\n" in show(ROOT, "recipes/copy.toml")
    assert "section.py" in show(ROOT, "src/transduce/config")


def test_code_is_read_from_the_source_and_missing_code_is_said(tmp_path):
    file = tmp_path / "src" / "a.py"
    file.parent.mkdir()
    file.write_text("class A:\n    def f(self):\n        return 1\n\n    x = 2\n", encoding="utf-8")
    assert read_code(file, "A.f") == "def f(self):\n    return 1"
    page = include("See\n\n[code of `A.f`](../../src/a.py)\n", tmp_path)
    assert page == 'See\n\n```python title="src/a.py"\ndef f(self):\n    return 1\n```\n'
    with pytest.raises(LookupError, match=r"A\.g"):
        read_code(file, "A.g")


def test_the_reference_has_every_setting_verb_and_room():
    made = pages()
    assert all(f"| `{name}` |" in made["reference/settings.md"] for name in TrainConfig.model_fields)
    names = [(command.callback.__name__).strip("_").replace("_", "-") for command in app.registered_commands]
    assert all(f"\n## {name}\n" in made["reference/verbs.md"] for name in names)
    assert "--beam-size" in made["reference/verbs.md"]
    assert {"config", "search", "text"} <= set(rooms())
    assert "- load\n" in made["reference/python/inference.md"]


def test_the_pages_of_rooms_are_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [room for room in rooms() if f"reference/python/{room}.md" not in navigation] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "paper").glob("*.md")), ids=lambda page: page.stem)
def test_the_papers_pages_find_their_code(page):
    text = page.read_text(encoding="utf-8")
    assert include(text, ROOT).count("```python") == text.count("[code of ")


def test_what_a_setting_means_is_shown_as_it_is_said():
    row = next(line for line in pages()["reference/settings.md"].splitlines() if line.startswith("| `pattern` |"))
    assert "(?P&lt;source>" in row
