import jaxtyping
import pytest
import torch

from tests import typechecks
from transduce.layers import Embedding

WRONG = torch.zeros(3, dtype=torch.bool)  # no ids


def test_a_wrong_shape_or_type_is_found_in_every_test(monkeypatch):
    layer = Embedding(5, 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        layer(WRONG)
    monkeypatch.setattr(typechecks, "_left", 1)
    layer(torch.tensor([1]))
    with pytest.raises(RuntimeError, match="scalar types"):  # torch's own
        layer(WRONG)
    typechecks.begin()
    with pytest.raises(jaxtyping.TypeCheckError):
        layer(WRONG)
