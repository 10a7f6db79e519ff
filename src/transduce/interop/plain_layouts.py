"""What other libraries' options and weights mean, said a second time: for a plain computation to compare ours with.

Nothing here is taken from the readers, so that what one of them takes for something else shows.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from torch import Tensor

from transduce.interop.plain_transformer import ACTIVATIONS, PlainTransformer, go_on, sinusoid_table
from transduce.interop.stored import Stored

_SIDES: Final = ("encoder", "decoder")
_LONGEST: Final = 1024  # positions, where nothing stored says how many there are
Layout = Mapping[str, str]  # what a module is called there by its plain name, with {} for a layer's number


def plain_fairseq(stored: Stored) -> PlainTransformer:
    """The transformer of fairseq."""
    layout = _layout(
        {"encoder": "encoder.layers.{}", "decoder": "decoder.layers.{}"},
        ("self_attn", "encoder_attn"),
        ("q_proj", "k_proj", "v_proj", "out_proj"),
        {"ffn.1": "fc1", "ffn.2": "fc2"},
        {
            "encoder.self": "self_attn_layer_norm",
            "decoder.self": "self_attn_layer_norm",
            "decoder.cross": "encoder_attn_layer_norm",
            "ffn": "final_layer_norm",
        },
    )
    old = {
        **{
            f"encoder.{{}}.{part}.norm": f"encoder.layers.{{}}.layer_norms.{n}"
            for n, part in enumerate(("self", "ffn"))
        },
        **{
            f"decoder.{{}}.{part}.norm": f"decoder.layers.{{}}.layer_norms.{n}"
            for n, part in enumerate(("self", "cross", "ffn"))
        },
    }
    whole = {f"{side}.embedding_norm": f"{side}.layernorm_embedding" for side in _SIDES}
    # Versions below 2 of a stack end without a norm, whatever is stored.
    whole |= {f"{side}.norm": f"{side}.layer_norm" for side in _SIDES if _version(stored.weights, side) >= 2}
    weights = _take(stored.weights, [layout, old, whole])
    _unfuse(weights, stored.weights, layout)
    weights["source"] = stored.weights["encoder.embed_tokens.weight"]
    weights["target"] = stored.weights["decoder.embed_tokens.weight"]
    output = stored.weights.get("decoder.output_projection.weight", stored.weights.get("decoder.embed_out"))
    weights["output"] = weights["target"] if output is None else output
    said, width = stored.options.given, weights["target"].shape[1]
    for side in _SIDES if not said("no_token_positional_embeddings") else ():
        learned = stored.weights.get(f"{side}.embed_positions.weight")
        table = sinusoid_table(_LONGEST, width, closed=True, first=2) if learned is None else learned[2:]
        weights[f"positions.{side}"] = table
    names = {"gelu_accurate": "gelu_tanh", "gelu_fast": "gelu_tanh", "swish": "silu"}
    activation = str(said("activation_fn") or "relu")
    return PlainTransformer(
        _floats(weights),
        heads=stored.options.size("decoder_attention_heads"),
        pre_norm=bool(said("decoder_normalize_before")),
        activation=ACTIVATIONS[names.get(activation, activation)],
        epsilon=1e-5,
        scale=1.0 if said("no_scale_embedding") else math.sqrt(width),
    )


def plain_opennmt(stored: Stored) -> PlainTransformer:
    """The transformer of OpenNMT-py 3; the generator's weights stand behind ``generator.``."""
    renamed = {name.replace(".a_2", ".weight").replace(".b_2", ".bias"): each for name, each in stored.weights.items()}
    gated = any(".w_3." in name for name in renamed)
    feed_forward = {"ffn.1": f"feed_forward.w_{3 if gated else 1}", "ffn.2": "feed_forward.w_2"}
    feed_forward |= {"ffn.gate": "feed_forward.w_1"} if gated else {}
    layout = _layout(
        {"encoder": "encoder.transformer.{}", "decoder": "decoder.transformer_layers.{}"},
        ("self_attn", "context_attn"),
        ("linear_query", "linear_keys", "linear_values", "final_linear"),
        feed_forward,
        {
            "encoder.self": "layer_norm",
            "decoder.self": "layer_norm_1",
            "decoder.cross": "layer_norm_2",
            "ffn": "feed_forward.layer_norm",
        },
    )
    whole = {f"{side}.norm": f"{side}.layer_norm" for side in _SIDES}
    weights = _take(renamed, [layout, whole])
    _take_relative(weights, renamed, layout)
    for side, name in (("encoder", "source"), ("decoder", "target")):
        weights[name] = renamed[f"{side}.embeddings.make_embedding.emb_luts.0.weight"]
        if (table := renamed.get(f"{side}.embeddings.make_embedding.pe.pe")) is not None:
            sinusoids = sinusoid_table(_LONGEST, table.shape[2], interleaved=True)
            weights[f"positions.{side}"] = go_on(table.flatten(0, 1), sinusoids)
    weights["output"] = renamed["generator.weight"]
    if (bias := renamed.get("generator.bias")) is not None:
        weights["output.bias"] = bias
    width, heads = weights["target"].shape[1], stored.options.size("heads", 8)
    names = {"gated-gelu": "gelu"}
    activation = stored.options.text("pos_ffn_activation_fn", "relu")
    return PlainTransformer(
        _floats(weights),
        heads=heads,
        pre_norm=True,
        activation=ACTIVATIONS[names.get(activation, activation)],
        epsilon=stored.options.number("norm_eps", 1e-6),
        scale=math.sqrt(width) if "positions.decoder" in weights else 1.0,
        relative_scale=(width / heads) ** -0.5,
    )


def plain_eole(stored: Stored) -> PlainTransformer:
    """The encoder-decoder of eole."""
    model = stored.options.section("model")
    around = model.section("decoder", optional=True, around=True)
    embeddings = model.section("embeddings", optional=True, around=True)
    activation = around.text("mlp_activation_fn", "relu")
    gated = activation.startswith("gated-")
    feed_forward = {"ffn.1": "mlp.up_proj", "ffn.gate": "mlp.gate_up_proj"} if gated else {"ffn.1": "mlp.gate_up_proj"}
    layout = _layout(
        {side: f"{side}.transformer_layers.{{}}" for side in _SIDES},
        ("self_attn", "context_attn"),
        ("linear_query", "linear_keys", "linear_values", "final_linear"),
        feed_forward | {"ffn.2": "mlp.down_proj"},
        {
            "encoder.self": "input_layernorm",
            "decoder.self": "input_layernorm",
            "decoder.cross": "precontext_layernorm",
            "ffn": "post_attention_layernorm",
        },
    )
    weights = _take(stored.weights, [layout, {f"{side}.norm": f"{side}.layer_norm" for side in _SIDES}])
    _take_relative(weights, stored.weights, layout)
    weights["source"] = stored.weights["src_emb.embeddings.weight"]
    weights["target"] = stored.weights.get("tgt_emb.embeddings.weight", weights["source"])
    weights["output"] = stored.weights.get("generator.weight", weights["target"])
    if (bias := stored.weights.get("generator.bias")) is not None:
        weights["output.bias"] = bias
    width = weights["target"].shape[1]
    usual = None if "position_encoding_type" in embeddings.names else "SinusoidalInterleaved"
    kind = embeddings.given("position_encoding_type") or usual
    sinusoids = str(kind).startswith("Sinusoidal")
    scale = math.sqrt(width) if sinusoids or embeddings.flag("normalize", default=False) else 1.0
    if sinusoids:
        interleaved = kind == "SinusoidalInterleaved"
        table = sinusoid_table(_LONGEST, width, interleaved=interleaved, closed=not interleaved)
        weights |= {f"positions.{side}": table for side in _SIDES}
    elif kind == "Learned":
        first = embeddings.integer("position_shift", 0)
        for side, name in zip(_SIDES, ("src_emb", "tgt_emb"), strict=True):
            # The sum of both is scaled.
            weights[f"positions.{side}"] = stored.weights[f"{name}.pe.weight"][first:].float() * scale
    return PlainTransformer(
        _floats(weights),
        heads=around.size("heads", 8),
        pre_norm=True,
        activation=ACTIVATIONS[activation.removeprefix("gated-").replace("-", "_")],
        epsilon=around.number("norm_eps", 1e-5),
        scale=scale,
    )


def plain_joeynmt(stored: Stored) -> PlainTransformer:
    """The transformer of JoeyNMT 2."""
    model = stored.options.section("model")
    decoder = model.section("decoder")
    names = {
        ("encoder", "self"): "src_src_att",
        ("decoder", "self"): "trg_trg_att",
        ("decoder", "cross"): "src_trg_att",
    }
    maps = dict(zip("qkvo", ("q_layer", "k_layer", "v_layer", "output_layer"), strict=True))
    layout = {
        f"{side}.{{}}.{sublayer}.{part}": f"{side}.layers.{{}}.{called}.{map_}"
        for (side, sublayer), called in names.items()
        for part, map_ in maps.items()
    }
    norms = {"encoder.self": "layer_norm", "decoder.self": "x_layer_norm", "decoder.cross": "dec_layer_norm"}
    for place, norm in norms.items():
        side, sublayer = place.split(".")
        layout[f"{side}.{{}}.{sublayer}.norm"] = f"{side}.layers.{{}}.{norm}"
    inside = {"1": "pwff_layer.0", "2": "pwff_layer.3", "norm": "layer_norm"}
    layout |= {
        f"{side}.{{}}.ffn.{part}": f"{side}.layers.{{}}.feed_forward.{called}"
        for side in _SIDES
        for part, called in inside.items()
    }
    weights = _take(stored.weights, [layout, {f"{side}.norm": f"{side}.layer_norm" for side in _SIDES}])
    weights["source"], weights["target"] = (stored.weights[f"{side}_embed.lut.weight"] for side in ("src", "trg"))
    weights["output"] = stored.weights.get("decoder.output_layer.weight", weights["target"])
    for side in _SIDES:
        if (table := stored.weights.get(f"{side}.pe.pe")) is not None:
            sinusoids = sinusoid_table(_LONGEST, table.shape[2], interleaved=True)
            weights[f"positions.{side}"] = go_on(table.flatten(0, 1), sinusoids)
    width = weights["target"].shape[1]
    scaled = decoder.section("embeddings").flag("scale", default=False)
    activation = decoder.text("activation", "relu")
    return PlainTransformer(
        _floats(weights),
        heads=decoder.size("num_heads", 8),
        pre_norm=decoder.text("layer_norm", "post") == "pre",
        activation=ACTIVATIONS["silu" if activation == "swish" else activation],
        epsilon=1e-6,
        scale=math.sqrt(width) if scaled else 1.0,
    )


def plain_sockeye(stored: Stored) -> PlainTransformer:
    """The transformer of Sockeye 3."""
    decoder = stored.options.section("config_decoder")
    heads, pre = decoder.size("attention_heads"), "n" in decoder.text("preprocess_sequence")
    gated = decoder.flag("use_glu", default=False)
    place = "pre" if pre else "post"
    modules = {"encoder.self": "self_attention", "decoder.self": "autoregr_layer", "decoder.cross": "enc_attention"}
    modules |= {f"{side}.ffn": "ff" for side in _SIDES}
    layout: dict[str, str] = {}
    for key, module in modules.items():
        side, sublayer = key.split(".")
        layer = f"{side}.layers.{{}}"
        layout[f"{side}.{{}}.{sublayer}.norm"] = f"{layer}.{place}_{module}.layer_norm"
        if sublayer == "ffn":
            inside = {"1": "linear" if gated else "ff1", "2": "ff2"} | ({"gate": "ff1"} if gated else {})
            layout |= {f"{side}.{{}}.ffn.{part}": f"{layer}.ff.{called}" for part, called in inside.items()}
        else:
            layout[f"{side}.{{}}.{sublayer}.o"] = f"{layer}.{module}.ff_out"
            fused = {"self": "ff_in", "cross": "ff_kv"}[sublayer]
            layout[f"{side}.{{}}.{sublayer}.fused"] = f"{layer}.{module}.{fused}"
            layout |= {f"{side}.{{}}.cross.q": f"{layer}.{module}.ff_q"} if sublayer == "cross" else {}
    weights = _take(stored.weights, [layout, {f"{side}.norm": f"{side}.final_process.layer_norm" for side in _SIDES}])
    for name in [name for name in weights if name.endswith(".fused.weight")]:
        fused_map, key = weights.pop(name), name.removesuffix(".fused.weight")
        width = fused_map.shape[1]
        # Head by head, its keys and then its values; queries before all of them.
        rows = fused_map[-2 * width :].view(heads, 2, width // heads, width)
        weights |= {
            f"{key}.k.weight": rows[:, 0].reshape(width, width),
            f"{key}.v.weight": rows[:, 1].reshape(width, width),
        }
        weights |= {f"{key}.q.weight": fused_map[:width]} if len(fused_map) == 3 * width else {}
    weights["source"], weights["target"] = (
        stored.weights[f"embedding_{side}.embedding.weight"] for side in ("source", "target")
    )
    weights["output"], weights["output.bias"] = (stored.weights[f"output_layer.{kind}"] for kind in ("weight", "bias"))
    width = weights["target"].shape[1]
    for side in _SIDES:
        table = stored.weights.get(f"{side}.pos_embedding.weight")
        weights[f"positions.{side}"] = go_on(table, sinusoid_table(_LONGEST, width))
    activation = decoder.text("act_type")
    return PlainTransformer(
        _floats(weights),
        heads=heads,
        pre_norm=pre,
        activation=ACTIVATIONS["silu" if activation == "swish1" else activation],
        epsilon=1e-6,
        scale=math.sqrt(width),
    )


def _layout(
    layers: Mapping[str, str],
    attentions: tuple[str, str],
    maps: tuple[str, str, str, str],
    feed_forward: Mapping[str, str],
    norms: Mapping[str, str],
) -> dict[str, str]:
    """What modules are called where both stacks call their parts alike."""
    layout: dict[str, str] = {}
    for side, layer in layers.items():
        sublayers = {"self": attentions[0]} | ({"cross": attentions[1]} if side == "decoder" else {})
        for sublayer, called in sublayers.items():
            layout |= {
                f"{side}.{{}}.{sublayer}.{part}": f"{layer}.{called}.{map_}"
                for part, map_ in zip("qkvo", maps, strict=True)
            }
            layout[f"{side}.{{}}.{sublayer}.norm"] = f"{layer}.{norms[f'{side}.{sublayer}']}"
        layout |= {f"{side}.{{}}.{part}": f"{layer}.{called}" for part, called in feed_forward.items()}
        layout[f"{side}.{{}}.ffn.norm"] = f"{layer}.{norms['ffn']}"
    return layout


def _take(stored: Mapping[str, Tensor], layouts: Iterable[Layout]) -> dict[str, Tensor]:
    """The weights of modules under their plain names, of as many layers as there are."""
    found: dict[str, Tensor] = {}
    for ours, theirs in ((ours, theirs) for layout in layouts for ours, theirs in layout.items()):
        for number in range(len(stored) if "{}" in ours else 1):
            parts = {kind: stored.get(f"{theirs.format(number)}.{kind}") for kind in ("weight", "bias")}
            if parts["weight"] is None:
                break
            found |= {f"{ours.format(number)}.{kind}": each for kind, each in parts.items() if each is not None}
    return found


def _unfuse(weights: dict[str, Tensor], stored: Mapping[str, Tensor], layout: Layout) -> None:
    """The maps of queries, keys and values where old versions have them as one."""
    for ours, theirs in layout.items():
        if not ours.endswith(".q"):
            continue
        attention, place = ours.removesuffix(".q"), theirs.rpartition(".")[0]
        for number in range(len(stored)):
            for kind in ("weight", "bias"):
                if (fused := stored.get(f"{place.format(number)}.in_proj_{kind}")) is not None:
                    parts = zip("qkv", fused.chunk(3), strict=True)
                    weights |= {f"{attention.format(number)}.{part}.{kind}": each for part, each in parts}


def _take_relative(weights: dict[str, Tensor], stored: Mapping[str, Tensor], layout: Layout) -> None:
    """The vectors of relative positions of each layer."""
    for side in _SIDES:
        place = layout[f"{side}.{{}}.self.q"].rpartition(".")[0]
        for number in range(len(stored)):
            name = f"{place.format(number)}.relative_positions_embeddings.weight"
            if name in stored:
                weights[f"{side}.{number}.self.relative"] = stored[name]


def _version(weights: Mapping[str, Tensor], side: str) -> float:
    """A stack's version as fairseq counts them; weights that say none are of the first."""
    found = weights.get(f"{side}.version")
    return 1.0 if found is None else float(found.flatten()[0])


def _floats(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.float() for name, each in weights.items()}
