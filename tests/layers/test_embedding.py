import torch

from transduce.layers import Embedding


def test_symbols_are_scaled_rows():
    embedding = Embedding(29, 128)
    ids = torch.tensor([[5, 3, 5]])
    torch.testing.assert_close(embedding(ids), embedding.weight[ids] * 128**0.5)


def test_the_projection_uses_the_same_matrix():
    embedding = Embedding(29, 128)
    hidden = torch.randn(2, 7, 128)
    torch.testing.assert_close(embedding.project(hidden), hidden @ embedding.weight.T)
    assert [name for name, _ in embedding.named_parameters()] == ["weight"]
    assert embedding.weight.shape == (29, 128)


def test_embeddings_start_with_unit_variance():
    x = Embedding(9973, 128)(torch.arange(9973).unsqueeze(0))
    assert abs(x.mean().item()) < 0.01
    assert abs(x.std().item() - 1) < 0.01
