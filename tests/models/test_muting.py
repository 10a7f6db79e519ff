"""Models without some of their attention heads."""

import pytest
import torch

from tests.tiny_search import tiny
from transduce.config import BadInputError
from transduce.config.attention import AttentionHead
from transduce.models import Tokens, heads_of, mute

SOURCE = Tokens(torch.tensor([[4, 5, 6, 2]]), torch.tensor([4]))
TARGET = Tokens(torch.tensor([[1, 4, 5]]), torch.tensor([3]))


def hidden(model):
    with torch.no_grad():
        return model.decode(model.encode(SOURCE), TARGET).hidden


def test_every_head_of_each_kind():
    model = tiny(0)
    config = model.config
    heads = heads_of(model)
    assert len(heads) == config.heads * (config.encoder_layers + 2 * config.decoder_layers)
    assert len({*heads}) == len(heads)
    assert str(AttentionHead("cross", 0, 1)) == "cross layer 1, head 2"


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_a_muted_head_adds_nothing(kind):
    """As if its values were 0, and the others as they were."""
    head = AttentionHead(kind, 0, 1)
    muted, by_hand, whole = tiny(0), tiny(0), tiny(0)
    mute(muted, [head])
    layer = (by_hand.encoder if kind == "encoder" else by_hand.decoder)[0]
    attention = layer.cross_attention if kind == "cross" else layer.self_attention
    width = attention.heads.d_v
    with torch.no_grad():
        attention.value.weight[width : 2 * width] = 0
    torch.testing.assert_close(hidden(muted), hidden(by_hand))
    assert not torch.allclose(hidden(muted), hidden(whole))


@pytest.mark.parametrize("head", [("cross", 9, 0), ("encoder", 0, 99), ("decoder", 0, -1), ("middle", 0, 0)])
def test_a_head_that_is_not_there(head):
    with pytest.raises(BadInputError, match=r"layer \d+, head -?\d+: the model has no such attention head"):
        mute(tiny(0), [AttentionHead(*head)])
