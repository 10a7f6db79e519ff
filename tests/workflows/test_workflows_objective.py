"""Training by the score as a user has it: run file, finished model, log, metrics, page."""

import json
import shutil

import pytest

from transduce.cli.main import _run
from transduce.config import BadInputError, read_run
from transduce.training import read_progress
from transduce.workflows import verify_resume as module
from transduce.workflows.doctor import _speed
from transduce.workflows.initialize import read_training
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run
from transduce.workflows.trial import Trial

pytest_plugins = ["tiny_run"]

ON = ["train.max_steps=4", "train.validate_every=2", "train.checkpoint_every=2", "train.log_every=1"]
STEPS = [*ON, "train.learning_rate_factor=1.0", "train.learning_rate=1e-4", "train.warmup_steps=1"]
SCORE = ['train.objective="minimum_risk"', "train.samples=3", "model.label_smoothing=0.0"]


def options(*settings):
    return [f"--set={setting}" for setting in settings]


@pytest.fixture
def run_file(tiny_run_file):
    return tiny_run_file


@pytest.fixture
def settings(trained_run):
    """The same vocabulary as the finished model's."""
    return [*STEPS, *SCORE, "tokenizer.kind=existing", f'tokenizer.path="{trained_run}"']


def test_a_finished_model_learns_from_what_it_writes(trained_run, run_file, settings, tmp_path, capsys):
    root = tmp_path / "on"
    assert (
        _run(["train", "-v", str(run_file), "--out", str(root), "--init", str(trained_run), *options(*settings)]) == 0
    )
    said = capsys.readouterr().err
    lines = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["split"] == "train"]
    assert [line["step"] for line in trained] == [1, 2, 3, 4]
    for line in trained:
        assert 0 < line["reward"] < 1
        assert 0 < line["risk"] < 1
        assert (
            f"step {line['step']}  reward {line['reward']:.4f}  risk {line['risk']:.4f}  loss {line['loss']:.3f}"
            in said
        )
    # What it began with is measured first, and dev by what it always is.
    assert [(line["step"], set(line) >= {"bleu", "loss"}) for line in lines if line["split"] == "dev"] == [
        (0, True),
        (2, True),
        (4, True),
    ]
    assert not any({"reward", "risk"} & set(line) for line in lines if line["split"] == "dev")
    assert "and what it took to draw and to score the outputs that were learned from" in said
    assert _run(["report", str(root)]) == 0
    page = (root / "report.html").read_text()
    assert "sentence GLEU of drawn outputs" in page
    assert "Expected risk" in page


def test_it_takes_a_finished_model(run_file, settings, trained_run, tmp_path):
    with pytest.raises(BadInputError, match=r'"minimum_risk" is for a model that knows .* \(--init MODEL\)'):
        train_run(read_run(run_file, settings), RunDirectory(tmp_path / "new"), resume=False)
    assert not (tmp_path / "new" / "store").exists()  # before anything is prepared
    # A training that is under way may go on by the score: its weights know something.
    shutil.copytree(trained_run, tmp_path / "run")
    go_on = [*SCORE, "train.max_steps=402", "train.validate_every=402"]
    progress = train_run(read_run(run_file, go_on), RunDirectory(tmp_path / "run"), resume=True)
    assert progress.step == 402
    last = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()][-1]
    assert (last["split"], last["step"]) == ("dev", 402)
    before = read_progress(trained_run / "checkpoints/step-400").work.target
    assert progress.work.target > before + 2 * 3 * 50


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (['train.objective="minimum_risk"'], "label smoothing .*: set model.label_smoothing = 0.0"),
        ([*SCORE, "tokenizer.bpe_dropout=0.1"], "set tokenizer.bpe_dropout = 0.0"),
        ([*SCORE, 'train.parallel="sharded"'], 'set parallel = "data"'),
        ([*SCORE, "train.symbol_dropout=0.1"], "symbol_dropout = 0.1 is for objective = 'likelihood'"),
        ([*SCORE, "train.likelihood_weight=0.1"], "likelihood_weight = 0.1 is for objective = 'reinforce'"),
        (["train.samples=3"], "samples = 3 is for objective = 'minimum_risk' or 'reinforce'"),
        ([*SCORE, "train.samples=1"], "must be at least 2"),
    ],
)
def test_what_does_not_go_with_it_is_named(run_file, changes, message):
    with pytest.raises(BadInputError, match=message):
        read_run(run_file, changes)


def test_it_is_resumed_bit_for_bit(trained_run, run_file, settings, tmp_path, capsys, monkeypatch):
    def train_here(config, run, stop_after, init):
        module.train_run(config, run, resume=True, stop_after=stop_after, init=init)

    monkeypatch.setattr(module, "_train_elsewhere", train_here)
    given = ["--out", str(tmp_path / "run"), "--init", str(trained_run), "--steps", "2"]
    assert _run(["verify-resume", str(run_file), *given, *options(*settings)]) == 0, capsys.readouterr().err
    assert "4 steps in one process and 2 + 2 in two end bit for bit alike" in capsys.readouterr().out


def test_doctor_says_that_steps_take_longer(run_file, settings):
    said = [str(each) for each in _speed(read_run(run_file, settings), Trial({1: 100.0}, 0))]
    assert any("a step writes train.samples = 3 outputs of each pair as well" in each for each in said)
    assert len(said) == 1 + len([*_speed(read_run(run_file), Trial({1: 100.0}, 0))])


def test_a_run_file_of_a_models_settings_needs_only_smoothing(trained_run, run_file, tmp_path):
    text = run_file.read_text()
    bare = "[data]" + text.partition("[data]")[2].partition("[tokenizer]")[0]
    path = tmp_path / "by-score.toml"
    path.write_text(
        bare.replace('"train.', f'"{run_file.parent}/train.').replace('"dev.', f'"{run_file.parent}/dev.')
        + '[train]\nobjective = "reinforce"\n[model]\nlabel_smoothing = 0.0\n'
    )
    config = read_training(path, [], RunDirectory(tmp_path / "run"), resume=False, init=trained_run)
    assert (config.model.label_smoothing, config.model.norm) == (0, "pre")
