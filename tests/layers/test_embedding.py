import torch

from transduce.config import preset
from transduce.layers import Embedding, sinusoids

CONFIG = preset("tiny", {"dropout": 0})


def test_scaled_sum_of_symbol_and_position():
    embedding = Embedding(CONFIG, 29)
    ids, positions = torch.tensor([[5, 3, 5]]), torch.tensor([[0, 1, 2]])
    expected = embedding.weight[ids] * 128**0.5 + sinusoids(positions, 128, "interleaved")
    torch.testing.assert_close(embedding(ids, positions, 3), expected)


def test_the_projection_uses_the_same_matrix():
    embedding = Embedding(CONFIG, 29)
    hidden = torch.randn(2, 7, 128)
    torch.testing.assert_close(embedding.project(hidden), hidden @ embedding.weight.T)
    assert [name for name, _ in embedding.named_parameters()] == ["weight"]
    assert embedding.weight.shape == (29, 128)


def test_embeddings_start_with_unit_variance():
    embedding = Embedding(preset("tiny", {"positions": "none", "dropout": 0}), 9973)
    x = embedding(torch.arange(9973).unsqueeze(0), torch.zeros(1, 9973, dtype=torch.long), 1)
    assert abs(x.mean().item()) < 0.01
    assert abs(x.std().item() - 1) < 0.01


def test_dropout_falls_on_the_sum():
    embedding = Embedding(preset("tiny", {"dropout": 0.5}), 29).train()
    dropped = embedding(torch.arange(29).unsqueeze(0), torch.arange(29).unsqueeze(0), 29) == 0
    assert 0.45 < dropped.float().mean().item() < 0.55
