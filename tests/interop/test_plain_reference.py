"""What imports are compared with where their library is not run: a plain computation of the stored weights."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

from tests.interop import test_eole, test_interop_fairseq, test_joeynmt, test_opennmt, test_sockeye, test_torch_nn
from tests.plain_transformer import (
    D_MODEL,
    DECODER_LAYERS,
    ENCODER_LAYERS,
    HEADS,
    TARGETS,
    random_weights,
    sinusoid_table,
)
from transduce.config import BadInputError, TransduceError
from transduce.interop import (
    certify,
    open_plain,
    open_torch_nn,
    read_eole,
    read_fairseq,
    read_joeynmt,
    read_opennmt,
    read_sockeye,
    read_torch_nn,
)
from transduce.interop.joeynmt import load_joeynmt
from transduce.interop.layer_walk import find_parting, layer_outputs
from transduce.interop.logits import as_tokens, compare
from transduce.interop.plain_layouts import plain_joeynmt
from transduce.interop.plain_reference import ComputedReference
from transduce.interop.plain_search import beam_search
from transduce.interop.plain_transformer import go_on

READERS = {
    "fairseq": read_fairseq,
    "opennmt": read_opennmt,
    "eole": read_eole,
    "joeynmt": read_joeynmt,
    "sockeye": read_sockeye,
}
PAIRS = [([5, 9, 4, 4, 7], [11, 7, 7, 20, 4, 5, 6]), ([16], [])]


def table(length):
    return 0.3 * torch.randn(length, D_MODEL, generator=torch.Generator().manual_seed(2))


def relative(layers, name):
    draws = torch.Generator().manual_seed(3)
    return {
        name.format(side, number): torch.randn(5, D_MODEL // HEADS, generator=draws)
        for side, count in layers.items()
        for number in range(count)
    }


def fairseq_of_before_2019(folder):
    state = test_interop_fairseq.state_dict(random_weights())
    for side, count in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS)):
        for number in range(count):
            layer = f"{side}.layers.{number}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for kind in ("weight", "bias"):
                    parts = [state.pop(f"{layer}.{attention}.{letter}_proj.{kind}") for letter in "qkv"]
                    state[f"{layer}.{attention}.in_proj_{kind}"] = torch.cat(parts)
            names = ["self_attn_layer_norm", *(["encoder_attn_layer_norm"] * (side == "decoder")), "final_layer_norm"]
            for place, name in enumerate(names):
                for kind in ("weight", "bias"):
                    state[f"{layer}.layer_norms.{place}.{kind}"] = state.pop(f"{layer}.{name}.{kind}")
    state["decoder.embed_out"] = state.pop("decoder.output_projection.weight")
    return test_interop_fairseq.write(folder, state)


def fairseq_with_learned_positions(folder):
    state = test_interop_fairseq.state_dict(random_weights(embedding_norm=True))
    state |= {f"{side}.embed_positions.weight": table(2 + 41) for side in ("encoder", "decoder")}
    options = {"encoder_learned_pos": True, "decoder_learned_pos": True, "no_scale_embedding": True}
    return test_interop_fairseq.write(folder, state, activation_fn="gelu_fast", **options)


def opennmt_relative(folder):
    vectors = relative(
        {"encoder.transformer": ENCODER_LAYERS, "decoder.transformer_layers": DECODER_LAYERS},
        "{}.{}.self_attn.relative_positions_embeddings.weight",
    )
    weights = random_weights(output_bias=True, gated=True, bias=False)
    options = {"max_relative_positions": 2, "position_encoding": False, "pos_ffn_activation_fn": "gated-gelu"}
    return test_opennmt.write(folder, weights, more=vectors, **options)


def eole_learned(folder):
    settings = test_eole.config(
        model={"mlp_activation_fn": "gated-gelu-tanh"},
        embeddings={"position_encoding_type": "Learned", "n_positions": 47, "position_shift": 2, "normalize": True},
    )
    tables = {f"{side}.pe.weight": table(47) for side in ("src_emb", "tgt_emb")}
    return test_eole.write(folder, random_weights(output_bias=True, gated=True), more=tables, settings=settings)


def eole_relative(folder):
    vectors = relative(
        {"encoder": ENCODER_LAYERS, "decoder": DECODER_LAYERS},
        "{}.transformer_layers.{}.self_attn.relative_positions_embeddings.weight",
    )
    settings = test_eole.config(embeddings={"position_encoding_type": "Relative", "n_positions": 2})
    return test_eole.write(folder, random_weights(output_bias=True), more=vectors, settings=settings)


def eole_concatenated(folder):
    settings = test_eole.config(embeddings={"position_encoding_type": "SinusoidalConcat"})
    tables = {f"{side}.pe.pe": sinusoid_table(50, closed=True).unsqueeze(1).clone() for side in ("src_emb", "tgt_emb")}
    return test_eole.write(folder, random_weights(output_bias=True), more=tables, settings=settings)


def sockeye_gated(folder):
    config = test_sockeye.settings(both=test_sockeye.POST | {"act_type": "swish1", "use_glu": True})
    return test_sockeye.write(folder, test_sockeye.model_weights(gated=True), pre=False, config=config)


def sockeye_learned(folder):
    config = test_sockeye.settings(both={"positional_embedding_type": "learned", "act_type": "gelu"})
    return test_sockeye.write(folder, test_sockeye.model_weights(), table=table(41), config=config)


MODELS = {
    "fairseq": (
        "fairseq",
        lambda folder: test_interop_fairseq.write(folder, test_interop_fairseq.state_dict(random_weights())),
    ),
    "fairseq, before 2019": ("fairseq", fairseq_of_before_2019),
    "fairseq, learned positions": ("fairseq", fairseq_with_learned_positions),
    "OpenNMT-py": ("opennmt", lambda folder: test_opennmt.write(folder, random_weights(output_bias=True))),
    "OpenNMT-py, relative positions": ("opennmt", opennmt_relative),
    "eole": ("eole", lambda folder: test_eole.write(folder, random_weights(output_bias=True))),
    "eole, learned positions": ("eole", eole_learned),
    "eole, relative positions": ("eole", eole_relative),
    "eole, concatenated sinusoids": ("eole", eole_concatenated),
    "JoeyNMT": ("joeynmt", lambda folder: test_joeynmt.write(folder, random_weights())),
    "JoeyNMT, norms behind": ("joeynmt", lambda folder: test_joeynmt.write(folder, random_weights(), pre=False)),
    "Sockeye": ("sockeye", lambda folder: test_sockeye.write(folder, test_sockeye.model_weights())),
    "Sockeye, gated": ("sockeye", sockeye_gated),
    "Sockeye, learned positions": ("sockeye", sockeye_learned),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_the_readers_read(tmp_path, name):
    format_, write = MODELS[name]
    path = write(tmp_path)
    bundle, reference = READERS[format_](path), open_plain(path, format_)
    special = bundle.tokenizers.special
    compared = compare(bundle.model, special, reference, PAIRS)
    assert compared.same, compared
    assert compared.count > 8 * (TARGETS - 2)
    pair = PAIRS[0]
    theirs = reference.layers(*pair)
    assert len(theirs) == ENCODER_LAYERS + DECODER_LAYERS
    assert find_parting(bundle.model, layer_outputs(bundle.model, *as_tokens(pair, special)), theirs) is None


@pytest.mark.parametrize("settings", [{}, {"norm_first": True, "activation": "gelu"}, {"bias": False}])
def test_the_module_itself_computes_what_its_reader_reads(tmp_path, settings):
    made = test_torch_nn.make(**settings)
    text = f"heads = {HEADS}\n" + ("norm_first = true\nactivation = 'gelu'\n" if "norm_first" in settings else "")
    path = test_torch_nn.write(tmp_path, made.state_dict(), text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bundle, reference = read_torch_nn(path), open_torch_nn(path)
    compared = compare(bundle.model, bundle.tokenizers.special, reference, PAIRS)
    assert compared.same, compared
    assert len(reference.layers(*PAIRS[0])) == ENCODER_LAYERS + DECODER_LAYERS


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("learned", [False, True])
def test_the_module_computes_in_float32_whatever_is_stored(tmp_path, kind, learned):
    made = test_torch_nn.make(table(11) if learned else None)
    path = test_torch_nn.write(tmp_path, {name: each.to(kind) for name, each in made.state_dict().items()})
    bundle, reference = read_torch_nn(path), open_torch_nn(path)
    assert bundle.config.positions == ("learned" if learned else "sinusoidal")
    compared = compare(bundle.model, bundle.tokenizers.special, reference, PAIRS)
    assert compared.same, compared


def test_sinusoids_of_fewer_bits_stand_for_those_that_were_rounded():
    exact = sinusoid_table(50, interleaved=True)
    for kind in (torch.float16, torch.bfloat16):
        assert torch.equal(go_on(exact[:20].to(kind), exact), exact)
        assert torch.equal(go_on(exact.to(kind), exact[:20])[:20], exact[:20])
    slightly = exact[:20] + 1e-4
    assert torch.equal(go_on(slightly, exact), torch.cat([slightly, exact[20:]]))
    assert torch.equal(go_on(table(20).half(), exact), table(20).half().float())


def test_a_module_that_cannot_be_made_is_told_in_its_words(tmp_path):
    """Its linear maps have no biases, and its norms have some: no one setting of the module makes that."""
    state = test_torch_nn.make().state_dict()
    bare = {name: each for name, each in state.items() if not name.endswith(("linear1.bias", "linear2.bias"))}
    path = test_torch_nn.write(tmp_path, bare)
    with pytest.raises(
        TransduceError, match=r"model\.pt: torch\.nn\.Transformer cannot compute this model: Error"
    ) as told:
        open_torch_nn(path)
    assert len(str(told.value).splitlines()) == 1


class Broken:
    """Whatever is asked of it, its library fails."""

    name, versions, weights = "Broken", {"broken": "3.1"}, ()

    def logits(self, *_):
        raise RuntimeError("no such\nkernel")


def test_what_a_library_says_while_it_computes_is_told(tmp_path):
    bundle = read_joeynmt(test_joeynmt.write(tmp_path, random_weights()))
    with pytest.raises(TransduceError, match=r"^Broken cannot compute this model: no such kernel \(--no-prove"):
        compare(bundle.model, bundle.tokenizers.special, Broken(), PAIRS)


def test_a_decoder_that_begins_with_no_symbol_is_refused(tmp_path):
    stored = load_joeynmt(test_joeynmt.write(tmp_path, random_weights()))
    target = stored.sides.target
    sides = replace(stored.sides, target=replace(target, rows=(target.rows[0], -1, *target.rows[2:])))
    with pytest.raises(BadInputError, match=r"best\.ckpt: the target's vocabulary lacks the symbol"):
        ComputedReference("JoeyNMT", plain_joeynmt(stored), sides, stored.paths, source_end=True)


def test_what_a_reader_takes_for_something_else_is_told_with_its_layer(tmp_path):
    path = test_joeynmt.write(tmp_path, random_weights())
    bundle = read_joeynmt(path)
    with torch.no_grad():
        bundle.model.decoder[1].self_attention.key.weight.mul_(1.01)
    weights = [path / "700.ckpt"]
    with pytest.raises(
        TransduceError, match=r"JoeyNMT's weights in PyTorch's functions computes otherwise.*decoder layer 2"
    ):
        certify(bundle, open_plain(path, "joeynmt"), ["a b", "c"], weights=weights)


def test_the_search_finds_what_all_outputs_have_as_their_best():
    """Three symbols, at most three long: with a beam of all of them, the best of all 15 outputs."""
    draws = torch.Generator().manual_seed(5)
    scores = {(): torch.randn(4, generator=draws)}
    for first in (1, 2, 3):
        scores[first,] = torch.randn(4, generator=draws)
        for second in (1, 2, 3):
            scores[first, second] = torch.randn(4, generator=draws)

    def next_logits(prefixes, rows):
        return torch.stack([scores[tuple(each[1:])] for each in prefixes.tolist()])

    def probability(output):
        total = 0.0
        for place, symbol in enumerate([*output, 0]):
            total += float(scores[output[:place]].log_softmax(-1)[symbol])
        return total

    # Symbol 3 is never written, and an output of two symbols has its end as its third.
    outputs = [(), (1,), (2,), *((a, b) for a in (1, 2) for b in (1, 2))]
    best = max(outputs, key=probability)
    assert tuple(beam_search(next_logits, 9, 0, {3}, 9, 3)) == best
    assert beam_search(next_logits, 9, 0, {1, 2, 3}, 9, 3) == []
    assert math.isfinite(probability(best))
