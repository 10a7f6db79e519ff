"""Beam search written down once more, for what has none of its own."""

from collections.abc import Callable, Collection

import torch
from jaxtyping import Float, Int
from torch import Tensor

# The logits behind several prefixes, of which it is said which of those before each goes on from.
NextLogits = Callable[
    [Int[Tensor, "hypotheses positions"], Int[Tensor, " hypotheses"]], Float[Tensor, "hypotheses vocabulary"]
]


def beam_search(
    next_logits: NextLogits, begin: int, end: int, never: Collection[int], beam: int, longest: int
) -> list[int]:
    """The most probable of the outputs found, without its end; of at most ``longest`` symbols, the end counted.

    Without a length penalty; it goes on until none that is open is more probable than the best that ended, as nothing
    that is longer is more probable.
    """
    prefixes, scores, rows = torch.tensor([[begin]]), torch.zeros(1, dtype=torch.float64), torch.zeros(1).long()
    best, best_score = list[int](), -torch.inf
    for length in range(1, longest + 1):
        steps = next_logits(prefixes, rows).double().log_softmax(-1)
        steps[:, list(never)] = -torch.inf
        if length == longest:
            steps[:, torch.arange(steps.shape[1]) != end] = -torch.inf
        totals = (scores.unsqueeze(1) + steps).flatten()
        found, places = totals.topk(min(2 * beam, len(totals)))
        sources, symbols = places // steps.shape[1], places % steps.shape[1]
        ends = symbols == end
        ended = ends[:beam].nonzero().flatten()
        if len(ended) and float(found[ended[0]]) > best_score:
            best, best_score = prefixes[sources[ended[0]], 1:].tolist(), float(found[ended[0]])
        going_on = (~ends & found.isfinite()).nonzero().flatten()[:beam]
        if not len(going_on) or float(found[going_on[0]]) <= best_score:
            break
        scores, rows = found[going_on], sources[going_on]
        prefixes = torch.cat([prefixes[rows], symbols[going_on].unsqueeze(1)], dim=1)
    return best
