"""CUDA's kernels for sequences of different lengths: chosen where they know the answer, and told the right question.

``varlen_attn`` runs on no processor. Here a double loop stands in for it, which does what its documentation says;
tests/test_cuda.py has the kernels themselves.
"""

import pytest
import torch

from transduce.kernels import Dropped, Heads, RaggedAttention, RaggedLayout, Scoring, attend_ragged, varlen
from transduce.kernels.ragged_attention import ragged_way
from transduce.kernels.varlen import has_varlen

CPU = torch.device("cpu")
HEADS = Heads(3, 8, 8)
QUERIES, KEYS = (7, 1, 11, 5), (2, 13, 3, 17)
CUDA = torch.device("cuda:0")


def loop(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size):
    """Attention sequence by sequence and head by head."""
    for ends in (cu_seq_q, cu_seq_k):
        assert ends.dtype == torch.int32
    assert (cu_seq_q.diff().max(), cu_seq_k.diff().max()) == (max_q, max_k)
    left, right = window_size
    assert left == -1
    rows = []
    for b in range(len(cu_seq_q) - 1):
        q, k, v = (x[ends[b] : ends[b + 1]] for x, ends in ((query, cu_seq_q), (key, cu_seq_k), (value, cu_seq_k)))
        scores = scale * torch.einsum("qhd,khd->hqk", q, k)
        if right == 0:
            scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
        rows.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
    return torch.cat(rows)


@pytest.mark.parametrize("scale", [0.3, 1.0])
@pytest.mark.parametrize(("own", "causal"), [(True, False), (True, True), (False, False)])
def test_equals_the_padded_way_in_values_and_gradients(own, causal, scale, monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", loop)
    torch.manual_seed(3)
    keys = QUERIES if own else KEYS
    widths = sum(HEADS.widths) if own else HEADS.widths[0]
    projected = torch.randn(sum(QUERIES), widths, dtype=torch.float64, requires_grad=True)
    memory = None if own else torch.randn(sum(KEYS), sum(HEADS.widths[1:]), dtype=torch.float64, requires_grad=True)
    packings = [RaggedLayout.of(torch.tensor(lengths), max(lengths), CPU) for lengths in (QUERIES, keys)]
    parts = [projected] if memory is None else [projected, memory]
    found = []
    for chosen in (False, True):
        monkeypatch.setattr("transduce.kernels.ragged_attention.has_varlen", lambda *_, chosen=chosen: chosen)
        output = attend_ragged(
            projected, memory, RaggedAttention(*packings, HEADS, Scoring(scale=scale), causal=causal)
        )
        torch.manual_seed(5)
        found.append([output, *torch.autograd.grad(output, parts, torch.randn_like(output))])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(
    "settings",
    [{"dropped": Dropped(0.1)}, {"window": 2}, {"scoring": Scoring(bilinear=torch.eye(8).expand(3, 8, 8))}],
    ids=["dropout", "restricted", "bilinear"],
)
def test_what_the_kernels_do_not_know_is_computed_with_padding(settings, monkeypatch):
    monkeypatch.setattr("transduce.kernels.ragged_attention.has_varlen", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", None)  # to call it would be an error
    layout = RaggedLayout.of(torch.tensor(QUERIES), max(QUERIES), CPU)
    scoring = settings.pop("scoring", Scoring())
    output = attend_ragged(
        torch.randn(layout.tokens, 72).double(), None, RaggedAttention(layout, layout, HEADS, scoring, **settings)
    )
    assert output.shape == (24, 24)


class Place:
    """As much of a tensor as the choice looks at."""

    def __init__(self, device=CUDA, dtype=torch.bfloat16):
        self.device, self.dtype = device, dtype


@pytest.mark.parametrize(
    ("place", "width", "chosen"),
    [
        (Place(), 64, True),
        (Place(dtype=torch.float16), 64, True),
        (Place(dtype=torch.float32), 64, False),
        (Place(device=CPU), 64, False),
        (Place(), 20, False),
        (Place(), 512, False),
    ],
)
def test_chosen_by_device_format_and_width(place, width, chosen, monkeypatch):
    monkeypatch.setattr(varlen, "_runs_on", lambda _: True)
    assert has_varlen(place, width) == chosen


def test_values_of_another_width_are_for_the_padded_way(monkeypatch):
    monkeypatch.setattr(varlen, "_runs_on", lambda _: True)
    monkeypatch.setattr("transduce.kernels.ragged_attention.has_varlen", has_varlen)
    monkeypatch.setattr("transduce.kernels.ragged_attention.has_native", lambda *_: False)
    monkeypatch.setattr("transduce.kernels.ragged_attention._in_triton", lambda *_: False)
    layout = RaggedLayout.of(torch.tensor(QUERIES), max(QUERIES), CPU)
    found = [ragged_way.__wrapped__(Place(), layout, Heads(3, 64, d_v), None, 0.0, plain=True) for d_v in (64, 32)]
    assert found == ["variable length", "padded"]
