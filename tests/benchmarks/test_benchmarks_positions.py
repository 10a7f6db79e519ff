import pytest
import torch

from benchmarks.position_probe import read_positions
from benchmarks.sequences import BEGIN, END, Regime, Task, held_out_loss, train
from benchmarks.surviving_positions import VARIANTS, read_layers
from transduce.config import TransformerConfig
from transduce.models import build

SMALL = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 48, "d_ff": 96, "heads": 3, "vocab_size": 53}


def test_positions_are_read_where_they_are_written():
    torch.manual_seed(1)
    words = torch.randn(2, 101, 7, 13)
    marks = 5 * torch.eye(7, 13)
    marked = read_positions(*(words + marks))
    assert marked.named > 0.9
    torch.testing.assert_close(marked.similarity.diag(), torch.ones(7).double(), atol=0.05, rtol=0)
    unmarked = read_positions(*words)
    assert unmarked.named == pytest.approx(1 / 7, abs=0.05)
    assert abs(float(unmarked.similarity.diag().mean())) < 0.3


def test_residuals_carry_positions_and_so_do_positions_at_every_layer():
    def named(variant):
        torch.manual_seed(2)
        model = build(TransformerConfig.model_validate({**SMALL, **VARIANTS[variant]}))
        return [layer.named for layer in read_layers(model, 11, range(53))]

    kept, lost = named("with residuals"), named("without residuals")
    again, both = (named(f"{start} residuals, positions at every layer") for start in ("without", "with"))
    assert kept[0] == lost[0] == again[0]
    assert lost[2] == pytest.approx(1 / 11, abs=0.03)
    assert lost[2] + 0.05 < again[2] < kept[2] < both[2]


def test_a_task_by_hand():
    batch = Task("reverse", length=5, symbols=7).batch(rows=3, seed=4)
    assert batch.source.shape == batch.target.shape == batch.labels.shape == (3, 6)
    assert (batch.source[:, -1] == END).all() and (batch.target[:, 0] == BEGIN).all()
    assert (batch.labels[:, :-1] == batch.source[:, -2::-1]).all() and (batch.labels[:, -1] == END).all()
    assert (batch.target[:, 1:] == batch.labels[:, :-1]).all()
    assert batch.source[:, :-1].min() >= 3 and batch.source[:, :-1].max() < 10
    copied = Task("copy", length=5, symbols=7).batch(rows=3, seed=4)
    assert (copied.labels == copied.source).all() and (copied.source == batch.source).all()


def test_a_short_training_learns_and_can_be_repeated():
    task = Task("copy", length=3, symbols=5)
    changes = {"vocab_size": task.vocab_size, "dropout": 0.0, "label_smoothing": 0.0}
    config = TransformerConfig.model_validate({**SMALL, **changes})
    regime = Regime(steps=20, rows=7, warmup_steps=5, factor=0.3)
    model, curve = train(config, task, regime, seed=1)
    assert len(curve) == 20 and held_out_loss(model, task, 17) < 0.8 * curve[0]
    assert train(config, task, regime, seed=1)[1] == curve
