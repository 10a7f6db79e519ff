"""How the models of a table are trained: the paper's regime with its schedule shortened, until nothing more is learned.

The shape is that of ``recipes/multi30k-quick.toml``: small batches, of which a small text needs many, a short warm-up,
and a rate that falls to nothing over the second half.
"""

import math
from typing import Final

from transduce.config import TokenizerConfig, TrainConfig
from transduce.data import Store, plan_epoch

TOKENIZER: Final = TokenizerConfig(vocab_size=4000)
EPOCHS: Final = 20
BATCH_TOKENS: Final = 1280
_WARMUP: Final = 0.12
_COOLDOWN: Final = 0.55


def count_steps(train: Store) -> int:
    """How many a training has that goes ``EPOCHS`` times over its text."""
    return EPOCHS * plan_epoch(train, BATCH_TOKENS, seed=1, epoch=0).count_batches()


def make_regime(steps: int, peak_rate: float, width: int) -> TrainConfig:
    """The settings of so many steps, whose highest learning rate a model of this width (d_model) has at ``peak_rate``.

    The warm-up is an eighth of the steps or so, 4,000 at most. The formula of section 5.3 alone would let the rate grow
    as the warm-up shrinks; the factor keeps its peak, whatever the length. Models of other widths have other peaks
    with this factor, by the formula.
    """
    warmup = min(TrainConfig().warmup_steps, max(1, round(_WARMUP * steps)))
    return TrainConfig(
        batch_tokens=BATCH_TOKENS,
        max_steps=steps,
        learning_rate_factor=peak_rate * math.sqrt(width * warmup),
        warmup_steps=warmup,
        cooldown_steps=max(1, round(_COOLDOWN * steps)),
        log_every=100,
        validate_every=steps,
        checkpoint_every=steps,
        checkpoint_minutes=2.0,
        keep_checkpoints=1,
    )
