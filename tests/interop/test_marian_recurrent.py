"""Marian's recurrent models against their formulas in NumPy, as Marian's own scores were found to follow them."""

import numpy as np
import pytest
import torch

from tests.plain_transformer import SOURCES, TARGETS, our_logits
from transduce.bundle import load_bundle
from transduce.cli import main
from transduce.config import BadInputError
from transduce.interop.marian_npz import read_marian
from transduce.interop.marian_options import CONFIG

EMBEDDING, HIDDEN, UNITS = 6, 5, 11
OPTIONS = {"type": "s2s", "enc-type": "bidirectional", "enc-cell": "gru", "dec-cell": "gru", "enc-cell-depth": 1}
OPTIONS |= {"dec-cell-base-depth": 2, "dec-cell-high-depth": 1, "layer-normalization": "false", "skip": "false"}
# Marian's ids: </s> is 0 and <unk> 1.
SOURCE, TARGET = [5, 16, 9, 4, 0], [22, 7, 7, 11]
AMUN = {
    **{f"decoder_cell1_{each}": f"decoder_{each}" for each in ("U", "Ux", "W", "Wx", "b", "bx")},
    **{f"decoder_cell2_{each}": f"decoder_{each}_nl" for each in ("U", "Ux", "b", "bx")},
    **{"decoder_cell2_W": "decoder_Wc", "decoder_cell2_Wx": "decoder_Wcx"},
    **{f"encoder_bi_{each}": f"encoder_{each}" for each in ("U", "Ux", "W", "Wx", "b", "bx")},
    **{f"encoder_bi_r_{each}": f"encoder_r_{each}" for each in ("U", "Ux", "W", "Wx", "b", "bx")},
    **{
        f"decoder_ff_logit_l1_{kind}{number}": f"ff_logit_{name}_{kind}"
        for kind in "Wb"
        for number, name in enumerate(("prev", "lstm", "ctx"))
    },
    **{"decoder_ff_logit_l2_W": "ff_logit_W", "decoder_ff_logit_l2_b": "ff_logit_b"},
    **{"decoder_ff_state_W": "ff_state_W", "decoder_ff_state_b": "ff_state_b"},
    **{"encoder_Wemb": "Wemb", "decoder_Wemb": "Wemb_dec"},
}


class Plain:
    """A model of random weights, as s2s names them, in float64."""

    def __init__(self, *, enc_type="bidirectional", encoder=1, decoder=1, own=True):
        self.draws = np.random.default_rng(1)
        self.arrays, self.enc_type, self.encoder, self.decoder = {}, enc_type, encoder, decoder
        both = HIDDEN if enc_type == "bi-unidirectional" and encoder > 1 else 2 * HIDDEN
        for stack in ("encoder_bi", "encoder_bi_r"):
            self.add_cell(stack, EMBEDDING)
            for number in range(2, encoder + 1) if enc_type == "alternating" else ():
                self.add_cell(f"{stack}_l{number}_cell1", HIDDEN)
        for number in range(2, encoder + 1) if enc_type == "bi-unidirectional" else ():
            self.add_cell(f"encoder_l{number}_cell1", 2 * HIDDEN if number == 2 else HIDDEN)
        self.add_cell("decoder_cell1", EMBEDDING)
        self.add_cell("decoder_cell2", both)
        for number in range(2, decoder + 1):
            self.add_cell(f"decoder_l{number}_cell1", HIDDEN)
        self.add("decoder_W_comb_att", HIDDEN, UNITS)
        self.add("decoder_Wc_att", both, UNITS)
        self.add("decoder_b_att", 1, UNITS)
        self.add("decoder_U_att", UNITS, 1)
        self.add("decoder_ff_state_W", both, HIDDEN)
        self.add("decoder_ff_state_b", 1, HIDDEN)
        for number, width in enumerate((EMBEDDING, HIDDEN, both)):
            self.add(f"decoder_ff_logit_l1_W{number}", width, EMBEDDING)
            self.add(f"decoder_ff_logit_l1_b{number}", 1, EMBEDDING)
        self.add("decoder_ff_logit_l2_b", 1, TARGETS)
        if own:
            self.add("encoder_Wemb", SOURCES, EMBEDDING)
            self.add("decoder_Wemb", TARGETS, EMBEDDING)
            self.add("decoder_ff_logit_l2_W", EMBEDDING, TARGETS)
        else:
            self.add("Wemb", TARGETS, EMBEDDING)

    def add(self, name, *shape):
        self.arrays[name] = self.draws.normal(0, 0.5, shape).astype(np.float32)

    def add_cell(self, place, inputs):
        for name, width in (("", 2 * HIDDEN), ("x", HIDDEN)):
            self.add(f"{place}_U{name}", HIDDEN, width)
            self.add(f"{place}_W{name}", inputs, width)
            self.add(f"{place}_b{name}", 1, width)

    def __getitem__(self, name):
        return self.arrays[name].astype(np.float64)

    def cell(self, place, x, state, *, last=False):
        gates = 1 / (1 + np.exp(-(x @ self[f"{place}_W"] + state @ self[f"{place}_U"] + self[f"{place}_b"][0])))
        reset, update = gates[:HIDDEN], gates[HIDDEN:]
        bias, of_state = self[f"{place}_bx"][0], state @ self[f"{place}_Ux"]
        inside = reset * (of_state + bias) if last else reset * of_state + bias
        return (1 - update) * np.tanh(x @ self[f"{place}_Wx"] + inside) + update * state

    def run(self, place, inputs, *, turned=False):
        states, state = [], np.zeros(HIDDEN)
        for x in inputs[::-1] if turned else inputs:
            state = self.cell(place, x, state)
            states.append(state)
        return states[::-1] if turned else states

    def encode(self, source):
        embedded = [*self["encoder_Wemb" if "encoder_Wemb" in self.arrays else "Wemb"][source]]
        stacks = []
        for turned, place in enumerate(("encoder_bi", "encoder_bi_r")):
            states = self.run(place, embedded, turned=bool(turned))
            for number in range(2, self.encoder + 1) if self.enc_type == "alternating" else ():
                states = self.run(f"{place}_l{number}_cell1", states, turned=(number + turned) % 2 == 0)
            stacks.append(states)
        context = [np.concatenate(pair) for pair in zip(*stacks, strict=True)]
        for number in range(2, self.encoder + 1) if self.enc_type == "bi-unidirectional" else ():
            context = self.run(f"encoder_l{number}_cell1", context)
        return np.stack(context)

    def logits(self, source, target):
        context = self.encode(source)
        start = np.tanh(context.mean(0) @ self["decoder_ff_state_W"] + self["decoder_ff_state_b"][0])
        states, found = [start] * self.decoder, []
        table = self["decoder_Wemb" if "decoder_Wemb" in self.arrays else "Wemb"]
        for y in [np.zeros(EMBEDDING), *table[target]]:
            state = self.cell("decoder_cell1", y, states[0])
            keys = context @ self["decoder_Wc_att"] + self["decoder_b_att"]
            scores = np.exp(np.tanh(keys + state @ self["decoder_W_comb_att"]) @ self["decoder_U_att"][:, 0])
            read = scores / scores.sum() @ context
            states[0] = self.cell("decoder_cell2", read, state, last=True)
            for number in range(2, self.decoder + 1):
                states[number - 1] = self.cell(f"decoder_l{number}_cell1", states[number - 2], states[number - 1])
            parts = zip(range(3), (y, states[-1], read), strict=True)
            made = sum(x @ self[f"decoder_ff_logit_l1_W{i}"] + self[f"decoder_ff_logit_l1_b{i}"][0] for i, x in parts)
            output = self["decoder_ff_logit_l2_W"] if "decoder_ff_logit_l2_W" in self.arrays else table.T
            found.append(np.tanh(made) @ output + self["decoder_ff_logit_l2_b"][0])
        return torch.from_numpy(np.stack(found)).float()


def write(folder, plain, *, amun=False, **options):
    arrays = {AMUN.get(name, name) if amun else name: each for name, each in plain.arrays.items()}
    if amun:
        arrays["decoder_c_tt"] = np.zeros((1, 0), np.float32)
    said = OPTIONS | {"enc-type": plain.enc_type, "enc-depth": plain.encoder, "dec-depth": plain.decoder}
    lines = "".join(f"{name}: {value}\n" for name, value in (said | options).items())
    np.savez(folder / "model.npz", **arrays, **{CONFIG: np.frombuffer(lines.encode() + b"\0", np.int8)})
    for name, size in (("source", SOURCES), ("target", TARGETS)):
        symbols = ["</s>", "<unk>", *(f"{name}{number}" for number in range(2, size))]
        (folder / f"{name}.yml").write_text("".join(f"{each}: {number}\n" for number, each in enumerate(symbols)))
    return folder / "model.npz"


def ours(number):
    return {0: 2, 1: 3}.get(number, number + 2)


def read(path, *, own=True):
    return read_marian(path, (path.with_name("source.yml" if own else "target.yml"), path.with_name("target.yml")))


VARIANTS = {
    "one layer": {},
    "one matrix": {"own": False},
    "deep": {"enc_type": "bi-unidirectional", "encoder": 3, "decoder": 3},
    "by turns": {"enc_type": "alternating", "encoder": 3, "decoder": 2},
}


@pytest.mark.parametrize("amun", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_logits(tmp_path, name, amun):
    plain = Plain(**VARIANTS[name])
    own = VARIANTS[name].get("own", True)
    tied = {"tied-embeddings-all": "true"} if not own else {}
    path = write(tmp_path, plain, amun=amun, **tied, **({"type": "amun"} if amun else {}), **{"label-smoothing": 0.2})
    bundle = read(path, own=own)
    found = our_logits(bundle, [ours(each) for each in SOURCE], [1, *(ours(each) for each in TARGET)])
    expected = plain.logits(SOURCE, TARGET)
    torch.testing.assert_close(found[:, [ours(each) for each in range(TARGETS)]], expected, atol=2e-5, rtol=1e-5)
    assert found[:, :2].max() < -50  # neither padding nor the begin symbol is ever written
    assert (bundle.config.source_vocab_size is not None) == own
    assert (bundle.config.attention, bundle.config.label_smoothing) == ("conditional", 0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer-normalization": "true"}, "layer-normalization = True"),
        ({"skip": "true"}, "skip = True"),
        ({"enc-cell": "lstm"}, "enc-cell = 'lstm'"),
        ({"dec-cell": "tanh"}, "dec-cell = 'tanh'"),
        ({"enc-cell-depth": 2}, "enc-cell-depth = 2"),
        ({"dec-cell-base-depth": 4}, "dec-cell-base-depth = 4"),
        ({"enc-depth": 2}, "enc-type = 'bidirectional'"),
        ({"enc-depth": "two"}, "enc-depth = 'two': a whole number"),
        ({"right-left": "true"}, "right-left = True"),
        ({"type": "multi-s2s"}, "type = 'multi-s2s'"),
        ({"dec-depth": 2}, "decoder_l2_cell1_b is missing"),
        ({"enc-depth": 10**9, "enc-type": "alternating"}, "enc-depth = 1000000000"),
    ],
)
def test_what_ours_cannot_say_is_refused_by_name(tmp_path, options, message):
    with pytest.raises(BadInputError, match=message) as refused:
        read(write(tmp_path, Plain(), **options))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("decoder_cell2_Ux", None, "decoder_cell2_Ux is missing"),
        ("decoder_W_comb_att", np.ones((3, 3, 3), np.float32), "has 3 axes"),
        ("decoder_cell1_Ux", np.ones((HIDDEN, 3), np.float32), "has shape"),
        ("decoder_cell1_Ux", np.ones((2, 3), np.float32), "decoder_cell1_U and decoder_cell1_Ux do not go together"),
        ("decoder_ff_logit_l1_b1", np.ones((1, 2), np.float32), "decoder_ff_logit_l1_b0 do not go together"),
        ("decoder_l9_cell1_U", np.ones((2, 2), np.float32), "decoder_l9_cell1_U among the weights"),
        ("decoder_U_att", np.full((UNITS, 1), np.nan, np.float32), "no finite numbers"),
    ],
)
def test_damaged_weights(tmp_path, name, array, message):
    plain = Plain()
    plain.arrays = {each: tensor for each, tensor in (plain.arrays | {name: array}).items() if tensor is not None}
    with pytest.raises(BadInputError, match=message) as refused:
        read(write(tmp_path, plain))
    assert len(str(refused.value).splitlines()) == 1


def test_the_verb_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr("transduce.interop.marian_reference.has_marian", lambda: False)
    (tmp_path / "theirs").mkdir()
    path = write(tmp_path / "theirs", Plain())
    (tmp_path / "theirs" / "model.npz.decoder.yml").write_text("vocabs: [source.yml, target.yml]\nbeam-size: 3\n")
    assert main._run(["import", str(path), "--out", str(tmp_path / "ours")]) == 0
    found = load_bundle(tmp_path / "ours")
    assert (found.config.architecture, found.generation.beam_size) == ("recurrent", 3)
