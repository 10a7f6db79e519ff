"""The settings of mixtures of experts (Shazeer et al. 2017), which are the same in every architecture that has them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from transduce.config.section import Setting

ExpertBalance = Literal["batch", "pair"]

MOST_EXPERTS: Final = 4_000  # their dropouts draw apart, and the numbers for that end with 4,095
# Of all layers. Each takes memory and time before it has a weight, and a few bytes of a file may ask for millions.
MOST_NETWORKS: Final = 2**14

_READ_WITH: Final = ("feed_forward", ("mixture_of_experts",))
WITH_EXPERTS: Final = Setting("refused", read_with=_READ_WITH)
_BALANCE: Final = Setting("allowed", read_with=_READ_WITH)

Experts = Annotated[
    int,
    WITH_EXPERTS,
    Field(ge=1, le=MOST_EXPERTS, description="n, the feed-forward networks of each mixture of experts, d_ff wide each"),
]
ExpertsPerToken = Annotated[
    int,
    WITH_EXPERTS,
    Field(ge=1, le=MOST_EXPERTS, description="k, how many of them a symbol goes to; 1: a switch (Fedus et al. 2021)"),
]
ExpertNoise = Annotated[
    bool,
    WITH_EXPERTS,
    Field(description="trained noise on the gate's scores in training (noisy top-k gating)"),
]
ImportanceLoss = Annotated[
    float,
    _BALANCE,
    Field(ge=0, description="w_importance: how much uneven weights of the experts cost, in nats for each symbol"),
]
LoadLoss = Annotated[
    float,
    _BALANCE,
    Field(ge=0, description="w_load: how much uneven numbers of their symbols cost; without expert_noise: 0"),
]
Balance = Annotated[
    ExpertBalance,
    _BALANCE,
    Field(
        description="whose symbols are to be spread evenly: those of a batch (as published; of each micro-batch and "
        "process), or of each pair by itself, which no cutting of batches changes"
    ),
]


def without_noise_no_load(values: Mapping[str, Any]) -> dict[str, Any]:
    """A section's values, where a load that nothing estimates costs nothing if nothing else is said."""
    silent = values.get("feed_forward") == "mixture_of_experts" and values.get("expert_noise") is False
    return {**({"load_loss": 0.0} if silent else {}), **values}


def check_experts(*, experts: int, mixtures: int, experts_per_token: int, expert_noise: bool, load_loss: float) -> None:
    """Refuse what no mixture can be made of; ``mixtures`` are those of the model, one in each layer that has experts.

    Raises:
        ValueError: More experts are to be chosen than there are, all layers together have too many, or loads cost
            something that nothing estimates.
    """
    if experts * mixtures > MOST_NETWORKS:
        raise ValueError(
            f"experts = {experts:,} in each of {mixtures:,} layers are {experts * mixtures:,} networks: at most "
            f"{MOST_NETWORKS:,} are possible, choose fewer experts or layers"
        )
    if experts_per_token > experts:
        raise ValueError(
            f"experts_per_token = {experts_per_token}, but there are experts = {experts}: choose at most as many"
        )
    if load_loss and not expert_noise:
        raise ValueError(
            f"load_loss = {load_loss:g} needs expert_noise = true, from which loads are estimated: leave it out"
        )
