import re
from pathlib import Path

import pytest

from transduce.config import PUBLISHED, TABLE2, TABLE3, Table2Row

PAPER = Path(__file__).parents[2].parent / "shared" / "reference" / "paper.tex.txt"
ROWS = {row.system: row for row in TABLE2}


def test_the_figures_say_what_the_text_of_the_paper_says():
    big, base = ROWS["Transformer (big)"], ROWS["Transformer (base model)"]
    rivals = [row for row in TABLE2 if row.part != "transformer"]
    # Section 6.1: more than 2.0 BLEU above all, ensembles too; base surpasses all to German at a fraction of each cost.
    assert big.bleu_de == pytest.approx(max(row.bleu_de or 0 for row in rivals) + 2.04)
    assert all(base.bleu_de > (row.bleu_de or 0) for row in rivals)
    assert all(base.flops_de < cost / 2 for row in rivals if (cost := row.flops_de))
    # To French, big costs less than a quarter of the best single model, though the text has it at 41.0 BLEU.
    best = max((row for row in rivals if row.part == "single"), key=lambda row: row.bleu_fr or 0)
    assert best.system == "MoE"
    assert big.flops_fr < best.flops_fr / 4
    assert max(rivals, key=lambda row: row.bleu_fr or 0).system == "ConvS2S Ensemble"


def test_an_ensemble_scores_and_costs_more_than_its_system():
    for row in (row for row in TABLE2 if row.part == "ensemble"):
        single = ROWS[row.system.removesuffix(" Ensemble")]
        assert row.bleu_fr > single.bleu_fr
        assert 7 < row.flops_fr / single.flops_fr <= 8.1


def test_the_transformers_are_the_presets_of_table_3():
    presets = [row.preset for row in TABLE2 if row.preset]
    assert presets == ["base", "big"]
    assert set(presets) <= set(PUBLISHED) & {row.preset for row in TABLE3}


@pytest.mark.skipif(not PAPER.exists(), reason="needs the paper's source")
def test_every_row_stands_in_the_papers_source():
    assert read_table(PAPER.read_text()) == [
        (row.system, row.bleu_de, row.bleu_fr, row.flops_de, row.flops_fr) for row in TABLE2
    ]


def read_table(source: str) -> list[tuple[str | float | None, ...]]:
    """The rows of the paper's Table 2: its lines of LaTeX that have a model and cells behind `&`."""
    table = source[source.index(r"\label{tab:wmt-results}") :]
    body = table[table.index("EN-DE & EN-FR") : table.index(r"\bottomrule")]
    lines = [line for line in re.split(r"\\\\", re.sub(r"(?m)^%.*$", "", body))[1:] if "&" in line]
    return [_read_row(line) for line in lines]


def _read_row(line: str) -> tuple[str | float | None, ...]:
    system, german, french, _, *costs = [_plain(cell) for cell in line.split("&")]
    one_for_both = len(costs) == 1
    return (system, *(float(cell) if cell else None for cell in (german, french, *(costs * (1 + one_for_both)))))


def _plain(cell: str) -> str:
    cell = re.sub(r"\\multicolumn\{2\}\{c\}|\\boldmath|\\textbf|\\hline", "", cell)
    cell = re.sub(r"\\(citep|specialrule|rule)(\[[^]]*\]|\{[^{}]*\})*", "", cell)
    return re.sub(r"\\cdot10\^(\d+)", r"e\1", re.sub(r"[${}]", "", cell)).strip()


def test_a_row_cannot_be_changed():
    with pytest.raises(AttributeError):
        Table2Row("a", "single", 1.0, None, None, None).bleu_de = 2.0
