"""A mixture of experts (Shazeer et al. 2017) in the place of one feed-forward network."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never, final

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config.experts import ExpertBalance
from transduce.kernels import RaggedLayout, draw_normal, seeds_at

# The least spread of the noise that loads are estimated with: it is divided by.
_LEAST_SPREAD: Final = 1e-4


@final
@dataclass(frozen=True)
class Gating:
    """How symbols are given to experts: to ``chosen`` of them each, by scores with or without noise in training.

    ``importance_loss`` and ``load_loss`` are the paper's w_importance and w_load, the weights of the two losses that
    keep experts evenly used; ``balance`` says over which symbols these are computed.
    """

    chosen: int
    noise: bool
    importance_loss: float
    load_loss: float
    balance: ExpertBalance

    @property
    def balanced(self) -> bool:
        """Whether it has any loss."""
        return self.importance_loss > 0 or self.load_loss > 0


@final
@dataclass(frozen=True)
class Routing:
    """Where the symbols of a batch went.

    ``loads`` counts the symbols that each expert got, those that do not count (``RaggedLayout.counted``) left out.
    ``balance_loss`` is of the symbols that each row's are balanced with: a number for each row, as
    ``Decoded.auxiliary_loss`` has one for each target symbol; None where both losses have weight 0.
    """

    loads: Int[Tensor, " experts"]
    balance_loss: Float64[Tensor, " rows"] | None


def join_routings(
    routings: Sequence[Routing], target: RaggedLayout
) -> tuple[Float64[Tensor, " tokens"] | None, Int[Tensor, "layers experts"] | None]:
    """The auxiliary loss of each target symbol, and each layer's loads: of all mixtures of a model, or None of none.

    A layer's loss counts as often as its rows have target symbols, whichever side it works on: a training divides its
    objective by these.
    """
    if not routings:
        return None, None
    loads = torch.stack([each.loads for each in routings])
    losses = [each.balance_loss for each in routings if each.balance_loss is not None]
    if not losses:
        return None, loads
    return torch.stack(losses).sum(dim=0).index_select(0, target.indices // target.longest), loads


@final
@dataclass(frozen=True)
class Choice:
    """Each symbol's experts, the best first, and the weights of their outputs.

    ``scores`` are without noise, ``ranked`` with it and sorted, ``spread`` is the noise's standard deviation.
    """

    experts: Int[Tensor, "symbols chosen"]
    weights: Float64[Tensor, "symbols chosen"]
    scores: Float64[Tensor, "symbols experts"]
    ranked: Float64[Tensor, "symbols experts"]
    spread: Float64[Tensor, "symbols experts"] | None

    @staticmethod
    def of_columns(columns: Sequence["Choice"], layout: RaggedLayout) -> "Choice":
        """Those of a whole ragged batch, from those of its padded columns, one after the other."""
        first, *_ = columns

        def join(parts: Iterable[Tensor]) -> Tensor:
            return layout.flatten(torch.stack([*parts], dim=1))

        return Choice(
            experts=join(each.experts for each in columns),
            weights=join(each.weights for each in columns),
            scores=join(each.scores for each in columns),
            ranked=join(each.ranked for each in columns),
            spread=None if first.spread is None else join(each.spread for each in columns if each.spread is not None),
        )


@final
class MixtureOfExperts(nn.Module):
    """y = sum_i G(x)_i E_i(x): of n networks E_i, those k that a gate chooses for a symbol (Shazeer et al. 2017).

    The gate is noisy top-k gating (section 2.1): H(x)_i = (x W_g)_i + z_i softplus((x W_noise)_i), z_i of the standard
    normal distribution; G(x) is the softmax of the k largest H(x)_i, and 0 for the other experts. Both matrices start
    as zeros. Noise is for training alone, and follows from seeds as dropout does.

    Of k = 1, that softmax would always be 1, and tell the gate nothing. There the weight is the chosen expert's part
    of the softmax over all (the switch of Fedus et al. 2021). Of their model that is all that is taken: they have a
    loss of their own for balance, noise on the gate's input, and a capacity.

    An expert takes all symbols that choose it. There is no capacity beyond which it turns some away: symbols are sorted
    by expert, so that no size has to be fixed beforehand, and what a symbol gets hangs on no other symbol.
    """

    def __init__(self, experts: Iterable[nn.Module], width: int, gating: Gating, number: int = 0) -> None:
        """Of networks called with rows and their seeds; ``number`` is that of the random decisions in the model."""
        super().__init__()
        self.experts = nn.ModuleList(experts)
        self.gating, self.number = gating, number
        self.gate = nn.Parameter(torch.zeros(len(self.experts), width))
        self.noise = nn.Parameter(torch.zeros(len(self.experts), width)) if gating.noise else None

    def forward(
        self, x: Float[Tensor, "*positions model"], seeds: Int[Tensor, "*positions"] | None = None
    ) -> Float[Tensor, "*positions model"]:
        """Transform each position on its own; ``seeds`` are what noise and dropout follow from."""
        return self.transform(x.reshape(-1, x.shape[-1]), seeds)[0].view(x.shape)

    def route(
        self, x: Float[Tensor, "symbols model"], layout: RaggedLayout
    ) -> tuple[Float[Tensor, "symbols model"], Routing]:
        """The same for a ragged batch, and where its symbols went."""
        y, choice = self.transform(x, layout.seeds)
        return y, self.routing(choice, layout)

    def transform(
        self, x: Float[Tensor, "symbols model"], seeds: Int[Tensor, "*positions"] | None
    ) -> tuple[Float[Tensor, "symbols model"], Choice]:
        """What the experts make of each symbol, and which ones were chosen for it."""
        if self.training:
            # As dropout does, torch draws the seeds that are not given.
            drawn = torch.randint(-(2**63), 2**63 - 1, x.shape[:1], device=x.device) if seeds is None else seeds
            seeds = drawn.reshape(-1)
        choice = self._choose(x, seeds)
        # One symbol after the other has its k places; sorted, each expert's are together.
        order = choice.experts.flatten().argsort(stable=True)
        symbols = order // self.gating.chosen
        loads = self._sizes(choice.experts)
        given = torch.split(x.index_select(0, symbols), loads)
        if seeds is None or not self.training:
            outputs = [expert(part) for expert, part in zip(self.experts, given, strict=True)]
        else:
            # Of the numbers that this layer may draw, the gate's noise comes first, then each expert's dropout.
            parts = torch.split(seeds.index_select(0, symbols), loads)
            outputs = [
                expert(part, seeds_at(of_part, 0, number))
                for number, (expert, part, of_part) in enumerate(zip(self.experts, given, parts, strict=True), start=1)
            ]
        places = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
        joined = torch.cat(outputs).index_select(0, places)
        joined = joined.view(len(x), self.gating.chosen, joined.shape[-1])
        weights = choice.weights.to(torch.promote_types(joined.dtype, torch.float32)).unsqueeze(2)
        return (weights * joined).sum(dim=1).to(joined.dtype), choice

    def routing(self, choice: Choice, layout: RaggedLayout) -> Routing:
        """Where the symbols of a ragged batch went, from what was chosen for them."""
        loads = _count(choice.experts, len(self.experts), layout.counted)
        return Routing(loads, self._balance_loss(choice, layout) if self.gating.balanced else None)

    def extra_repr(self) -> str:
        """What is printed of it."""
        return f"{self.gating}, number={self.number}"

    def _choose(self, x: Float[Tensor, "symbols model"], seeds: Int[Tensor, " symbols"] | None) -> Choice:
        # In float64: a choice hangs on differences, and shall not change with how a product of so many rows is summed,
        # nor with the number format of the rest.
        x = x.double()
        scores = ranking = F.linear(x, self.gate.double())
        spread = None
        if self.noise is not None:
            spread = F.softplus(F.linear(x, self.noise.double())).clamp_min(_LEAST_SPREAD)
            if self.training and seeds is not None:
                ranking = scores + spread * draw_normal(seeds_at(seeds, self.number), len(self.experts))
        # Stable: of experts with the same score the first is taken, wherever this is computed.
        ranked, order = ranking.sort(dim=1, descending=True, stable=True)
        chosen = self.gating.chosen
        weights = ranked.softmax(dim=1)[:, :1] if chosen == 1 else ranked[:, :chosen].softmax(dim=1)
        return Choice(order[:, :chosen], weights, scores, ranked, spread)

    def _sizes(self, experts: Int[Tensor, "symbols chosen"]) -> list[int]:
        """How many symbols each expert gets, as numbers of Python."""
        number = len(self.experts)
        if experts.is_meta:  # without numbers to choose by, as where operations are counted: evenly
            return [experts.numel() // number + (place < experts.numel() % number) for place in range(number)]
        sizes: list[int] = _count(experts, number).tolist()
        return sizes

    def _balance_loss(self, choice: Choice, layout: RaggedLayout) -> Float64[Tensor, " rows"]:
        """w_importance CV(Importance)^2 + w_load CV(Load)^2 (section 4, appendix A), of the rows that belong together.

        CV is the coefficient of variation over the experts: standard deviation over mean. Importance_i is the sum of
        all G(x)_i. Load_i is the sum of P(x, i) = Phi(((x W_g)_i - t_i) / softplus((x W_noise)_i)): of the probability
        that i would be among the chosen if its noise were drawn again, t_i being the k-th largest of the others' H(x).
        """
        gating, groups, number = self.gating, self._groups(layout), len(layout.lengths) + 1
        together = groups.index_select(0, layout.indices // layout.longest)
        if layout.counted is not None:  # what does not count is a group of its own, the last
            together = together.where(layout.counted, number - 1)
        importance = torch.zeros_like(choice.scores).scatter(1, choice.experts, choice.weights)
        loss = gating.importance_loss * _variation(_sum(importance, together, number))
        if gating.load_loss > 0 and choice.spread is not None and gating.chosen < len(self.experts):
            loss = loss + gating.load_loss * _variation(_sum(_probability(choice), together, number))
        return loss.index_select(0, groups)

    def _groups(self, layout: RaggedLayout) -> Int[Tensor, " rows"]:
        """Of each row, the number of the group whose symbols are balanced with each other."""
        rows = torch.arange(len(layout.lengths), device=layout.indices.device)
        match self.gating.balance:
            case "batch":
                return torch.zeros_like(rows)
            case "pair":
                return rows
            case _:
                assert_never(self.gating.balance)


def _probability(choice: Choice) -> Float64[Tensor, "symbols experts"]:
    """P(x, i), where there are more experts than are chosen."""
    assert choice.spread is not None
    chosen = choice.experts.shape[1]
    among = torch.zeros_like(choice.scores, dtype=torch.bool).scatter(1, choice.experts, value=True)
    # The k-th largest of the others: behind the chosen ones for those, the last of the chosen for the rest.
    least = choice.ranked[:, chosen : chosen + 1].where(among, choice.ranked[:, chosen - 1 : chosen])
    probability: Tensor = torch.special.ndtr((choice.scores - least) / choice.spread)
    return probability


def _sum(
    values: Float64[Tensor, "symbols experts"], groups: Int[Tensor, " symbols"], number: int
) -> Float64[Tensor, "groups experts"]:
    return values.new_zeros(number, values.shape[1]).index_add(0, groups, values)


def _variation(sums: Float64[Tensor, "groups experts"]) -> Float64[Tensor, " groups"]:
    """CV^2 of each group's sums; 0 of a group without symbols."""
    return sums.var(dim=1, correction=0) / sums.mean(dim=1).square().clamp_min(torch.finfo(sums.dtype).tiny)


def _count(
    experts: Int[Tensor, "symbols chosen"], number: int, counted: Bool[Tensor, " symbols"] | None = None
) -> Int[Tensor, " experts"]:
    ones = torch.ones_like(experts) if counted is None else counted.long().unsqueeze(1).expand_as(experts)
    return experts.new_zeros(number).index_add(0, experts.flatten(), ones.flatten())
