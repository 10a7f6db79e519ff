"""Systems on a made-up language, a few steps each, and the page and picture that show made-up figures."""

import json
import shutil
from dataclasses import replace

import pytest

from transduce.config import SYSTEMS, TABLE2, DataConfig, RunConfig, TrainConfig, TransduceError, read_run
from transduce.lab import reproduce, table2_plot, table2_trainings
from transduce.lab.figure import Difference, Figure
from transduce.lab.measurement import LengthScore, Measurement, read_measurements
from transduce.lab.table2 import make_lines
from transduce.lab.table2_page import import_draw, write_table2
from transduce.lab.table2_trainings import Plan, reproduce_table2
from transduce.workflows.corpus_folder import find_corpora

pytest_plugins = ["tiny_run"]

ONE = next(system for system in SYSTEMS if system.name == "single-head")
SIZE = 4
NAMES = ["transformer-seed1", "single-head-seed1", "single-head-time-seed1"]


def measured(seed, bleu, seconds=90.0, **more):
    return Measurement(
        seed=seed,
        steps=30,
        target_tokens=1800,
        seconds=seconds,
        parameters=2_340_000,
        perplexity=7.0,
        bleu=bleu,
        signature="tok:13a",
        precision="float32",
        machine="abacus",
        versions={},
        **more,
    )


def by_length(*bleus):
    groups = ((1, 5, 11), (6, 10, 13), (31, None, 17))
    return tuple(
        LengthScore(first=first, last=last, sentences=sentences, bleu=bleu)
        for (first, last, sentences), bleu in zip(groups, bleus, strict=True)
    )


RUNS = {
    "transformer": [
        measured(
            1,
            30.0,
            by_length=by_length(33, 32, 29),
            flops_counted=1.5e12,
            flops_by_time=6e12,
            decoded_sentences=23.0,
            decoding_precision="int8",
        ),
        measured(
            2, 32.0, by_length=by_length(35, 32, 31), flops_counted=1.5e12, flops_by_time=8e12, decoded_sentences=25.0
        ),
    ],
    "single-head": [measured(1, 27.0, seconds=45.0, by_length=by_length(33, 28, 11))],
    "single-head-time": [measured(1, 28.5, seconds=91.0)],
}


def silent(_):
    pass


@pytest.fixture(scope="module", autouse=True)
def _small():
    """All models are an eighth as wide; and nothing is drawn, which takes longer than they do and has its own test."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table2_trainings, "import_draw", lambda: lambda lines, path: path.write_text("drawn"))
        patched.setattr(table2_trainings, "REFERENCE_SIZE", SIZE)
        yield


@pytest.fixture(scope="module")
def plan(short_text):
    """One system beside the Transformer, one seed, four steps, on few short lines of dev."""
    return Plan(find_corpora(short_text), [ONE], seeds=1, steps=4)


@pytest.fixture(scope="module")
def finished(plan, tmp_path_factory):
    """All of it in one session; and what was said. The clock is told that one head takes half of the Transformer's."""
    out, said = tmp_path_factory.mktemp("out") / "table2", []
    measure = reproduce.measure

    def by_another_clock(run, device):
        found = measure(run, device)
        found = found.model_copy(update={"seconds": 4.0 if run.root.name.startswith("single") else 8.0})
        (run.root / "measured.json").write_text(found.model_dump_json())
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reproduce, "measure", by_another_clock)
        reproduce_table2(plan, out, said.append)
    return out, said


@pytest.fixture
def trained_names(monkeypatch):
    """The trainings that are asked for, none of which happens."""
    names = []
    monkeypatch.setattr(reproduce, "_train", lambda config, run, *_: names.append(run.root.name))
    return names


def test_equal_parameters_come_first_and_then_equal_time(finished):
    out, said = finished
    assert [line.split(": ")[1] for line in said if line.startswith("training ")] == NAMES
    assert said[-1] == f"{out / 'table2.md'}: 3 of 3 trainings"
    assert (out / "table2.png").read_text() == "drawn"


def test_each_has_as_many_parameters_and_as_much_time(finished):
    out, _ = finished
    transformer, one, longer = (read_measurements(out, name.removesuffix("-seed1"))[0] for name in NAMES)
    assert transformer.parameters == one.parameters == longer.parameters
    # Half the seconds for as many steps: twice as many in the same time, and a schedule of that length.
    assert (transformer.steps, one.steps, longer.steps) == (4, 4, 8)
    regime = read_run(out / NAMES[2] / "run.toml").train
    assert (regime.warmup_steps, regime.cooldown_steps, regime.seed) == (1, 4, 1)
    assert read_run(out / NAMES[1] / "run.toml").model == ONE.model(SIZE)


def test_what_is_finished_stays_and_what_has_begun_keeps_its_length(plan, finished, tmp_path, monkeypatch):
    out, asked = shutil.copytree(finished[0], tmp_path / "out"), []

    def train(config, run, *_):
        asked.append((run.root.name, config.train.max_steps))
        return False

    monkeypatch.setattr(reproduce, "_train", train)
    (out / NAMES[2] / "measured.json").unlink()
    path = out / NAMES[0] / "measured.json"
    path.write_text(path.read_text().replace('"seconds":8.0', '"seconds":80.0'))
    reproduce_table2(plan, out, silent)
    assert asked == [(NAMES[2], 8)]
    shutil.rmtree(out / NAMES[2])
    reproduce_table2(plan, out, silent)
    assert asked[1:] == [(NAMES[2], 80)]


def test_several_at_a_time_have_equal_parameters_alone(plan, tmp_path, monkeypatch):
    planned, said = [], []
    monkeypatch.setattr(reproduce, "_train_together", lambda given, *_: planned.extend(given) or [])
    reproduce_table2(replace(plan, jobs=3), tmp_path, said.append)
    assert [each.run.root.name for each in planned] == NAMES[:2]
    [line] = [line for line in said if "equal time" in line]
    assert line.startswith("equal parameters only of single-head: ")
    assert "for both, begin another --out with --seeds 1 and without --jobs" in line


def test_further_seeds_have_equal_time_several_at_a_time(plan, finished, tmp_path, monkeypatch):
    """By the clocks of first seeds that ran alone."""
    out, planned, said = shutil.copytree(finished[0], tmp_path / "out"), [], []
    monkeypatch.setattr(reproduce, "_train_together", lambda given, *_: planned.extend(given) or [])
    reproduce_table2(replace(plan, seeds=2, jobs=3), out, said.append)
    seconds = [name.replace("seed1", "seed2") for name in NAMES]
    assert {each.run.root.name for each in planned} == {*NAMES, *seconds}
    assert not [line for line in said if "equal time" in line]
    assert [each.configure().train.max_steps for each in planned if each.run.root.name == seconds[2]] == [8]


def test_a_clock_that_ran_beside_others_decides_no_length(plan, finished, trained_names, tmp_path):
    """Its measurement says so, which may be all that was kept of it."""
    out, said = shutil.copytree(finished[0], tmp_path / "out"), []
    shutil.rmtree(out / NAMES[2])
    for name in NAMES[:2]:
        path = out / name / "measured.json"
        alone = path.read_text()
        path.write_text(alone.replace('"jobs":1', '"jobs":2'))
        reproduce_table2(plan, out, said.append)
        assert trained_names == []
        [line] = [line for line in said if "equal time" in line]
        assert line.startswith("equal parameters only of single-head: ")
        path.write_text(alone)
        said.clear()
    reproduce_table2(plan, out, said.append)
    assert trained_names == NAMES[2:]


def test_without_a_clock_there_is_no_equal_time(plan, finished, tmp_path, monkeypatch):
    out, said = shutil.copytree(finished[0], tmp_path / "out"), []
    for name in NAMES[1:]:
        shutil.rmtree(out / name)

    def fail(*_):
        raise TransduceError("it diverged")

    monkeypatch.setattr(reproduce, "finish", fail)
    with pytest.raises(TransduceError, match="2 of 3 trainings failed: single-head-seed1, single-head-time-seed1: "):
        reproduce_table2(plan, out, said.append)
    assert [line for line in said if ": failed: " in line] == [
        "training 2 of 3: single-head-seed1: failed: it diverged",
        "training 3 of 3: single-head-time-seed1: failed: equal time needs the clock of single-head-seed1, which is "
        "not trained",
    ]


def test_seeds_come_one_after_the_other(plan):
    order = table2_trainings._order(replace(plan, seeds=2, systems=[SYSTEMS[0], ONE]))
    assert [(system.name, equal, seed) for system, equal, seed in order] == [
        *(("transformer", "parameters", seed) for seed in (1, 2)),
        *(("single-head", equal, seed) for equal in ("parameters", "time") for seed in (1, 2)),
    ]


def test_figures_by_hand():
    lines = {line.system.name: line for line in make_lines("parameters", lambda name: RUNS.get(name, []))}
    transformer, one = lines["transformer"], lines["single-head"]
    assert transformer.bleu == Figure(31.0, pytest.approx(2**0.5))
    assert (transformer.bleu_difference, one.bleu_difference) == (
        None,
        # One degree of freedom, of which t is 12.706; the Transformer has two seeds and a variance of 2.
        Difference(-4.0, pytest.approx(12.706 * (2 * (1 + 1 / 2)) ** 0.5)),
    )
    assert (transformer.training_speed.mean, one.training_speed.mean) == (20, 40)
    assert [(group.name, group.sentences, group.bleu.mean) for group in transformer.groups] == [
        *(("1 to 5", 11, 34), ("6 to 10", 13, 32), ("31 and more", 17, 30)),
    ]
    assert transformer.row == TABLE2[-2]
    longer = {line.system.name: line for line in make_lines("time", lambda name: RUNS.get(name, []))}
    assert longer["single-head"].bleu_difference == Difference(-2.5, pytest.approx(12.706 * 3**0.5))


def test_both_tables_tell_what_a_seed_is_worth():
    runs = {
        "transformer": [measured(1, 30.0), measured(2, 32.0)],
        "single-head": [measured(1, 27.0), measured(2, 31.0)],
        "single-head-time": [measured(1, 28.5)],
    }
    [line] = [each for each in make_lines("time", lambda name: runs.get(name, [])) if each.system is ONE]
    # Variances of 2 and 8, each of one degree of freedom; t of two is 4.303.
    assert line.bleu_difference == Difference(-2.5, pytest.approx(4.303 * (5 * (1 + 1 / 2)) ** 0.5))


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
    sides = {"train": {"source": "train.en", "target": "train.de"}, "dev": {"source": "dev.en", "target": "dev.de"}}
    return RunConfig(
        data=DataConfig.model_validate({"root": str(tmp_path), **sides}),
        model=SYSTEMS[0].model(32),
        train=TrainConfig(max_steps=1000),
    )


def cells(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]


def page_row(folder, system):
    """At equal parameters, by column."""
    _, parameters, *_ = (folder / "table2.md").read_text(encoding="utf-8").split("\n## ")
    head, _, *rows = cells(parameters)
    return dict(zip(head, next(row for row in rows if row[0] == system), strict=True))


def test_the_page(folder, config):
    write_table2(folder, config, None)
    page = (folder / "table2.md").read_text(encoding="utf-8")
    _, parameters, time, lengths, paper = page.split("\n## ")
    head, _, *rows = cells(parameters)
    transformer, one = rows[0], next(row for row in rows if row[0] == "single-head")
    assert len({len(row) for row in cells(parameters) + cells(time)}) == 1
    assert transformer == [
        *("transformer", "Transformer (base model)", "2", "2.34", "30", "1.5", "20", "7.0e12", "1.5e12"),
        *("7.00 ± 0.00", "31.0 ± 1.4", "", "24", "", "int8"),
    ]
    assert (one[head.index("Δ BLEU")], one[head.index("minutes")]) == ("-4.0 ± 22.0", "0.8")
    assert [row[head.index("BLEU")] for row in cells(time)[2:] if row[2] != "not run"] == ["31.0 ± 1.4", "28.5"]
    assert cells(lengths)[:4] == [
        ["equal parameters: words of the source", "1 to 5", "6 to 10", "31 and more"],
        ["---"] * 4,
        ["sentences of dev", "11", "13", "17"],
        ["transformer", "34.0 ± 1.4", "32.0 ± 0.0", "30.0 ± 1.4"],
    ]
    rows = {row[0]: row[1:] for row in cells(paper)}
    assert len(rows) == len(TABLE2) + 2
    assert rows["Transformer (base model)"] == ["27.3", "38.1", "3.3e18", "3.3e18", "transformer", "31.0 ± 1.4"]
    assert rows["ByteNet"] == ["23.75", "", "", "", "bytenet", "not run"]
    assert "4 trainings, 5 minutes of training in all, on abacus" in page


def test_a_seed_in_company_counts_in_scores_and_not_in_what_a_clock_measured(folder, config):
    write_table2(folder, config, None)
    alone = page_row(folder, "transformer")
    clock = {"seconds": 900.0, "flops_by_time": 7e13, "decoded_sentences": 9.0}
    beside = measured(3, 40.0, flops_counted=1.5e12, jobs=2, **clock)
    path = folder / "transformer-seed3" / "measured.json"
    path.parent.mkdir()
    path.write_text(beside.model_dump_json())
    write_table2(folder, config, None)
    now = page_row(folder, "transformer")
    assert {head for head in now if now[head] != alone[head]} == {"seeds", "BLEU"}
    assert now["BLEU"].startswith("34.0")


def test_the_page_says_what_ran_beside_others(folder, config):
    path = folder / "single-head-seed1" / "measured.json"
    path.write_text(measured(1, 27.0, by_length=by_length(33, 28, 11), jobs=5).model_dump_json())
    write_table2(folder, config, None)
    page = (folder / "table2.md").read_text(encoding="utf-8")
    assert "on abacus. Up to 5 of them ran at a time (`--jobs`): what a clock measured then is slower" in page
    _, _, time, *_ = page.split("\n## ")
    # What was trained for as long as a clock told that ran alone then stays.
    assert "Beside other trainings (`--jobs`), so with equal parameters\nonly, ran those of single-head." in time
    assert [row[0] for row in cells(time)[2:] if row[2] != "not run"] == ["transformer", "single-head"]
    shutil.rmtree(folder / "single-head-time-seed1")
    write_table2(folder, config, None)
    _, _, time, lengths, _ = (folder / "table2.md").read_text(encoding="utf-8").split("\n## ")
    assert cells(time) == []
    assert "At equal time: not run." in lengths


def test_the_data_hold_every_training(folder, config):
    write_table2(folder, config, None)
    data = json.loads((folder / "table2.json").read_text(encoding="utf-8"))
    assert data["settings"]["train"]["max_steps"] == 1000
    first = data["equal_parameters"][0]
    assert [run["bleu"] for run in first["runs"]] == [30.0, 32.0]
    assert first["paper"]["bleu_de"] == 27.3
    assert first["by_length"][2] == {
        **{"first": 31, "last": None, "sentences": 17},
        "bleu": {"mean": 30, "spread": 2**0.5},
    }
    assert next(row for row in data["equal_time"] if row["system"] == "single-head")["bleu"] == {
        "mean": 28.5,
        "spread": None,
    }


def test_every_system_has_a_look_of_its_own():
    looks = [table2_plot.look(number) for number in range(len(SYSTEMS))]
    assert len(set(looks)) == len(SYSTEMS)


def test_the_picture(folder, config):
    draw = import_draw()
    assert draw is not None
    write_table2(folder, config, draw)
    assert (folder / "table2.png").read_bytes().startswith(b"\x89PNG")
    draw({"parameters": make_lines("parameters", lambda _: []), "time": []}, folder / "nothing yet.png")
    assert (folder / "nothing yet.png").stat().st_size < (folder / "table2.png").stat().st_size
