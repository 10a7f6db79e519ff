"""Models around ``torch.nn.Transformer`` compute here what PyTorch's own module computes."""

import math

import pytest
import torch
from torch import nn

from tests.plain_transformer import (
    D_FF,
    D_MODEL,
    DECODER_LAYERS,
    ENCODER_LAYERS,
    HEADS,
    SOURCES,
    TARGETS,
    our_logits,
    sinusoid_table,
)
from transduce.config import BadInputError
from transduce.interop import read_torch_nn, torch_nn

# By its ids: <unk> 0, <pad> 1, <bos> 2, <eos> 3.
SOURCE, TARGET = [5, 16, 9, 4, 3], [2, 22, 7, 7, 11]


class Embedded(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(size, D_MODEL)


class Translation(nn.Module):
    """As PyTorch's tutorial has it."""

    def __init__(self, table, **settings):
        super().__init__()
        self.transformer = nn.Transformer(
            D_MODEL, HEADS, ENCODER_LAYERS, DECODER_LAYERS, D_FF, batch_first=True, **settings
        )
        self.src_tok_emb, self.tgt_tok_emb = Embedded(SOURCES), Embedded(TARGETS)
        self.generator = nn.Linear(D_MODEL, TARGETS)
        self.positional_encoding = nn.Module()
        self.positional_encoding.register_buffer("pos_embedding", table.unsqueeze(1))

    def forward(self, source, target):
        def embed(ids, table):
            positions = self.positional_encoding.pos_embedding[: len(ids), 0]
            return (math.sqrt(D_MODEL) * table.embedding.weight[ids] + positions).unsqueeze(0)

        mask = nn.Transformer.generate_square_subsequent_mask(len(target))
        hidden = self.transformer(embed(source, self.src_tok_emb), embed(target, self.tgt_tok_emb), tgt_mask=mask)
        return self.generator(hidden)[0]


def make(table=None, **settings):
    torch.manual_seed(3)
    model = Translation(sinusoid_table(50, interleaved=True) if table is None else table, **settings).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=float("norm" in name and name.endswith("weight")), std=0.3)
    return model


def write(folder, state, text=f"heads = {HEADS}\n"):
    torch.save(state, folder / "model.pt")
    for side, size in (("source", SOURCES), ("target", TARGETS)):
        symbols = ["<unk>", "<pad>", "<bos>", "<eos>", *(f"{side}{number}" for number in range(4, size))]
        (folder / f"{side}.txt").write_text("".join(f"{symbol}\n" for symbol in symbols))
    said = "" if "source_begin" in text else "source_begin = false\n"
    (folder / "model.toml").write_text(said + text)
    return folder / "model.toml"


def test_the_documented_file_is_read(tmp_path):
    path = tmp_path / "model.toml"
    path.write_text(torch_nn.__doc__.split("\n", 2)[2])
    said = torch_nn.read_description(path)
    assert (said.weights, said.heads, said.names) == ("model.pt", 8, torch_nn.Places())


def ours(number):
    return {0: 3, 1: 0, 2: 1, 3: 2}.get(number, number)


def check(path, model):
    bundle = read_torch_nn(path)
    found = our_logits(bundle, [ours(each) for each in SOURCE], [ours(each) for each in TARGET])
    with torch.no_grad():
        expected = model(SOURCE, TARGET)
    torch.testing.assert_close(found[:, [ours(each) for each in range(TARGETS)]], expected, atol=2e-5, rtol=1e-5)
    return bundle


@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
def test_as_the_module_computes(tmp_path, norm_first, activation):
    model = make(norm_first=norm_first, activation=activation)
    text = f"heads = {HEADS}\nnorm_first = {str(norm_first).lower()}\nactivation = '{activation}'\n"
    bundle = check(write(tmp_path, model.state_dict(), text), model)
    assert bundle.config.final_norm  # it has one behind post-norm stacks too
    assert bundle.config.positions == "sinusoidal"
    assert bundle.tokenizers.target.tokens([5]) == ["target5"]


def test_without_biases_and_with_a_table_of_its_own(tmp_path):
    table = torch.randn(11, D_MODEL, generator=torch.Generator().manual_seed(2))
    model = make(table, bias=False)
    state = {name.replace("tgt_tok_emb", "out"): tensor for name, tensor in model.state_dict().items()}
    text = f"heads = {HEADS}\n[names]\ntarget_embedding = 'out.embedding.weight'\n"
    bundle = check(write(tmp_path, state, text), model)
    assert (bundle.config.positions, bundle.config.max_positions) == ("learned", 11)
    assert not bundle.config.attention_bias


def test_the_papers_sinusoids_that_are_not_stored(tmp_path):
    model = make()
    state = {name: tensor for name, tensor in model.state_dict().items() if "positional" not in name}
    check(write(tmp_path, state, f"heads = {HEADS}\npositions = 'sinusoidal'\n"), model)
    with pytest.raises(BadInputError, match=r"positional_encoding\.pos_embedding is missing"):
        read_torch_nn(write(tmp_path, state))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"model\.toml: heads is missing: a whole number from 1 to 1,048,576 belongs there"),
        ("heads = 3", "heads = 3"),
        ("heads = 5\nsource_begin = true", "source_begin = True: no encoder of ours reads a begin symbol"),
        ("heads = 5\nsource_begin = ''", "source_begin = '': true or false belongs here"),
        ("heads = '5'", r"model\.toml: heads = '5': a whole number from 1"),
        ("heads = -5", "heads = -5: a whole number from 1"),
        ("heads = 2000000", "heads = 2000000: a whole number from 1"),
        ("heads = 5\nnorm = 'pre'", "norm = 'pre': unknown, of weights, "),
        ("heads = 5\nnorm_first = 'no'", "norm_first = 'no': true or false belongs here"),
        ("heads = 5\nnorm_epsilon = [1]", r"norm_epsilon = \[1\]: a number from 0 belongs here"),
        ("heads = 5\nnorm_epsilon = nan", "norm_epsilon = nan: a number from 0 belongs here"),
        ("heads = 5\nweights = '../model.pt'", "weights = '../model.pt': the name of a file in the same folder"),
        ("heads = 5\nweights = ''", "weights = '': the name of a file in the same folder"),
        ("heads = 5\nweights = 3", "weights = 3: text belongs here"),
        ("heads = 5\nactivation = 'tanh'", "activation = 'tanh': no model of ours has it, only 'relu'"),
        ("heads = 5\nnames = 3", "names = 3: a section with options by name belongs here"),
        ("heads = 5\n[names]\nsource_embedding = 'x'", "x is missing among the weights"),
        ("heads = 5\n[names]\nembedding = 'x'", "names.embedding = 'x': unknown"),
        ("heads = 5\n[symbols]\nend = '</s>'", "the vocabulary lacks </s>"),
        ("heads = 5\n[symbols]\nend = 2", "symbols.end = 2: text belongs here"),
        ("heads = ", "not readable TOML"),
    ],
)
def test_wrong_descriptions(tmp_path, text, message):
    with pytest.raises(BadInputError, match=message) as refused:
        read_torch_nn(write(tmp_path, make().state_dict(), text))
    assert len(str(refused.value).splitlines()) == 1


def test_weights_that_ours_has_no_place_for(tmp_path):
    state = make().state_dict() | {"adapter.weight": torch.ones(3)}
    with pytest.raises(BadInputError, match=r"adapter\.weight among the weights"):
        read_torch_nn(write(tmp_path, state))


LOST = "transformer.decoder.layers.0.norm2.bias"
FUSED = "transformer.encoder.layers.0.self_attn.in_proj_bias"
POSITIONS = "positional_encoding.pos_embedding"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({LOST: None}, r"model\.pt: decoder\.layers\.0\.norm2\.bias is missing among the weights"),
        ({FUSED: torch.tensor(0.5)}, rf"model\.pt: {FUSED} has no axes where rows belong"),
        ({POSITIONS: torch.tensor(0.5)}, rf"model\.pt: {POSITIONS} has shape \(\) where a row for each position"),
        ({FUSED: torch.ones(3 * D_MODEL).int()}, rf"model\.pt: {FUSED} is of int32: only weights of float16"),
    ],
)
def test_damaged_weights(tmp_path, changes, message):
    state = {name: each for name, each in (make().state_dict() | changes).items() if each is not None}
    with pytest.raises(BadInputError, match=message):
        read_torch_nn(write(tmp_path, state))
