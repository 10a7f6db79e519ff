import pytest

from benchmarks import number_formats
from benchmarks.number_formats import Comparison, summarize

pytest_plugins = ["tiny_run"]

# Long enough for the four words in a row that BLEU counts.
SOURCES = ["bamo dulu kari luso gozu", "wemo luso gozu fepi bamo", "kari kari dulu wemo luso gozu"]


def test_a_format_is_compared_with_float32_line_by_line(trained_run, tmp_path, monkeypatch):
    exact = number_formats.translate(trained_run, SOURCES, 2, "float32")
    assert all(len(line.split()) > 3 for line in exact)
    narrow = [exact[0], "quite otherwise", *exact[2:]]
    monkeypatch.setattr(
        number_formats, "translate", lambda *asked: narrow if asked[1:] == (SOURCES, 2, "int8") else exact
    )
    for name, lines in (("in", SOURCES), ("out", exact)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    test = f"made up={trained_run},{tmp_path}/in,{tmp_path}/out"
    monkeypatch.setattr("sys.argv", ["", test, "--beams", "2", "--out", str(tmp_path / "page.md")])
    number_formats.main()
    page = (tmp_path / "page.md").read_text()
    assert "| made up | 3 | 2 | bfloat16 | 100.00 | 100.00 | +0.00 | 0 |" in page
    (row,) = (line for line in page.splitlines() if "int8 |" in line)
    assert row.endswith("| 1 |")
    assert "| -" in row
    assert "- bfloat16: +0.000" in page


def test_the_mean_of_all_differences_has_a_standard_error():
    found = [Comparison("int8", 30, 30 + gain, 7) for gain in (-0.05, 0.25, 0.1)]
    line = summarize([*found, Comparison("bfloat16", 30, 30, 0)])[1]
    assert line == "- int8: +0.100 ± 0.087 BLEU, mean of 3 comparisons, of which 2 are within 0.1."


@pytest.mark.parametrize("value", [0.1, -0.1])
def test_a_tenth_is_within(value):
    assert "of which 1 are" in summarize([Comparison("int8", 0, value, 1), Comparison("bfloat16", 0, 1, 1)])[1]
