"""Means, spreads and differences by hand, and the page and picture that show them."""

import json
import math

import pytest
import torch

from transduce.config import VARIATIONS, DataConfig, RunConfig, TrainConfig, scale_preset
from transduce.lab.figure import Figure
from transduce.lab.measurement import Measurement, read_measurements
from transduce.lab.table3 import make_lines
from transduce.lab.table3_page import import_draw, write_table3
from transduce.models import build


def measured(seed, perplexity, bleu):
    return Measurement(
        seed=seed,
        steps=30,
        target_tokens=7,
        seconds=90.0,
        parameters=2_340_000,
        perplexity=perplexity,
        bleu=bleu,
        signature="tok:13a",
        precision="float32",
        machine="abacus",
        versions={},
    )


RUNS = {
    "base": [measured(1, 8.0, 20.0), measured(2, 8.0, 21.0), measured(3, 8.0, 22.0)],
    "table3-c-n2": [measured(1, 8 * math.e, 17.0), measured(2, 8 * math.e**3, 20.0)],
    "table3-d-ls0.0": [measured(1, 4.0, 21.5)],
}


@pytest.fixture
def lines():
    return {line.row.preset: line for line in make_lines(1000, lambda name: RUNS.get(name, []))}


@pytest.fixture
def folder(tmp_path):
    for name, runs in RUNS.items():
        for run in runs:
            path = tmp_path / f"{name}-seed{run.seed}" / "measured.json"
            path.parent.mkdir()
            path.write_text(run.model_dump_json())
    return tmp_path


@pytest.fixture
def config(tmp_path):
    return RunConfig(
        data=DataConfig.model_validate(
            {
                "root": str(tmp_path),
                "train": {"source": "train.en", "target": "train.de"},
                "dev": {"source": "dev.en", "target": "dev.de"},
            }
        ),
        model=scale_preset("base"),
        train=TrainConfig(max_steps=1000, warmup_steps=250, cooldown_steps=250, batch_tokens=2048),
    )


def test_every_row_can_be_built_and_those_of_constant_cost_are_as_large_as_base():
    def size(row):
        with torch.device("meta"):
            return sum(weight.numel() for weight in build(scale_preset(row.preset)).parameters())

    sizes = {row.preset: size(row) for row in VARIATIONS}
    assert {sizes[row.preset] for row in VARIATIONS if row.part in ("base", "(A)", "(D)")} == {sizes["base"]}
    # A feed-forward network in place of attention over parameters has biases.
    assert sizes["aop1"] == sizes["aop2"] == sizes["base"] - 8 * (128 + 256)
    # Keys and queries of 12 attentions, a quarter and a half as wide.
    assert sizes["base"] - sizes["table3-b-dk16"] == 12 * 2 * 128 * 4 * (32 - 8)
    assert sizes["base"] - sizes["table3-b-dk32"] == 12 * 2 * 128 * 4 * (32 - 16)
    assert (
        max(sizes, key=lambda name: sizes[name]) == max(VARIATIONS, key=lambda row: row.millions or 0).preset == "big"
    )


def test_scores_by_hand(lines):
    base, row = lines["base"], lines["table3-c-n2"]
    assert base.ours.bleu == Figure(21.0, 1.0)
    assert (base.loss, base.bleu) == (None, None)
    assert row.ours.perplexity.mean == pytest.approx(4 * (math.e + math.e**3))
    # One and three nats above base, two BLEU and a half below it; of three degrees of freedom, for which t is 3.182.
    interval = 3.182 * math.sqrt(1 / 2 + 1 / 3)
    assert (row.loss.mean, row.loss.interval) == (pytest.approx(2), pytest.approx(interval * math.sqrt(2 / 3)))
    assert (row.bleu.mean, row.bleu.interval) == (pytest.approx(-2.5), pytest.approx(interval * math.sqrt(6.5 / 3)))
    assert row.paper_loss == pytest.approx(math.log(6.11) - math.log(4.92))
    assert row.paper_bleu == pytest.approx(-2.1)
    assert lines["big"].steps == 3000


def test_rows_without_base_have_no_difference():
    runs = {name: found for name, found in RUNS.items() if name != "base"}
    assert all(line.loss is None and line.bleu is None for line in make_lines(10, lambda name: runs.get(name, [])))


def test_the_page(folder, config):
    write_table3(folder, config, None)
    page = (folder / "table3.md").read_text(encoding="utf-8")
    table, conclusions = page.split("## What the paper concludes")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    assert len({len(row) for row in rows}) == 1
    header, _, base, *others = rows
    assert len(others) == 21
    assert header[:3] == ["row", "paper", "here"]
    assert base[:2] == [
        "base",
        "N 6, d_model 512, d_ff 2048, h 8, d_k 64, d_v 64, P_drop 0.1, ε_ls 0.1, positions sinusoidal",
    ]
    assert base[3:] == ["3", "2.34", "8.00 ± 0.00", "", "21.0 ± 1.0", "", "65", "4.92", "", "25.8", ""]
    by_paper = {row[1]: row for row in others}
    assert by_paper["N 2"] == [
        *("(C)", "N 2", "N 1", "2", "2.34", "91.22 ± 98.24", "+2.000 ± 2.372", "18.5 ± 2.1", "-2.5 ± 4.3"),
        *("36", "6.11", "+0.217", "23.7", "-2.1"),
    ]
    assert by_paper["ε_ls 0.0"][3:9] == ["1", "2.34", "4.00", "-0.693 ± 3.000", "21.5", "+0.5 ± 5.4"]
    assert by_paper["d_k 16"][2:9] == ["d_k 8", "not run", "", "", "", "", ""]
    assert by_paper["d_model 1024, d_ff 4096, h 16, P_drop 0.3, 300,000 steps"][2].endswith("P_drop 0.3, 3,000 steps")
    assert by_paper["h_p 16, d_pk 64, d_pv 64, n_p 512"][2:4] == ["h_p 8, d_pk 16, d_pv 16, n_p 128", "not run"]
    assert "| bigger models are better (6.2) | c-n2 | Δ loss | +0.217 | +2.000 ± 2.372 | undecided |" in conclusions
    assert "6 trainings, 9 minutes of training in all, on abacus" in page


def test_the_data_hold_every_training_and_the_settings(folder, config):
    write_table3(folder, config, None)
    data = json.loads((folder / "table3.json").read_text(encoding="utf-8"))
    assert data["settings"]["train"]["max_steps"] == 1000
    assert len(data["rows"]) == 22
    base, big = data["rows"][0], data["rows"][19]
    assert [run["bleu"] for run in base["runs"]] == [20.0, 21.0, 22.0]
    assert base["bleu"] == {"mean": 21.0, "spread": 1.0}
    assert (big["runs"], big["bleu"], big["paper"]["millions"]) == ([], None, 213)


def test_the_picture(folder, config):
    draw = import_draw()
    assert draw is not None
    write_table3(folder, config, draw)
    assert (folder / "table3.png").read_bytes().startswith(b"\x89PNG")
    draw(make_lines(10, lambda _: []), folder / "nothing yet.png")
    assert (folder / "nothing yet.png").read_bytes() != (folder / "table3.png").read_bytes()


def test_a_training_that_diverged_has_its_row(folder, config):
    path = folder / "table3-a-h1-seed1" / "measured.json"
    path.parent.mkdir()
    path.write_text(measured(1, math.inf, 0.0).model_dump_json())
    assert read_measurements(folder, "table3-a-h1") == [measured(1, math.inf, 0.0)]
    write_table3(folder, config, import_draw())
    assert "| inf | **+inf** ± 3.000 | 0.0 |" in (folder / "table3.md").read_text(encoding="utf-8")
