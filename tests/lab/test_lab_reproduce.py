"""Rows of Table 3 on a made-up language, a few steps each: in one session, in several, and interrupted."""

import json
import shutil
import sys
from dataclasses import replace

import pytest

from transduce.bundle import load_bundle
from transduce.config import VARIATIONS, BadInputError, RunConfig, read_run, scale_preset, write_run
from transduce.lab import measurement, table3_trainings
from transduce.lab import reproduce as module
from transduce.lab.measurement import read_measurements
from transduce.lab.regime import make_regime
from transduce.lab.table3_page import import_draw
from transduce.lab.table3_trainings import Plan, reproduce_table3
from transduce.training import Progress, learning_rate, list_checkpoints, read_progress
from transduce.workflows.corpus_folder import find_corpora
from transduce.workflows.examples import Examples
from transduce.workflows.flops import count_training
from transduce.workflows.prepare import load_prepared, share_preparation
from transduce.workflows.run_directory import RunDirectory

pytest_plugins = ["tiny_run"]

BASE, ROW = VARIATIONS[0], next(row for row in VARIATIONS if row.preset == "table3-c-n2")
NAMES = ["base-seed1", "base-seed2", "table3-c-n2-seed1", "table3-c-n2-seed2"]


def silent(_):
    pass


@pytest.fixture(scope="module", autouse=True)
def _no_picture():
    """Drawing takes longer than these trainings, and has its own test."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table3_trainings, "import_draw", lambda: lambda lines, path: path.write_text(str(len(lines))))
        yield


@pytest.fixture(scope="module")
def plan(short_text):
    """Two rows, two seeds, two steps, on few short lines of dev."""
    return Plan(find_corpora(short_text), [ROW], seeds=2, steps=2)


@pytest.fixture(scope="module")
def finished(plan, tmp_path_factory):
    """All of it in one session; and what was said."""
    out, said = tmp_path_factory.mktemp("out") / "table3", []
    reproduce_table3(plan, out, said.append)
    return out, said


@pytest.fixture
def trained(monkeypatch):
    """The trainings that are begun or gone on with, by the names of their folders."""
    names = []

    def train(config, run, **options):
        names.append(run.root.name)
        return train_run(config, run, **options)

    train_run = module.train_run
    monkeypatch.setattr(module, "train_run", train)
    return names


CLOCK = {"seconds": 0.0, "flops_by_time": None, "decoded_sentences": None, "decoded_tokens": None}


def runs(out, name):
    """Measurements without what the clock says of them."""
    return [run.model_copy(update=CLOCK) for run in read_measurements(out, name)]


def test_every_row_is_trained_with_every_seed_base_first(finished):
    out, said = finished
    assert [line.split(": ")[1] for line in said if line.startswith("training ")] == NAMES
    assert said[-1] == f"{out / 'table3.md'}: 4 of 4 trainings"
    assert [run.seed for run in runs(out, "base")] == [run.seed for run in runs(out, ROW.preset)] == [1, 2]
    rows = {row["row"]: row for row in json.loads((out / "table3.json").read_text())["rows"]}
    assert [name for name, row in rows.items() if row["runs"]] == ["base", "table3-c-n2"]
    assert rows["table3-c-n2"]["loss_difference"]["interval"] > 0
    assert (out / "table3.png").read_text() == "22"


def test_each_run_is_what_the_row_says(finished):
    out, _ = finished
    base, other = (read_run(out / name / "run.toml") for name in ("base-seed1", "table3-c-n2-seed2"))
    assert base.model == scale_preset("base")
    assert other.model == scale_preset("table3-c-n2")
    assert other.train == base.train.model_copy(update={"seed": 2})
    assert (base.train.max_steps, base.train.max_minutes) == (2, None)
    # One layer a side in place of four: 12 d^2 of 7 attentions and feed-forward, d_model 128 and d_ff 256, and norms.
    encoder = 4 * 128**2 + 2 * 128 * 256 + 256 + 128 + 2 * 2 * 128
    decoder = encoder + 4 * 128**2 + 2 * 128
    difference = runs(out, "base")[0].parameters - runs(out, ROW.preset)[0].parameters
    assert difference == 3 * (encoder + decoder)


def test_the_preparation_is_shared_and_takes_no_more_room(finished):
    out, _ = finished
    assert len({(out / name / "store" / "train.arrow").stat().st_ino for name in NAMES}) == 1
    assert len({(out / name / "tokenizer.json").read_bytes() for name in NAMES}) == 1


def test_seeds_differ_and_are_measured_after_the_last_step(finished):
    out, _ = finished
    one, other = runs(out, "base")
    assert one.perplexity != other.perplexity
    assert (one.steps, other.steps) == (2, 2)
    assert one.signature.startswith("nrefs:1|")


def test_speed_cost_and_scores_by_length_are_measured(plan, finished):
    out, _ = finished
    run = read_measurements(out, "base")[0]
    # Three sentences of at most six words; steps of a tiny model ask for far less than the machine could do.
    assert [(group.first, group.last) for group in run.by_length] in ([(1, 5)], [(1, 5), (6, 10)])
    assert sum(group.sentences for group in run.by_length) == 3
    assert run.decoded_tokens >= run.decoded_sentences > 0  # an empty output has its end symbol
    assert 0 < run.flops_counted < run.flops_by_time
    directory = RunDirectory(out / NAMES[0])
    progress = read_progress(list_checkpoints(directory.checkpoints)[-1][1])
    assert run.flops_counted == count_training(load_bundle(directory.root).config, progress.work)
    # 6 FLOPs for each parameter of the decoder and token, at least, but for the source's share of the embeddings.
    assert run.flops_counted > 6 * 4 * (8 * 128**2 + 2 * 128 * 256) * run.target_tokens


def test_sentences_are_grouped_by_the_words_of_their_sources():
    sources = [" ".join("x" * words) for words in (1, 5, 6, 20, 21, 30, 31, 90)]
    outputs = [f"an output of number {words}" for words in "12345678"]
    examples = Examples(sources, [*outputs[:7], "nothing of the kind"])
    groups = list(measurement._score_by_length(examples, outputs))
    assert [(group.first, group.last, group.sentences) for group in groups] == [
        *((1, 5, 2), (6, 10, 1), (16, 20, 1), (21, 30, 2), (31, None, 2)),
    ]
    assert [round(group.bleu) for group in groups[:4]] == [100] * 4
    assert groups[4].bleu < 60


def test_what_was_measured_before_there_was_speed_is_read(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    path = out / "base-seed1" / "measured.json"
    newer = ("flops_counted", "flops_by_time", "decoded_sentences", "decoded_tokens", "by_length")
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key not in newer}))
    old = read_measurements(out, "base")[0]
    assert (old.bleu, old.decoded_tokens, old.by_length) == (runs(out, "base")[0].bleu, None, ())


def test_a_copy_of_a_training_is_none(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    for copy in ("base-seed1.old", "base-seed1 (copy)", "base-seed"):
        shutil.copytree(out / "base-seed1", out / copy)
    assert [run.seed for run in read_measurements(out, "base")] == [1, 2]


def test_what_is_finished_is_never_repeated(plan, finished, trained, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    (out / "table3.md").unlink()
    said = []
    reproduce_table3(plan, out, said.append)
    assert trained == []
    assert said == [f"{out / 'table3.md'}: 4 of 4 trainings"]
    assert (out / "table3.md").read_text() == (finished[0] / "table3.md").read_text()


def test_another_seed_comes_on_top_of_what_is_there(plan, finished, tmp_path, monkeypatch):
    out, asked = shutil.copytree(finished[0], tmp_path / "out"), []

    def train(config, run, *_):
        asked.append((run.root.name, config.train.seed))
        return False

    monkeypatch.setattr(module, "_train", train)
    reproduce_table3(replace(plan, rows=[], seeds=3), out, silent)
    assert asked == [("base-seed3", 3)]
    # Rows that this session does not ask for stay in the table.
    rows = json.loads((out / "table3.json").read_text())["rows"]
    assert [len(row["runs"]) for row in rows if row["runs"]] == [2, 2]


def test_the_budget_ends_a_training_that_the_next_session_goes_on_with(plan, finished, trained, tmp_path, monkeypatch):
    """A clock that stands still but for one jump: base's first training gets a millisecond, which is one step."""
    times = iter([0.0, 0.999])
    plan = replace(plan, rows=[], seeds=1)
    said = []
    with monkeypatch.context() as patched:
        patched.setattr(module.time, "monotonic", lambda: next(times))
        reproduce_table3(plan, tmp_path, said.append, budget=1.0)
    assert [step for step, _ in list_checkpoints(RunDirectory(tmp_path / "base-seed1").checkpoints)] == [1]
    assert said[-1].endswith("0 of 1 trainings: the budget is used up, the same command goes on")
    assert (tmp_path / "table3.md").read_text().count("| not run |  |") == 22
    reproduce_table3(plan, tmp_path, silent)
    assert trained == ["base-seed1", "base-seed1"]
    # In two pieces or in one: the same.
    assert runs(tmp_path, "base") == runs(finished[0], "base")[:1]


def test_no_training_is_begun_without_time_left(plan, trained, tmp_path, monkeypatch):
    times = iter([0.0, 1.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(times))
    reproduce_table3(plan, tmp_path, silent, budget=1.0)
    assert trained == []


def test_an_interrupt_leaves_all_usable(plan, finished, tmp_path, monkeypatch):
    """It comes between the last step of a training and its measurement."""
    out = shutil.copytree(finished[0], tmp_path / "out")
    (out / "base-seed2" / "measured.json").unlink()
    checkpoint = list_checkpoints(RunDirectory(out / "base-seed2").checkpoints)[-1][1] / "model.safetensors"
    before = checkpoint.stat().st_mtime_ns

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reproduce_table3(plan, out, silent)
    assert len(json.loads((out / "table3.json").read_text())["rows"][0]["runs"]) == 1
    reproduce_table3(plan, out, silent)
    assert checkpoint.stat().st_mtime_ns == before
    assert runs(out, "base") == runs(finished[0], "base")


def test_the_last_weights_are_measured_even_where_earlier_ones_were_better(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    shutil.rmtree(out / "base-seed1" / "best")
    shutil.copytree(out / "base-seed2" / "best", out / "base-seed1" / "best")
    again = module.measure(RunDirectory(out / "base-seed1"))
    assert again.model_copy(update=CLOCK) == runs(finished[0], "base")[0]


def test_what_training_takes_of_dev_is_measured(plan, finished, tmp_path):
    """It leaves out a line without a translation, and takes one that is too long for what the model is given later."""
    out, text = shutil.copytree(finished[0], tmp_path / "out"), shutil.copytree(plan.data.root, tmp_path / "text")
    with (text / "dev.src").open("a") as source, (text / "dev.trg").open("a") as target:
        source.write("bamo\n")
        target.write("\n")
    run = RunDirectory(out / "base-seed1")
    config = read_run(run.config)
    write_run(config.model_copy(update={"data": find_corpora(text)}), run.config)
    settings = run.best / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"max_source_length": 2}))
    assert module.measure(run).model_copy(update=CLOCK) == runs(finished[0], "base")[0]


def test_twenty_epochs_are_the_default(plan, tmp_path, monkeypatch):
    asked = []

    def train(config, run, **_):
        asked.append(config.train)
        return Progress()

    monkeypatch.setattr(module, "train_run", train)
    reproduce_table3(replace(plan, steps=None), tmp_path, silent)
    # 211 pairs of at most 6 words and end symbols: batches of 1,280 tokens a side.
    store = load_prepared(RunDirectory(tmp_path / "base-seed1")).train
    tokens = max(store.tokens) + len(store)
    assert tokens <= 1280 * asked[0].max_steps / 20 < tokens + 2 * 1280  # one of them is not full


@pytest.mark.parametrize(("steps", "warmup", "cooldown"), [(20, 2, 11), (8000, 960, 4400), (40_000, 4000, 22_000)])
def test_the_rate_peaks_where_it_is_told_whatever_the_length(steps, warmup, cooldown):
    regime = make_regime(steps, 0.003, 128)
    assert (regime.warmup_steps, regime.cooldown_steps) == (warmup, cooldown)
    rates = [learning_rate(step, 128, warmup, regime.learning_rate_factor) for step in range(1, steps)]
    assert max(rates) == rates[warmup - 1] == pytest.approx(0.003)


def test_big_has_three_times_the_steps_and_no_more_warm_up(plan):
    config = RunConfig(data=plan.data, model=scale_preset("base"), train=make_regime(40_000, 0.004, 128))
    row = next(row for row in VARIATIONS if row.preset == "big")
    big = table3_trainings._configure(config, row, 7).train
    assert (big.max_steps, big.seed, big.warmup_steps, big.cooldown_steps) == (120_000, 7, 4000, 22_000)
    assert big.validate_every == 120_000


def test_the_rate_may_be_another(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(table3_trainings, "prepare_base", lambda *_: None)
    config = table3_trainings._settle(replace(plan, peak_rate=0.001), RunDirectory(tmp_path), silent)
    width = config.model.d_model
    factor = config.train.learning_rate_factor
    assert learning_rate(config.train.warmup_steps, width, config.train.warmup_steps, factor) == pytest.approx(0.001)


def test_the_norm_is_that_of_all_rows(plan, tmp_path, monkeypatch):
    asked = []

    def train(config, run, *_):
        asked.append(config.model)
        return False

    monkeypatch.setattr(module, "_train", train)
    monkeypatch.setattr(module, "is_measured", lambda run: run.root.name == "base-seed1")
    reproduce_table3(replace(plan, seeds=1, norm="pre"), tmp_path, silent)
    assert asked == [scale_preset("table3-c-n2", norm="pre")]
    assert read_run(tmp_path / "base-seed1" / "run.toml").model == scale_preset("base", norm="pre")


def test_what_a_row_was_begun_as_is_compared_too(plan, finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    path = out / "table3-c-n2-seed1" / "run.toml"
    path.write_text(path.read_text().replace("d_ff = 256", "d_ff = 257"))
    with pytest.raises(BadInputError, match=r"model\.d_ff was 257 and is 256: give those again"):
        reproduce_table3(plan, out, silent)


def test_other_steps_are_refused(plan, finished):
    message = r"holds a table of other settings: train.max_steps was 2 and is 4 \(and 3 more\): give those again"
    with pytest.raises(BadInputError, match=message):
        reproduce_table3(replace(plan, steps=4), finished[0], silent)


def test_other_text_is_refused(plan, finished, tmp_path):
    shutil.copytree(plan.data.root, tmp_path / "text")
    with (tmp_path / "text" / "dev.src").open("a") as source, (tmp_path / "text" / "dev.trg").open("a") as target:
        source.write("bamo\n")
        target.write("ti\n")
    with pytest.raises(BadInputError, match=r"files have changed since: \S+dev\.src, \S+dev\.trg\)"):
        reproduce_table3(replace(plan, data=find_corpora(tmp_path / "text")), finished[0], silent)


def test_the_same_text_elsewhere_is_the_same(plan, finished, trained, tmp_path):
    shutil.copytree(plan.data.root, tmp_path / "text")
    out = shutil.copytree(finished[0], tmp_path / "out")
    reproduce_table3(replace(plan, data=find_corpora(tmp_path / "text")), out, silent)
    assert trained == []


def test_a_damaged_measurement_is_named(finished, tmp_path, plan):
    out = shutil.copytree(finished[0], tmp_path / "out")
    path = out / "base-seed2" / "measured.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(BadInputError, match=r"base-seed2/measured.json: damaged .*: delete it to measure again"):
        reproduce_table3(plan, out, silent)


def test_without_matplotlib_there_is_a_table_and_a_line(plan, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished[0], tmp_path / "out")
    for name in ("table3.md", "table3.png"):
        (out / name).unlink()
    monkeypatch.setattr(table3_trainings, "import_draw", import_draw)
    monkeypatch.setitem(sys.modules, "transduce.lab.table3_plot", None)
    said = []
    reproduce_table3(plan, out, said.append)
    assert said[0] == "no plot will be drawn: that needs matplotlib, pip install 'transduce[plot]'"
    assert (out / "table3.md").is_file()
    assert not (out / "table3.png").exists()


def test_where_a_disk_has_no_second_names_the_preparation_is_copied(plan, finished, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr("os.link", refuse)
    base, run = RunDirectory(finished[0] / "base-seed1"), RunDirectory(tmp_path / "copy")
    share_preparation(base, run)
    assert run.train_store.read_bytes() == base.train_store.read_bytes()
    assert run.train_store.stat().st_ino != base.train_store.stat().st_ino
    assert load_prepared(run) is not None
