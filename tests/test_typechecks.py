import jaxtyping
import pytest
import torch

from tests import typechecks
from transduce.layers import Embedding
from transduce.search import LengthPenalty

WRONG = torch.zeros(3, dtype=torch.bool)  # no ids


def test_a_wrong_shape_or_type_is_found_in_every_test():
    layer = Embedding(5, 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        layer(WRONG)
    with pytest.raises(jaxtyping.TypeCheckError if typechecks.ALL else RuntimeError):  # the second call: torch's own
        layer(WRONG)
    for _ in range(5):
        layer(torch.tensor([1]))
    with pytest.raises(jaxtyping.TypeCheckError):  # the eighth is looked at again
        layer(WRONG)
    typechecks.begin()
    with pytest.raises(jaxtyping.TypeCheckError):
        layer(WRONG)


def test_results_are_checked_too(monkeypatch):
    layer = Embedding(5, 4)
    monkeypatch.setattr(torch.nn.functional, "embedding", lambda ids, table: table)
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        layer(torch.tensor([[1]]))


def test_what_has_no_shapes_is_left_alone():
    assert not hasattr(LengthPenalty.__call__, "__wrapped__")
