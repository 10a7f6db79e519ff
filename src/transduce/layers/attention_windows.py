"""Which positions of the source a step of a recurrent decoder may look at, and how scores become weights."""

from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config.recurrent import RecurrentConfig
from transduce.layers.linear import make_linear

# A side of a trainable window is never counted as shorter than this: nothing is divided by 0.
_SHORTEST = 1e-6


def median_positions(weights: Float[Tensor, "*rows source"]) -> Int[Tensor, "*rows 1"]:
    """The first position up to which, it included, at least half of the weights lie; they sum to 1."""
    return (weights.cumsum(-1) < 0.5).sum(-1, keepdim=True)


def around_median(
    weights: Float[Tensor, "sentences queries source"], reach: int
) -> Bool[Tensor, "sentences queries source"]:
    """The 2 w positions p - w to p + w - 1, p being the median of the weights before (Chorowski et al. 2015).

    p itself is among them, and has some weight: so a window is never without a real position. What lies beyond the
    ends of the source is left out.
    """
    offsets = torch.arange(weights.shape[-1], device=weights.device) - median_positions(weights.detach())
    return (offsets >= -reach) & (offsets < reach)


@final
class TrainableWindow(nn.Module):
    """The fully-trainable window (Zhang, Loweimi, Bell and Renals 2019): how long it is and where, is learned.

    In step i its centre m moves to the right by a part of S_max = ``attention_window_shift``,

        m_i = m_(i-1) + S_max sigmoid(MLP(s_i)),

    and a position j between m_i - D_L and m_i + D_R has its exponential e^(e_ij) multiplied by

        l_ij = exp(-(j - m_i)^2 / (2 (D / 2)^2)),    D = D_L where j < m_i, D_R where j > m_i.

    Each of D_L and D_R is a length L_max sigmoid(MLP(s_i)), of an MLP of its own, L_max = ``attention_window_longest``:
    the lecture that the formulas are from names one length L_i and two sides D. Were both the half of it, the two cases
    would be one; so we read L as said of either side. An MLP has one hidden layer of ``attention_size`` tanh units.

    Ours, where the formulas leave off: positions count from 0, and m_0 = -1 is the place before the first one. A centre
    beyond the last symbol stays on it, and one before the first symbol is on that. A window without any position, as
    two short sides between two positions may have it, has the one that is nearest to m_i.
    """

    def __init__(self, config: RecurrentConfig, query_size: int) -> None:
        super().__init__()
        self.longest, self.most = config.attention_window_longest, config.attention_window_shift
        self.left, self.right, self.shift = (_make_mlp(query_size, config.attention_size) for _ in range(3))

    def centres(
        self, query: Float[Tensor, "sentences queries size"], previous: Float[Tensor, "sentences rows"]
    ) -> Float[Tensor, "sentences queries"]:
        """The m of one more step of each row, or, of a sentence's only row, of consecutive steps."""
        shifts = self.most * _part(self.shift, query)
        return previous + (shifts.cumsum(1) if previous.shape[1] == 1 else shifts)

    def forward(
        self,
        query: Float[Tensor, "sentences queries size"],
        centres: Float[Tensor, "sentences queries"],
        real: Bool[Tensor, "sentences source"],
    ) -> tuple[Bool[Tensor, "sentences queries source"], Float[Tensor, "sentences queries source"]]:
        """Which positions the windows have, and log l of them, which is between -2 and 0."""
        last = (real.sum(1, keepdim=True) - 1).clamp(min=0)
        centres = torch.minimum(centres.clamp(min=0), last.to(centres.dtype)).unsqueeze(2)
        positions = torch.arange(real.shape[1], device=real.device)
        offsets = positions - centres
        left, right = (self.longest * _part(mlp, query).unsqueeze(2) for mlp in (self.left, self.right))
        side = torch.where(offsets < 0, left, right)
        inside = (offsets.abs() < side) & real.unsqueeze(1)
        # What is outside has no part in the gradient, either: it is 0 there before anything is divided.
        logarithms = -2 * (offsets.where(inside, 0) / side.clamp(min=_SHORTEST)).square()
        nearest = positions == centres.round()
        return torch.where(inside.any(2, keepdim=True), inside, nearest & real.unsqueeze(1)), logarithms


def _make_mlp(inputs: int, hidden: int) -> nn.Sequential:
    first, second = (
        make_linear(*sizes, bias=True, initializer="glorot_uniform") for sizes in ((inputs, hidden), (hidden, 1))
    )
    return nn.Sequential(first, nn.Tanh(), second)


def _part(mlp: nn.Module, query: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows"]:
    """Between 0 and 1; positions are told apart in float32 at least, whatever the products are computed in."""
    logits: Tensor = mlp(query).squeeze(-1)
    return torch.sigmoid(at_least_single(logits))


def at_least_single(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same in float32, where it is in a shorter format."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def normalize(
    scores: Float[Tensor, "sentences queries source"],
    allowed: Bool[Tensor, "sentences #queries source"],
    logarithms: Float[Tensor, "sentences queries source"] | None,
    config: RecurrentConfig,
) -> Float[Tensor, "sentences queries source"]:
    """The weights a_j = n_j / sum over k of n_k; they are 0 where no position is allowed at all.

    n_j = exp(beta e_j) (``attention_sharpness``), or with ``attention_smoothing`` sigmoid(beta e_j), which grows no
    faster than its neighbours can (Chorowski et al. 2015); times l_j of a window that has it; 0 for what is not
    allowed or not among the ``attention_top_k`` largest. Among equal ones the first are kept.
    """
    scores = config.attention_sharpness * at_least_single(scores)
    if config.attention_smoothing:
        # The softmax of log n: a sum of sigmoids that are all 0 by rounding is never divided by.
        scores = F.logsigmoid(scores)
    if logarithms is not None:
        scores = scores + logarithms
    lowest = torch.finfo(scores.dtype).min
    scores = scores.masked_fill(~allowed, lowest)
    if config.attention_top_k is not None and config.attention_top_k < scores.shape[-1]:
        best = scores.detach().argsort(dim=-1, descending=True, stable=True)[..., : config.attention_top_k]
        allowed = allowed & torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
        scores = scores.masked_fill(~allowed, lowest)
    return scores.softmax(-1).masked_fill(~allowed, 0)
