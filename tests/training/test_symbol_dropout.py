"""Symbol dropout hides what the model reads in training, and nothing else."""

import numpy as np
import pytest
import torch

from transduce.config import SpecialIds, TrainConfig, preset
from transduce.data import Share, Store, write_store
from transduce.models import build
from transduce.training import Corpora, DevOutputs, Hooks, Progress, Report, Training, make_optimizer
from transduce.training.step import read_step_batches
from transduce.training.validation import dev_losses

SPECIAL = SpecialIds(pad=0, begin=1, end=2, unknown=3)
SHARE = 0.3


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    pairs = [([7] * (row % 11 + 1), [11] * (row % 7 + 1), 0) for row in range(499)]
    write_store(folder / "train", pairs, {})
    write_store(folder / "dev", pairs[:13], {})
    return Corpora(Store(folder / "train"), Store(folder / "dev"), SPECIAL)


def epoch(corpora, share, progress=None, number=0):
    """The batches of an epoch, the first one, from where ``progress`` stands."""
    config, found = TrainConfig(batch_tokens=128, symbol_dropout=share), []
    for step_batches in read_step_batches(corpora, config, progress or Progress(), Share()):
        if step_batches.position["epoch"] > number:
            return found
        if step_batches.position["epoch"] == number:
            found.append((step_batches.batches[0], step_batches.position))
    return found


def test_a_share_of_what_training_reads_is_unknown(corpora):
    whole, dropped = epoch(corpora, 0.0), epoch(corpora, SHARE)
    hidden = read = 0
    for (before, _), (after, _) in zip(whole, dropped, strict=True):
        assert (before.labels == after.labels).all()  # what is to be written stays
        for side in ("source", "target"):
            old, new = getattr(before, side), getattr(after, side)
            assert set(np.unique(old)) <= {0, 1, 2, 7, 11}
            assert ((new == old) | (new == SPECIAL.unknown)).all()
            hidden, read = hidden + int((new != old).sum()), read + int((old != SPECIAL.pad).sum())
    assert hidden / read == pytest.approx(SHARE, abs=5 * (SHARE * (1 - SHARE) / read) ** 0.5)


def test_a_resumed_epoch_hides_the_same(corpora):
    whole = epoch(corpora, SHARE)
    resumed = epoch(corpora, SHARE, Progress(**whole[2][1]))
    assert len(resumed) == len(whole) - 3
    for (one, _), (other, _) in zip(resumed, whole[3:], strict=True):
        assert (one.source == other.source).all()
        assert (one.target == other.target).all()


def test_every_epoch_hides_others(corpora):
    def hidden(number):
        """Of each pair, where its source is unknown."""
        return {
            int(row): tuple((ids == SPECIAL.unknown).tolist()[:length])
            for batch, _ in epoch(corpora, SHARE, number=number)
            for row, ids, length in zip(batch.rows, batch.source, batch.source_lengths, strict=True)
        }

    first, second = hidden(0), hidden(1)
    assert first.keys() == second.keys()
    long = [row for row, places in first.items() if len(places) > 6]
    assert sum(first[row] != second[row] for row in long) > len(long) / 2


def test_dev_is_read_whole(corpora, tmp_path):
    torch.manual_seed(3)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 14, "d_ff": 22, "heads": 2, "vocab_size": 13}
    model = build(preset("base", sizes))
    losses = set()
    for share in (0.0, SHARE):
        config = TrainConfig(batch_tokens=128, symbol_dropout=share, precision="float32")
        with Report(tmp_path / "metrics.jsonl", max_steps=1, step=0) as report:
            hooks = Hooks(lambda _: DevOutputs({}), lambda _: None)
            training = Training(model, make_optimizer(model, config), corpora, config, tmp_path, report, hooks)
            losses.add(dev_losses(training, model).mean())
    assert len(losses) == 1
