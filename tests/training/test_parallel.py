"""The gradients of a step are the same for any number of processes, and so is what a training leaves behind."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.bag_of_words import BagConfig, BagOfWords, install
from transduce.config import Parallel, RecurrentConfig, SpecialIds, TrainConfig, TransformerConfig
from transduce.data import Batch, Store, make_batch, write_store
from transduce.models import Tokens, TrainableModel, Transformer, stacks
from transduce.models.recurrent import RecurrentModel
from transduce.training import (
    Corpora,
    DevOutputs,
    Hooks,
    Progress,
    Report,
    Training,
    connect,
    join_processes,
    list_checkpoints,
    load_checkpoint,
    make_optimizer,
    place_model,
    step_work,
    train,
    train_step,
)
from transduce.training.parallel import gather
from transduce.training.work import join_work

pytest_plugins = ["together"]

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
VOCABULARY = 23
BETA1 = 0.5
# Source and target lengths; with their end symbols, the targets have 3, 2, 8, 20, 12, 6 and 14 tokens: 65 in all.
LENGTHS = [(5, 2), (3, 1), (11, 7), (17, 19), (13, 11), (2, 5), (7, 13)]
# The batches of each process. Of two, the second has 52 target tokens and the first 13; of four, the last has
# nothing to learn from.
DIVIDED: dict[int, list[list[list[int]]]] = {
    1: [[[0, 1, 2, 3], [4, 5, 6]]],
    2: [[[0, 1], [2]], [[3], [4, 5, 6]]],
    4: [[[0, 1], [5]], [[2], [4]], [[3], [6]], [[], []]],
}


def _model(dropout: float = 0.0) -> Transformer:
    torch.manual_seed(5)
    changes = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 12, "d_ff": 20, "heads": 3, "dropout": dropout}
    return Transformer(TransformerConfig.model_validate(changes | {"label_smoothing": 0.1, "vocab_size": VOCABULARY}))


def _bag() -> BagOfWords:
    install(pytest.MonkeyPatch())  # in a process of its own, which ends with it
    torch.manual_seed(5)
    return BagOfWords(BagConfig(size=12, penalty=0.1, vocab_size=VOCABULARY))


def _mixture() -> Transformer:
    """With more experts than a step has symbols for; balanced pair by pair, whichever process has them."""
    torch.manual_seed(5)
    experts = {"feed_forward": "mixture_of_experts", "experts": 29, "expert_balance": "pair", "dropout": 0.2}
    changes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 12, "d_ff": 5, "heads": 3}
    return Transformer(TransformerConfig.model_validate(changes | experts | {"vocab_size": VOCABULARY}))


def _recurrent_mixture() -> RecurrentModel:
    """The same between recurrent layers."""
    torch.manual_seed(5)
    experts = {"feed_forward": "mixture_of_experts", "experts": 7, "expert_balance": "pair", "d_ff": 5}
    layers = {"attention": "gnmt", "attention_size": 3, "encoder_layers": 2, "decoder_layers": 2}
    sizes = {"embedding_size": 6, "hidden_size": 7, "vocab_size": VOCABULARY}
    return RecurrentModel(RecurrentConfig.model_validate(experts | layers | sizes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("store"), np.random.default_rng(7)
    pairs = [tuple(random.integers(4, VOCABULARY, length).tolist() for length in pair) for pair in LENGTHS]
    write_store(folder / "ragged", [(*pair, 0) for pair in pairs], {})
    lengths = random.integers(1, 12, (101, 2))
    pairs = [tuple(random.integers(4, VOCABULARY, length).tolist() for length in pair) for pair in lengths]
    write_store(folder / "train", [(*pair, 0) for pair in pairs], {})
    write_store(folder / "dev", [(*pair, 0) for pair in pairs[:11]], {})
    return folder


def _gradients(folder: Path, out: Path, parallel: Parallel, dtype: torch.dtype = torch.float32) -> None:
    """Take one step, and write down the gradients that Adam saw: its first moment is (1 - beta1) times them."""
    with join_processes(1) as processes:
        model, store = _model(), Store(folder / "ragged")
        if not processes.first:
            nn.init.zeros_(model.embedding.weight)  # the first one's weights count
        place_model(model, processes, parallel)
        network = connect(model, processes, parallel)
        batches = [
            make_batch(store, np.array(rows, np.int64), SPECIAL) for rows in DIVIDED[processes.number][processes.rank]
        ]
        optimizer = make_optimizer(model, TrainConfig(adam_beta1=BETA1))
        work = join_work(step_work(batches), processes)
        train_step(network, optimizer, batches, 1e-3, dtype, tokens=work.target)
        moments = {name: optimizer.state[weight]["exp_avg"] for name, weight in model.named_parameters()}
        gradients = gather(moments, processes)
        if processes.first:
            assert work.target == 65
            save_file({name: tensor / (1 - BETA1) for name, tensor in gradients.items()}, out)


def _gradients_at_once(folder: Path, out: Path, parallel: Parallel) -> None:
    """The same in bfloat16, each layer as one operation, even where PyTorch's products are faster."""
    original, done = stacks._at_once, []

    def run(*arguments: Any) -> object:
        behind = original(*arguments)
        done.append(behind is not None)
        return behind

    maps = sys.modules["transduce.kernels.linear_maps"]
    with patch.object(maps, "_unit", lambda: "vectors"), patch.object(stacks, "_at_once", run):
        _gradients(folder, out, parallel, torch.bfloat16)
    assert sum(done) >= 3  # all of a step's; what DistributedDataParallel is shown before is in float32


def _alone(folder: Path) -> dict[str, torch.Tensor]:
    """The mean gradient over the target tokens, of every pair by itself in float64, through torch's own loss."""
    model, store = _model().double(), Store(folder / "ragged")
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(LENGTHS)):
        pair = make_batch(store, np.array([row]), SPECIAL)
        source = Tokens(torch.from_numpy(pair.source), torch.from_numpy(pair.source_lengths))
        target = Tokens(torch.from_numpy(pair.target), torch.from_numpy(pair.target_lengths))
        logits = model.project(model.decode(model.encode(source), target).hidden)
        labels = torch.from_numpy(pair.labels)[0]
        total = total + nn.functional.cross_entropy(logits, labels, reduction="sum", label_smoothing=0.1)
    (total / 65).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize(
    ("number", "parallel"),
    [
        (1, "data"),
        (2, "data"),
        pytest.param(4, "data", marks=pytest.mark.slow),  # test_parallel_dropout.py has four, one of them with nothing
        pytest.param(2, "sharded", marks=pytest.mark.slow),
        (4, "sharded"),
    ],
)
def test_gradients_are_the_same_for_any_number_of_processes(folder, tmp_path, run_together, number, parallel):
    run_together(number, tmp_path, _gradients, folder, tmp_path / "gradients", parallel)
    found, expected = load_file(tmp_path / "gradients"), _alone(folder)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name].double(), gradient, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(("number", "parallel"), [(1, "data"), (2, "data"), (2, "sharded")])
def test_gradients_of_layers_at_once_are_the_same_for_any_number_of_processes(
    folder, tmp_path, run_together, number, parallel
):
    run_together(number, tmp_path, _gradients_at_once, folder, tmp_path / "gradients", parallel)
    found, expected = load_file(tmp_path / "gradients"), _alone(folder)
    off = {name: float((found[name] - each).norm() / each.norm()) for name, each in expected.items()}
    assert max(off.values()) < 0.06, off


def _weigh(model: TrainableModel) -> DevOutputs:
    return DevOutputs({"bleu": next(model.parameters()).detach().abs().sum().item()})


def _train(
    folder: Path, out: Path, steps: int, changes: dict[str, Any], make: Callable[[], TrainableModel] = _model
) -> None:
    """Train in ``out`` from where it stands, as new processes would."""
    config = TrainConfig(
        batch_tokens=64, max_steps=steps, precision="float32", warmup_steps=10, log_every=2, validate_every=3,
        checkpoint_every=3, hang_minutes=1, **changes,
    )  # fmt: skip
    out.mkdir(exist_ok=True)
    with join_processes(1) as processes:
        model = make()
        place_model(model, processes, config.parallel)
        optimizer = make_optimizer(model, config)
        checkpoints = list_checkpoints(out / "checkpoints")
        progress = load_checkpoint(checkpoints[-1][1], model, optimizer) if checkpoints else Progress()
        corpora = Corpora(Store(folder / "train"), Store(folder / "dev"), SPECIAL)
        metrics = out / "metrics.jsonl" if processes.first else None
        hooks = Hooks(_weigh, lambda _: None)
        with Report(metrics, max_steps=steps, step=progress.step) as report:
            training = Training(
                model, optimizer, corpora, config, out / "checkpoints", report, hooks, processes=processes
            )
            train(training, progress)


def _assert_alike(one: Path, other: Path, step: int) -> None:
    for name in ("model", "optimizer"):
        first, second = (load_file(out / f"checkpoints/step-{step}/{name}.safetensors") for out in (one, other))
        assert first.keys() == second.keys()
        for key, tensor in first.items():
            torch.testing.assert_close(tensor, second[key], rtol=1e-4, atol=2e-6)


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """Six steps in one process, by the number of batches of each."""
    outs = {}
    for accumulate in (1, 2):
        outs[accumulate] = tmp_path_factory.mktemp("whole")
        _train(folder, outs[accumulate], 6, {"accumulate": accumulate})
    return outs


@pytest.mark.parametrize(
    ("numbers", "accumulate", "parallels"),
    [
        ((2, 1), 1, ("data", "data")),
        pytest.param((1, 2), 2, ("data", "sharded"), marks=pytest.mark.slow),
        ((2, 4), 2, ("sharded", "data")),
    ],
)
def test_a_training_goes_on_with_another_number_of_processes(
    folder, tmp_path, run_together, whole, numbers, accumulate, parallels
):
    out = tmp_path / "run"
    for number, steps, parallel in zip(numbers, (3, 6), parallels, strict=True):
        changes = {"accumulate": accumulate, "parallel": parallel}
        run_together(number, tmp_path / f"{steps}", _train, folder, out, steps, changes)
    _assert_alike(out, whole[accumulate], 6)
    state = [
        Progress.model_validate_json((at / "checkpoints/step-6/state.json").read_bytes())
        for at in (out, whole[accumulate])
    ]
    assert state[0].work == state[1].work
    assert (state[0].epoch, state[0].batch, state[0].best_step) == (state[1].epoch, state[1].batch, state[1].best_step)
    assert state[0].target_tokens == state[1].target_tokens


def test_going_on_with_as_many_processes_is_exact(folder, tmp_path, run_together):
    """Of three: two numbers have the same sum in any order, and could not show that the order has changed."""
    for out, steps in (("whole", 4), ("halves", 2), ("halves", 4)):
        run_together(3, tmp_path / f"{out}-{steps}", _train, folder, tmp_path / out, steps, {})
    for name in ("model", "optimizer"):
        one, other = (tmp_path / out / f"checkpoints/step-4/{name}.safetensors" for out in ("whole", "halves"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("make", "parallel"),
    [
        (_bag, "sharded"),
        (_mixture, "data"),
        (_recurrent_mixture, "sharded"),
        # Every one of these models and ways is above already.
        *(pytest.param(*both, marks=pytest.mark.slow) for both in ((_bag, "data"), (_mixture, "sharded"))),
    ],
)
def test_a_loss_of_the_models_own_is_that_of_all_processes(folder, tmp_path, run_together, make, parallel):
    found, busiest = [], []
    for number in (1, 2):
        out = tmp_path / f"{number}"
        run_together(number, tmp_path / f"{number} together", _train, folder, out, 4, {"parallel": parallel}, make)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        found.append([(line["split"], line["auxiliary_loss"]) for line in lines])
        busiest.append([line.get("busiest_expert") for line in lines])
    assert len(found[0]) == 5
    assert busiest[0] == busiest[1]
    if make is not _bag:  # of an encoder's and a decoder's layer
        assert all(len(layers) == 2 and min(layers) > 1 for layers in busiest[0])
    assert found[1] == [(split, pytest.approx(loss, rel=1e-5)) for split, loss in found[0]]
    assert found[0][0][1] > 0
    _assert_alike(tmp_path / "1", tmp_path / "2", 4)


def test_a_stand_in_counts_for_nothing(folder):
    stand_in: Batch = make_batch(Store(folder / "ragged"), np.zeros(0, np.int64), SPECIAL)
    assert (stand_in.weights.tolist(), stand_in.target_tokens, len(stand_in.labels)) == ([0], 0, 1)
    assert step_work([stand_in]).terms == (0,) * 6
