"""Attention weights of nothing in particular."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Maps:
    source: tuple[str, ...] = (" a", "b", "</s>")
    target: tuple[str, ...] = (" x</script><!--", "</s>")
    read: tuple[str, ...] = ("<s>", " x</script><!--")
    source_words: tuple[int, ...] = (0, 0, 1)
    target_words: tuple[int, ...] = (0, 1)
    encoder: np.ndarray | None = None
    decoder: np.ndarray | None = None
    cross: np.ndarray | None = None


def made_up(seed=0, **changes):
    draw = np.random.default_rng(seed)
    kinds = {"encoder": (3, 3), "decoder": (2, 2), "cross": (2, 3)}
    weights = {kind: draw.dirichlet(np.ones(shape[1]), (2, 4, shape[0])).astype("f4") for kind, shape in kinds.items()}
    return Maps(**(weights | changes))
