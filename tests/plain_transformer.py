"""A Transformer in PyTorch's own functions, over weights by name: what other libraries' formats are compared with.

Its names are nobody's: a test lays the weights out as a format has them, and compares what ours computes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.models import Tokens

D_MODEL, D_FF, HEADS, ENCODER_LAYERS, DECODER_LAYERS = 20, 28, 5, 2, 3
SOURCES, TARGETS = 17, 23

SUBLAYERS = {"encoder": ("self", "ffn"), "decoder": ("self", "cross", "ffn")}
LAYERS = {"encoder": ENCODER_LAYERS, "decoder": DECODER_LAYERS}


@dataclass(frozen=True)
class Plain:
    """What the weights do not say."""

    pre: bool = False
    last_norm: bool = True  # behind pre-norm stacks
    activation: Callable[[Tensor], Tensor] = F.relu
    scale: float = math.sqrt(D_MODEL)
    epsilon: float = 1e-5
    relative_scale: float = (D_MODEL / HEADS) ** -0.5  # of products of queries and vectors of relative positions


def random_weights(
    *,
    sources: int = SOURCES,
    targets: int = TARGETS,
    bias: bool = True,
    gated: bool = False,
    output_bias: bool = False,
    embedding_norm: bool = False,
    shared: bool = False,
    tied: bool = False,
    seed: int = 1,
) -> dict[str, Tensor]:
    """Weights of which no scale is one and no shift zero; ``source``, ``target`` and ``output`` are the embeddings."""
    draws = torch.Generator().manual_seed(seed)

    def draw(*shape: int, mean: float = 0.0) -> Tensor:
        return mean + 0.3 * torch.randn(*shape, generator=draws)

    weights: dict[str, Tensor] = {"target": draw(targets, D_MODEL)}
    weights["source"] = weights["target"] if shared else draw(sources, D_MODEL)
    weights["output"] = weights["target"] if tied else draw(targets, D_MODEL)
    if output_bias:
        weights["output.bias"] = draw(targets)
    for side, sublayers in SUBLAYERS.items():
        norms = [f"{side}.norm", *([f"{side}.embedding_norm"] if embedding_norm else [])]
        for number in range(LAYERS[side]):
            for sublayer in sublayers:
                place = f"{side}.{number}.{sublayer}"
                norms.append(f"{place}.norm")
                maps = {"1": (D_FF, D_MODEL), "2": (D_MODEL, D_FF), **({"gate": (D_FF, D_MODEL)} if gated else {})}
                for name, shape in (maps if sublayer == "ffn" else dict.fromkeys("qkvo", (D_MODEL, D_MODEL))).items():
                    weights[f"{place}.{name}.weight"] = draw(*shape)
                    if bias:
                        weights[f"{place}.{name}.bias"] = draw(shape[0])
        for norm in norms:
            weights |= {f"{norm}.weight": draw(D_MODEL, mean=1), f"{norm}.bias": draw(D_MODEL)}
    return weights


def plain_logits(
    plain: Plain, weights: Mapping[str, Tensor], positions: Tensor, source: list[int], target: list[int]
) -> Tensor:
    """The logits of every symbol behind each of the target's; ``positions`` has a row for each place."""

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (D_MODEL,), weights[f"{name}.weight"], weights[f"{name}.bias"], plain.epsilon)

    def attend(x: Tensor, memory: Tensor, name: str, *, causal: bool) -> Tensor:
        if f"{name}.relative" in weights:
            return attend_relative(x, name, causal=causal)
        biases = [weights.get(f"{name}.{each}.bias") for each in "qkvo"]
        joined = None if biases[0] is None else torch.cat([each for each in biases[:3] if each is not None])
        mask = torch.ones(len(x), len(memory), dtype=torch.bool).triu(1) if causal else None
        result, _ = F.multi_head_attention_forward(
            x.unsqueeze(1),
            memory.unsqueeze(1),
            memory.unsqueeze(1),
            D_MODEL,
            HEADS,
            torch.cat([weights[f"{name}.{each}.weight"] for each in "qkv"]),
            joined,
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=weights[f"{name}.o.weight"],
            out_proj_bias=biases[3],
            attn_mask=mask,
        )
        return result.squeeze(1)

    def attend_relative(x: Tensor, name: str, *, causal: bool) -> Tensor:
        """Attention of a sequence to itself, with one table of vectors for keys and values (Shaw et al. 2018)."""
        table, places = weights[f"{name}.relative"], torch.arange(len(x))
        reach, width = len(table) // 2, table.shape[1]
        vectors = table[(places - places.unsqueeze(1)).clamp(-reach, reach) + reach]
        query, key, value = (
            F.linear(x, weights[f"{name}.{each}.weight"], weights.get(f"{name}.{each}.bias"))
            .view(len(x), HEADS, width)
            .transpose(0, 1)
            for each in "qkv"
        )
        scores = query @ key.transpose(1, 2) / math.sqrt(width)
        scores = scores + plain.relative_scale * torch.einsum("hqd,qkd->hqk", query, vectors)
        if causal:
            scores = scores.masked_fill(torch.ones(len(x), len(x), dtype=torch.bool).triu(1), -torch.inf)
        shares = scores.softmax(-1)
        result = shares @ value + torch.einsum("hqk,qkd->hqd", shares, vectors)
        joined = result.transpose(0, 1).flatten(1)
        return F.linear(joined, weights[f"{name}.o.weight"], weights.get(f"{name}.o.bias"))

    def transform(x: Tensor, name: str) -> Tensor:
        def linear(x: Tensor, which: str) -> Tensor:
            return F.linear(x, weights[f"{name}.{which}.weight"], weights.get(f"{name}.{which}.bias"))

        if f"{name}.gate.weight" in weights:
            return linear(plain.activation(linear(x, "gate")) * linear(x, "1"), "2")
        return linear(plain.activation(linear(x, "1")), "2")

    def run(side: str, ids: list[int], memory: Tensor | None) -> Tensor:
        x = plain.scale * weights["source" if side == "encoder" else "target"][ids] + positions[: len(ids)]
        if f"{side}.embedding_norm.weight" in weights:
            x = norm(x, f"{side}.embedding_norm")
        for number in range(LAYERS[side]):
            for sublayer in SUBLAYERS[side]:
                name = f"{side}.{number}.{sublayer}"
                inner = norm(x, f"{name}.norm") if plain.pre else x
                match sublayer:
                    case "ffn":
                        output = transform(inner, name)
                    case "cross":
                        assert memory is not None
                        output = attend(inner, memory, name, causal=False)
                    case _:
                        output = attend(inner, inner, name, causal=side == "decoder")
                x = x + output
                x = x if plain.pre else norm(x, f"{name}.norm")
        return norm(x, f"{side}.norm") if plain.pre and plain.last_norm else x

    hidden = run("decoder", target, run("encoder", source, None))
    return F.linear(hidden, weights["output"], weights.get("output.bias"))


def sinusoid_table(length: int, *, closed: bool = False, interleaved: bool = False, start: int = 0) -> Tensor:
    """Sines before cosines, or by turns."""
    half = D_MODEL // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float64) * -math.log(10000) / (half - 1 if closed else half))
    angles = torch.arange(start, start + length, dtype=torch.float64).unsqueeze(1) * rates
    pair = (angles.sin(), angles.cos())
    return (torch.stack(pair, -1).flatten(1) if interleaved else torch.cat(pair, 1)).float()


@torch.no_grad()
def our_logits(bundle, source: list[int], target: list[int]) -> Tensor:
    """What ours computes, by our ids: the source's end symbol and the target's begin symbol are among them."""
    sides = [Tokens(torch.tensor([ids]), torch.tensor([len(ids)])) for ids in (source, target)]
    model = bundle.model
    logits: Tensor = model.project(model.decode(model.encode(sides[0]), sides[1]).hidden)
    return logits
