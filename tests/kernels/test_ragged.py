import pytest
import torch

from transduce.kernels import RaggedLayout

CPU = torch.device("cpu")


def test_rows_stand_end_to_end():
    layout = RaggedLayout.of(torch.tensor([3, 1, 2]), 4, CPU)
    padded = torch.tensor([[5, 7, 11, 0], [13, 0, 0, 0], [17, 19, 0, 0]])
    assert layout.flatten(padded).tolist() == [5, 7, 11, 13, 17, 19]
    assert layout.pad(layout.flatten(padded)).equal(padded)
    assert layout.columns.tolist() == [0, 1, 2, 0, 0, 1]
    assert layout.real.equal(padded > 0)
    assert layout.offsets.tolist() == [0, 3, 4, 6]
    assert layout.tokens == 6


def test_a_row_may_be_empty():
    layout = RaggedLayout.of(torch.tensor([0, 2, 0]), 2, CPU)
    assert layout.offsets.tolist() == [0, 0, 2, 2]
    assert layout.pad(torch.tensor([[5.0], [7.0]])).squeeze(2).tolist() == [[0, 0], [5, 7], [0, 0]]


def test_gradients_pass_both_ways():
    layout = RaggedLayout.of(torch.tensor([2, 3]), 3, CPU)
    padded = torch.randn(2, 3, 4, requires_grad=True)
    (layout.pad(layout.flatten(padded)) * 3).sum().backward()
    assert padded.grad is not None
    assert padded.grad.equal(3.0 * layout.real.unsqueeze(2).expand_as(padded))


def test_a_flat_layout_knows_no_padded_batch():
    """Its symbols lie in one row: padding them as rows of the longest would mix sentences."""
    ends = torch.tensor([0, 3, 5])
    columns = torch.tensor([0, 1, 2, 0, 1])
    layout = RaggedLayout.flat(ends, 32, ends.int(), columns, None)
    assert layout.tokens == 5
    with pytest.raises(RuntimeError, match="no padded batch"):
        layout.pad(torch.zeros(5, 2))
    with pytest.raises(RuntimeError, match="no padded batch"):
        _ = layout.real


@pytest.mark.parametrize(("lengths", "told"), [([2, 4, 3], "from 2 to 4 in 3"), ([-1, 3, 0], "from -1 to 3 in 3")])
def test_lengths_that_do_not_fit_the_batch_are_refused(lengths, told):
    """Kernels index by them."""
    with pytest.raises(ValueError, match=f"lengths {told} columns"):
        RaggedLayout.of(torch.tensor(lengths), 3, torch.device("cpu"))
    assert RaggedLayout.of(torch.tensor([], dtype=torch.long), 3, torch.device("cpu")).tokens == 0
