"""With dropout on, too, the gradients of a step are the same for any number of processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from transduce.config import Parallel, SpecialIds, TrainConfig, preset
from transduce.data import Store, make_batch, write_store
from transduce.models import build
from transduce.training import connect, join_processes, make_optimizer, place_model, step_seed, step_work, train_step
from transduce.training.parallel import gather
from transduce.training.work import join_work

pytest_plugins = ["together"]

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
VOCABULARY = 23
BETA1 = 0.5
LENGTHS = [(5, 2), (3, 1), (11, 7), (17, 19), (13, 11), (2, 5), (7, 13)]
# The batches of each process: of two, one has four times as many target tokens as the other; of four, one has none.
DIVIDED: dict[int, list[list[list[int]]]] = {
    1: [[[0, 1, 2, 3, 4, 5, 6]]],
    2: [[[0, 1], [2]], [[3], [4, 5, 6]]],
    4: [[[0, 1], [5]], [[2], [4]], [[3], [6]], [[], []]],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("store") / "ragged", np.random.default_rng(7)
    pairs = [tuple(random.integers(4, VOCABULARY, length).tolist() for length in pair) for pair in LENGTHS]
    write_store(path, [(*pair, 0) for pair in pairs], {})
    return path


def _gradients(path: Path, out: Path, parallel: Parallel, step: int) -> None:
    """Take a step, and write down the gradients that Adam saw: its first moment is (1 - beta1) times them."""
    with join_processes(1) as processes:
        torch.manual_seed(5)
        changes = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 3}
        dropouts = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
        model = build(preset("base", changes | dropouts | {"vocab_size": VOCABULARY}))
        place_model(model, processes, parallel)
        network, optimizer = connect(model, processes, parallel), make_optimizer(model, TrainConfig(adam_beta1=BETA1))
        rows = DIVIDED[processes.number][processes.rank]
        batches = [make_batch(Store(path), np.array(part, np.int64), SPECIAL) for part in rows]
        tokens = join_work(step_work(batches), processes).target
        # Whatever else has drawn from it in a process, and how often, must not matter.
        torch.manual_seed(processes.rank)
        train_step(network, optimizer, batches, 1e-3, torch.float32, step_seed(1, step), tokens=tokens)
        moments = {name: optimizer.state[weight]["exp_avg"] for name, weight in model.named_parameters()}
        gradients = gather(moments, processes)
        if processes.first:
            save_file({name: tensor / (1 - BETA1) for name, tensor in gradients.items()}, out)


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory):
    """The gradients of one process that has all pairs in one batch, at two steps."""
    folder = tmp_path_factory.mktemp("alone")
    for step in (3, 4):
        _gradients(store, folder / str(step), "data", step)
    return [load_file(folder / str(step)) for step in (3, 4)]


@pytest.mark.parametrize(
    ("number", "parallel"), [pytest.param(2, "data", marks=pytest.mark.slow), (4, "data"), (2, "sharded")]
)
def test_what_dropout_leaves_out_is_the_same_for_any_number_of_processes(
    store, alone, tmp_path, run_together, number, parallel
):
    run_together(number, tmp_path, _gradients, store, tmp_path / "gradients", parallel, 3)
    found, (expected, other) = load_file(tmp_path / "gradients"), alone
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)
    assert any((other[name] - gradient).abs().max() > 0.01 for name, gradient in expected.items())
