"""How far a symbol is felt in restricted self-attention (section 4): r / 2 to each side with every layer."""

import pytest
import torch

from transduce.config import preset
from transduce.models import Tokens, build

LENGTH, CHANGED = 67, 31  # beyond three blocks of 16
SOURCE = torch.randint(4, 31, (1, LENGTH), generator=torch.Generator().manual_seed(3))


def reached(attention_window, layers, side):
    """The positions, from the changed one, whose hidden states are others than before."""
    torch.manual_seed(3)
    sizes = {
        "d_model": 28,
        "d_ff": 44,
        "heads": 4,
        "vocab_size": 31,
        "encoder_layers": layers,
        "decoder_layers": layers,
    }
    model = build(preset("base", {**sizes, "attention_window": attention_window})).eval()
    changed = SOURCE.clone()
    changed[0, CHANGED] = (changed[0, CHANGED] - 3) % 27 + 4
    states = []
    for ids in (SOURCE, changed):
        tokens, unchanged = Tokens(ids, torch.tensor([LENGTH])), Tokens(SOURCE, torch.tensor([LENGTH]))
        memory = model.encode(tokens if side == "source" else unchanged)
        states.append(memory.hidden if side == "source" else model.decode(memory, tokens).hidden)
    moved = (states[0] - states[1]).abs().amax(-1) > 1e-6
    return [position - CHANGED for position in moved.nonzero().flatten().tolist()]


@torch.no_grad()
@pytest.mark.parametrize(("attention_window", "each_side"), [(1, 0), (4, 2), (5, 2)])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_symbol_is_felt_half_a_window_farther_with_each_layer(attention_window, each_side, layers):
    """An even window has no centre: r / 2 to each side are r + 1 positions with the own one."""
    far = layers * each_side
    assert reached(attention_window, layers, "source") == list(range(-far, far + 1))
    assert reached(attention_window, layers, "target") == list(range(far + 1))
