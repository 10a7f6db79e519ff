"""Figures of heads of nothing in particular: two layers of three heads, of two kinds."""

from transduce.config.attention import AttentionHead
from transduce.config.head_roles import HeadRole


def made_up_heads():
    roles = []
    for kind in ("encoder", "cross"):
        for layer in range(2):
            for head in range(3):
                number = 3 * layer + head
                roles.append(
                    HeadRole(
                        AttentionHead(kind, layer, head),
                        entropy=0.5 + number,
                        distance=7.0 - number,
                        offset=number - 2.0,
                        agreement=number / 8 if kind == "cross" else None,
                        bleu_loss=number - 1.0,
                        p_value=0.01 if number == 5 else 0.5,
                    )
                )
    return roles
