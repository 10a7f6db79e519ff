"""What several attentions read of one memory, by one product, beside a product for each."""

import pytest
import torch

from transduce.kernels.linear_maps import Maps, linear_maps
from transduce.kernels.projected_memory import project_memory

WIDTHS = (6, 4), (3, 5), (8, 2)  # of the maps of three attentions


@pytest.fixture
def maps():
    torch.manual_seed(1)
    return [
        Maps(
            [torch.randn(width, 7, requires_grad=True) for width in widths],
            [torch.randn(width, requires_grad=True) for width in widths],
        )
        for widths in WIDTHS
    ]


@pytest.fixture(autouse=True)
def pretend_triton(monkeypatch):
    """The products that a CUDA device has, on the processor."""
    monkeypatch.setattr("transduce.kernels.gpu.has_triton", lambda *_: True)


def project(memory, maps):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return project_memory(memory, maps)


@pytest.mark.parametrize("in_place", [True, False])
def test_the_same_as_a_product_for_each(maps, in_place):
    memory = torch.randn(5, 7).bfloat16().float().requires_grad_()
    given = [torch.randn(5, sum(widths)).bfloat16() for widths in WIDTHS]
    leaves = [memory, *(each for one in maps for each in (*one.weights, *one.biases))]
    right = [linear_maps(memory, one.weights, one.biases) for one in maps]
    expected = torch.autograd.grad(sum((a * b).sum() for a, b in zip(right, given, strict=True)), leaves)
    parts = project(memory, maps)
    for part, each in zip(parts, right, strict=True):
        torch.testing.assert_close(part.rows.float(), each, rtol=0.02, atol=0.05)
    gradients = [
        part.gradient_room().copy_(each) if in_place else each for part, each in zip(parts, given, strict=True)
    ]
    found = torch.autograd.grad([part.rows for part in parts], leaves, gradients)
    for each, gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(each, gradient, rtol=0.02, atol=0.1)


def test_a_part_that_nobody_reads(maps):
    memory = torch.randn(5, 7, requires_grad=True)
    first, _, last = project(memory, maps)
    last.gradient_room().fill_(7)  # written for another pass
    first.rows.sum().backward()
    assert maps[0].weights[0].grad.abs().sum() > 0
    assert maps[2].weights[0].grad.abs().sum() == 0


def test_twice_back_gives_the_same(maps):
    memory = torch.randn(5, 7, requires_grad=True)
    parts = project(memory, maps)
    found = []
    for _ in range(2):
        gradients = [part.gradient_room().fill_(0.5) for part in parts]
        found.append(torch.autograd.grad([each.rows for each in parts], memory, gradients, retain_graph=True)[0])
    torch.testing.assert_close(*found)


def test_two_readers_of_one_part(maps):
    memory = torch.randn(5, 7, requires_grad=True)
    parts = project(memory, maps)
    rooms = [part.gradient_room() for part in parts]
    again = parts[1].gradient_room()
    assert again.data_ptr() != rooms[1].data_ptr()
    found = torch.autograd.grad([part.rows for part in parts], memory, [room.fill_(1) for room in rooms])
    assert found[0].isfinite().all()
