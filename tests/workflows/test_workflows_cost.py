import itertools
import json
import re

import pytest
import torch

from transduce.config import BadInputError, read_run
from transduce.data import Store, plan_epoch
from transduce.training import Work, pair_work
from transduce.workflows import cost
from transduce.workflows.cost import cost_of_time, cost_of_tokens, measure_rate, sustained_cost
from transduce.workflows.flops import count_training
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

SHORT = ["train.max_steps=4", "train.validate_every=4", "train.checkpoint_every=2"]


@pytest.mark.parametrize(("hours", "printed"), [(12, "3.3e+18"), (3.5 * 24, "2.3e+19")], ids=["base", "big"])
def test_table_2_of_the_paper(hours, printed):
    """Section 5.2 and Table 2: eight P100s, 12 hours and 3.5 days."""
    assert f"{cost_of_time(hours, 8, 'P100')['flops_by_time']:.1e}" == printed
    assert f"{sustained_cost(3600 * hours, 8, 9.5e12):.1e}" == printed


def test_a_rate_of_ones_own():
    """An hour of one device at 2 TFLOPS."""
    assert cost_of_time(1.0, tflops=2.0) == {"hours": 1.0, "devices": 1, "tflops_each": 2.0, "flops_by_time": 7.2e15}


def test_nothing_given_is_nothing():
    assert cost_of_time(None) == {}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((3.0,), "one of --device K80|K40|M40|P100 and --rate"),
        ((3.0, 8), "one of --device"),
        ((3.0, 8, "P100", 2.0), "one of --device"),
        ((None, 8), "give --hours"),
        ((None, None, "P100"), "give --hours"),
        ((None, None, None, 2.0), "give --hours"),
        ((0.0, 8, "P100"), "--hours 0.0"),
        ((float("inf"), 8, "P100"), "--hours inf"),
        ((3.0, 8, None, float("nan")), "--rate nan"),
        ((3.0, 8, None, 0.0), "--rate 0.0"),
    ],
)
def test_what_does_not_go_together_is_named(given, named):
    with pytest.raises(BadInputError, match=re.escape(named)):
        cost_of_time(*given)


def test_tokens_cost_what_their_pairs_do():
    """Seven pairs of three target tokens."""
    flops = {"target_tokens": 3, "forward_and_backward": 11}
    assert cost_of_tokens(flops, 21) == {"target_tokens": 21, "flops_counted": 77}


def test_a_rate_is_products_by_time(monkeypatch):
    """A clock on which every product takes 0.08 s: three until 0.2 s are over, of 512 x 512 matrices."""
    monkeypatch.setattr("time.perf_counter", itertools.count(0, 0.08).__next__)
    measure_rate.cache_clear()
    rate = measure_rate(torch.float32, torch.device("cpu"))
    measure_rate.cache_clear()
    assert rate == pytest.approx(3 * 2 * 512**3 / 0.24)


def _expected(run, config, steps):
    """What the steps of the first epoch took: the plan, pair by pair."""
    store = Store(run.train_store)
    plan = list(plan_epoch(store, config.train.batch_tokens, config.train.seed, 0))
    assert len(plan) > max(steps)
    work = Work(steps=len(steps))
    for step in steps:
        for pair in plan[step]:
            work += pair_work(*(len(side) + 1 for side in store.pair(pair)))
    return work


def test_a_training_ends_with_its_cost(tiny_run_file, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(cost, "measure_rate", lambda *_: 2.5e12)
    caplog.set_level("DEBUG", "transduce")
    config, run = read_run(tiny_run_file, SHORT), RunDirectory(tmp_path)
    progress = train_run(config, run, resume=False)
    work = _expected(run, config, range(4))
    assert progress.work == work
    assert progress.target_tokens == work.target
    model = config.model.model_copy(update={"vocab_size": _vocabulary(tmp_path)})
    counted, by_time = [record.getMessage() for record in caplog.records][-2:]
    assert counted == (
        f"training cost, counted: {count_training(model, work):.3g} FLOPs, forward and backward, "
        f"for {work.source} source and {work.target} target tokens, padding left out"
    )
    seconds = progress.seconds
    assert by_time == (
        f"training cost, by the paper's method: {seconds * 2.5e12:.3g} FLOPs, "
        f"{seconds:.1f} s x 1 device x 2.5 TFLOPS measured here in float32"
    )


def test_restricted_attention_is_counted_about(tiny_run_file, tmp_path, caplog):
    caplog.set_level("DEBUG", "transduce")
    train_run(read_run(tiny_run_file, [*SHORT, "model.attention_window=4"]), RunDirectory(tmp_path), resume=False)
    assert "training cost, counted: about " in caplog.text


def _vocabulary(root):
    return len(json.loads((root / "tokenizer.json").read_text())["model"]["vocab"])


def test_the_cost_of_a_resumed_training_is_of_all_of_it(tiny_run_file, tmp_path, caplog):
    caplog.set_level("DEBUG", "transduce")
    whole = train_run(read_run(tiny_run_file, SHORT), RunDirectory(tmp_path / "whole"), resume=False)
    halves = RunDirectory(tmp_path / "halves")
    train_run(read_run(tiny_run_file, [*SHORT, "train.max_steps=2"]), halves, resume=False)
    assert train_run(read_run(tiny_run_file, SHORT), halves, resume=True).work == whole.work
    counted = [message for message in caplog.messages if message.startswith("training cost, counted")]
    assert counted[2] == counted[0] != counted[1]


def test_what_an_older_version_trained_is_left_out_and_said_to_be(tiny_run_file, tmp_path, caplog):
    caplog.set_level("DEBUG", "transduce")
    config, run = read_run(tiny_run_file, SHORT), RunDirectory(tmp_path)
    train_run(read_run(tiny_run_file, [*SHORT, "train.max_steps=2"]), run, resume=False)
    state = run.checkpoints / "step-2" / "state.json"
    state.write_text(json.dumps({key: value for key, value in json.loads(state.read_text()).items() if key != "work"}))
    state.with_name("manifest.json").unlink()
    assert train_run(config, run, resume=True).work == _expected(run, config, range(2, 4))
    assert "training cost, counted since step 2: " in caplog.text
