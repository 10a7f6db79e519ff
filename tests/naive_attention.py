"""Attention by the formula: a loop over queries and one over keys; test modules ask for it by ``pytest_plugins``."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transduce.kernels import Mask, Scoring

Attention = Callable[[Tensor, Tensor, Tensor, Mask, Scoring], Tensor]


def allows(mask: Mask, sentence: int, own: int, column: int) -> bool:
    """Whether the query of column ``own`` may look at the key of a column."""
    real = mask.real is None or bool(mask.real[sentence, column])
    past = not mask.causal or column <= own
    near = mask.window is None or abs(column - own) <= mask.window
    return real and past and near


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Mask, scoring: Scoring) -> Tensor:
    """sum_j softmax_j(score(q_i, k_j + a^K_ij)) (v_j + a^V_ij); 0 for a query that may look at nothing."""
    batch, heads, queries, _ = query.shape
    result = query.new_zeros(batch, heads, queries, value.shape[3]).unbind(2)
    rows: list[Tensor] = []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                own = key.shape[2] - queries + i
                columns = [j for j in range(key.shape[2]) if allows(mask, b, own, j)]
                rows.append(result[i][b, h])
                if not columns:
                    continue
                keys = [key[b, h, j] + _relative(scoring, "keys", j - own) for j in columns]
                values = [value[b, h, j] + _relative(scoring, "values", j - own) for j in columns]
                asking = scoring.scale * query[b, h, i]
                if scoring.bilinear is not None:
                    asking = asking @ scoring.bilinear[h]
                if scoring.additive is None:
                    scores = [asking @ k for k in keys]
                else:
                    scores = [scoring.additive[h] @ torch.tanh(asking + k) for k in keys]
                exponentials = [torch.exp(score) for score in scores]
                total = torch.stack(exponentials).sum()
                rows[-1] = torch.stack([e / total * v for e, v in zip(exponentials, values, strict=True)]).sum(0)
    return torch.stack(rows).view(batch, heads, queries, -1)


def _relative(scoring: Scoring, which: str, distance: int) -> Tensor | float:
    """a^K_ij or a^V_ij = w_clip(j - i, k) (Shaw et al. 2018, section 3.2)."""
    if scoring.relative is None:
        return 0.0
    vectors: Tensor = getattr(scoring.relative, which)
    k = (len(vectors) - 1) // 2
    clipped: Tensor = vectors[max(-k, min(k, distance)) + k]
    return clipped


@pytest.fixture(scope="session")
def naive() -> Attention:
    """Attention by the formula."""
    return attend
