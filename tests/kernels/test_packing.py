import torch

from transduce.kernels import Packing

CPU = torch.device("cpu")


def test_rows_stand_end_to_end():
    packing = Packing.of(torch.tensor([3, 1, 2]), 4, CPU)
    padded = torch.tensor([[5, 7, 11, 0], [13, 0, 0, 0], [17, 19, 0, 0]])
    assert packing.pack(padded).tolist() == [5, 7, 11, 13, 17, 19]
    assert packing.pad(packing.pack(padded)).equal(padded)
    assert packing.columns.tolist() == [0, 1, 2, 0, 0, 1]
    assert packing.real.equal(padded > 0)
    assert packing.offsets.tolist() == [0, 3, 4, 6]
    assert packing.tokens == 6


def test_a_row_may_be_empty():
    packing = Packing.of(torch.tensor([0, 2, 0]), 2, CPU)
    assert packing.offsets.tolist() == [0, 0, 2, 2]
    assert packing.pad(torch.tensor([[5.0], [7.0]])).squeeze(2).tolist() == [[0, 0], [5, 7], [0, 0]]


def test_gradients_pass_both_ways():
    packing = Packing.of(torch.tensor([2, 3]), 3, CPU)
    padded = torch.randn(2, 3, 4, requires_grad=True)
    (packing.pad(packing.pack(padded)) * 3).sum().backward()
    assert padded.grad is not None
    assert padded.grad.equal(3.0 * packing.real.unsqueeze(2).expand_as(padded))
