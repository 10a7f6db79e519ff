"""The model against torch.nn's own layers with the same weights, and against itself."""

import pytest
import torch
from torch import nn

from tests.model_variants import VARIANTS
from tests.sparing import every
from transduce.config import TransformerConfig, preset
from transduce.layers import FeedForward, MultiHeadAttention, Residual, sinusoids
from transduce.models import AttentionRequest, Model, Tokens, Transformer, build, make_ready
from transduce.models.stacks import DecoderLayer, EncoderLayer

pytest_plugins = ["model_variants"]

SIZES = {
    "encoder_layers": 2,
    "decoder_layers": 3,
    "d_model": 28,
    "d_ff": 44,
    "heads": 4,
    "vocab_size": 31,
    "dropout": 0,
}


def config(**changes: object) -> TransformerConfig:
    return TransformerConfig.model_validate({**SIZES, "norm_epsilon": 1e-5, **changes})


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    assert isinstance(ours, MultiHeadAttention)
    assert theirs.in_proj_weight is not None
    theirs.in_proj_weight.data = torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]).detach().clone()
    theirs.out_proj.weight.data = ours.output.weight.detach().clone()
    if ours.query.bias is not None:
        theirs.in_proj_bias.data = torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]).detach().clone()
        theirs.out_proj.bias.data = ours.output.bias.detach().clone()
    else:
        theirs.in_proj_bias.data.zero_()
        theirs.out_proj.bias.data.zero_()


def copy_norm(ours: Residual, theirs: nn.LayerNorm) -> None:
    theirs.load_state_dict(ours.norm.state_dict())


def copy_feed_forward(ours: nn.Module, theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> None:
    assert isinstance(ours, FeedForward)
    theirs.linear1.load_state_dict(ours.inner.state_dict())
    theirs.linear2.load_state_dict(ours.outer.state_dict())


def torch_encoder_layer(layer: EncoderLayer, settings: TransformerConfig) -> nn.TransformerEncoderLayer:
    theirs = nn.TransformerEncoderLayer(
        settings.d_model, settings.heads, settings.d_ff, 0.0, batch_first=True, norm_first=settings.norm == "pre"
    )
    copy_attention(layer.self_attention, theirs.self_attn)
    copy_norm(layer.self_attention_residual, theirs.norm1)
    copy_norm(layer.feed_forward_residual, theirs.norm2)
    copy_feed_forward(layer.feed_forward, theirs)
    return theirs


def torch_decoder_layer(layer: DecoderLayer, settings: TransformerConfig) -> nn.TransformerDecoderLayer:
    theirs = nn.TransformerDecoderLayer(
        settings.d_model, settings.heads, settings.d_ff, 0.0, batch_first=True, norm_first=settings.norm == "pre"
    )
    copy_attention(layer.self_attention, theirs.self_attn)
    copy_attention(layer.cross_attention, theirs.multihead_attn)
    copy_norm(layer.self_attention_residual, theirs.norm1)
    copy_norm(layer.cross_attention_residual, theirs.norm2)
    copy_norm(layer.feed_forward_residual, theirs.norm3)
    copy_feed_forward(layer.feed_forward, theirs)
    return theirs


class TorchTransformer(nn.Module):
    """The same model with torch.nn's layers in the place of ours."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        self.settings = ours.config
        self.embedding = nn.Parameter(ours.embedding.weight.detach().clone())
        self.encoder = nn.ModuleList(
            torch_encoder_layer(layer, ours.config) for layer in ours.encoder if isinstance(layer, EncoderLayer)
        )
        self.decoder = nn.ModuleList(
            torch_decoder_layer(layer, ours.config) for layer in ours.decoder if isinstance(layer, DecoderLayer)
        )

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = sinusoids(torch.arange(ids.shape[1]), self.settings.d_model, "interleaved", "open")
        scale = float(self.settings.d_model**0.5) if self.settings.scale_embedding else 1.0
        return self.embedding[ids] * scale + positions

    def forward(self, source: Tokens, target: Tokens, labels: torch.Tensor) -> torch.Tensor:
        hidden = (self.settings.d_model,)
        norm = self.settings.final_norm
        padding = torch.arange(source.ids.shape[1]) >= source.lengths.unsqueeze(1)
        future = torch.ones(target.ids.shape[1], target.ids.shape[1], dtype=torch.bool).triu(1)
        memory = self.embed(source.ids)
        for layer in self.encoder:
            memory = layer(memory, src_key_padding_mask=padding)
        memory = nn.functional.layer_norm(memory, hidden) if norm else memory
        x = self.embed(target.ids)
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=future, memory_key_padding_mask=padding)
        x = nn.functional.layer_norm(x, hidden) if norm else x
        real = torch.arange(labels.shape[1]) < target.lengths.unsqueeze(1)
        logits = (x @ self.embedding.T)[real]
        loss: torch.Tensor = nn.functional.cross_entropy(logits, labels[real], label_smoothing=0.1, reduction="sum")
        return loss


def batch() -> tuple[Tokens, Tokens, torch.Tensor]:
    torch.manual_seed(11)
    source = Tokens(torch.randint(4, 31, (3, 7)), torch.tensor([7, 2, 5]))
    ids = torch.randint(4, 31, (3, 6))
    lengths = torch.tensor([4, 5, 1])
    return source, Tokens(ids[:, :-1], lengths), ids[:, 1:].contiguous()


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "post"},
        {"norm": "pre"},
        {"norm": "post", "attention_bias": True},
        {"norm": "pre", "attention_bias": True},
        {"norm": "post", "final_norm": True, "scale_embedding": False},
        {"norm": "pre", "final_norm": False, "scale_embedding": False},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
def test_loss_and_gradients_agree_with_torch(changes):
    torch.manual_seed(2)
    ours = build(config(**changes)).train()
    for name, parameter in ours.named_parameters():
        if "norm" in name or "bias" in name:  # so that no scale is one and no shift is zero
            nn.init.normal_(parameter, mean=float("weight" in name), std=0.1)
    if ours.config.final_norm:  # the oracle normalizes its stacks without weights
        for last in (ours.encoder_norm, ours.decoder_norm):
            last.load_state_dict({"weight": torch.ones(28), "bias": torch.zeros(28)})
    theirs = TorchTransformer(ours).train()
    mine = ours(*batch()).objective
    other = theirs(*batch())
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-4)
    mine.backward()
    other.backward()
    torch.testing.assert_close(ours.embedding.weight.grad, theirs.embedding.grad, rtol=1e-4, atol=2e-5)
    compared = {"embedding.weight", *(name for name, _ in ours.named_parameters() if name.startswith(LAST_NORMS))}
    for stack in ("encoder", "decoder"):
        for index, (layer, twin) in enumerate(zip(getattr(ours, stack), getattr(theirs, stack), strict=True)):
            for name, expected in gradients(twin, TWINS[stack], ours.config).items():
                found = layer.get_parameter(name).grad
                torch.testing.assert_close(
                    found, expected, rtol=1e-4, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}"
                )
                compared.add(f"{stack}.{index}.{name}")
    assert compared == {name for name, _ in ours.named_parameters()}


LAST_NORMS = ("encoder_norm", "decoder_norm")  # which the oracle has without weights
# Our modules' names, and torch.nn's.
TWINS = {
    "encoder": {
        "self_attention": "self_attn",
        "self_attention_residual.norm": "norm1",
        "feed_forward.inner": "linear1",
        "feed_forward.outer": "linear2",
        "feed_forward_residual.norm": "norm2",
    },
    "decoder": {
        "self_attention": "self_attn",
        "self_attention_residual.norm": "norm1",
        "cross_attention": "multihead_attn",
        "cross_attention_residual.norm": "norm2",
        "feed_forward.inner": "linear1",
        "feed_forward.outer": "linear2",
        "feed_forward_residual.norm": "norm3",
    },
}


def gradients(twin: nn.Module, names: dict[str, str], settings: TransformerConfig) -> dict[str, torch.Tensor | None]:
    """The gradients of one of torch.nn's layers, by our names."""
    found: dict[str, torch.Tensor | None] = {}
    kinds = ("weight", "bias") if settings.attention_bias else ("weight",)
    for ours, theirs in names.items():
        if not ours.endswith("attention"):
            found |= {f"{ours}.{kind}": twin.get_parameter(f"{theirs}.{kind}").grad for kind in ("weight", "bias")}
            continue
        for kind in kinds:
            joined = twin.get_parameter(f"{theirs}.in_proj_{kind}").grad
            assert joined is not None
            found |= {
                f"{ours}.{part}.{kind}": g for part, g in zip(("query", "key", "value"), joined.chunk(3), strict=True)
            }
            found[f"{ours}.output.{kind}"] = twin.get_parameter(f"{theirs}.out_proj.{kind}").grad
    return found


def test_permuting_the_source_permutes_the_encoding_without_positions():
    source = Tokens(torch.tensor([[5, 17, 7, 23, 11]]), torch.tensor([5]))
    order = torch.tensor([3, 0, 4, 2, 1])
    permuted = Tokens(source.ids[:, order], source.lengths)
    for positions, equal in (("none", True), ("sinusoidal", False)):
        model = build(config(positions=positions)).eval()
        there, here = model.encode(permuted).hidden, model.encode(source).hidden[order]
        assert torch.allclose(there, here, atol=1e-5) == equal


@pytest.mark.parametrize("variant", [*every(2, VARIANTS)], indirect=True)
def test_no_position_sees_the_future(variant):
    model = build(config(**variant)).eval()
    source, target, _ = batch()
    memory = model.encode(source)
    before = target.layout().pad(model.decode(memory, target).hidden)
    changed = target.ids.clone()
    changed[:, 3] = 4
    after = target.layout().pad(model.decode(memory, Tokens(changed, target.lengths)).hidden)
    assert before[:, :3].equal(after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@pytest.mark.parametrize("variant", [*every(2, VARIANTS, 1)], indirect=True)
def test_padding_changes_nothing(variant):
    model = build(config(**variant)).eval()
    source, target, labels = batch()
    of_all = target.layout().pad(model.decode(model.encode(source), target).hidden)
    for row in range(3):
        alone = Tokens(source.ids[row : row + 1, : source.lengths[row]], source.lengths[row : row + 1])
        length = int(target.lengths[row])
        short = Tokens(target.ids[row : row + 1, :length], target.lengths[row : row + 1])
        hidden = model.decode(model.encode(alone), short).hidden
        torch.testing.assert_close(hidden, of_all[row, :length], rtol=1e-5, atol=1e-5)
    sums = model(source, target, labels)
    assert sums.tokens.item() == 4 + 5 + 1
    rest = labels.clone()
    rest[2, 1:] = 29  # behind the last label of its row
    assert model(source, target, rest).objective.equal(sums.objective)


def test_one_matrix_serves_both_embeddings_and_the_projection():
    model = build(config())
    assert sum(31 in parameter.shape for parameter in model.parameters()) == 1
    assert model.project(torch.eye(28)).equal(model.embedding.weight.T)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # d_model V + N_enc (4 d^2 + 2 d d_ff + d_ff + d + 4 d) + N_dec (8 d^2 + 2 d d_ff + d_ff + d + 6 d), by hand
        ("base", 512 * 37000 + 6 * 3_150_336 + 6 * 4_199_936),
        ("tiny", 128 * 37000 + 4 * 131_968 + 4 * 197_760),
    ],
)
def test_parameter_counts(name, expected):
    with torch.device("meta"):
        model = build(preset(name))
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_it_keeps_the_contract():
    assert isinstance(build(config()), Model)


@pytest.mark.parametrize("native", [False, True])
def test_without_a_source_end_the_encoder_reads_all_but_the_last_symbol(native):
    torch.manual_seed(3)
    whole = build(config()).eval()
    without = build(config(source_end=False)).eval()
    without.load_state_dict(whole.state_dict())
    target = Tokens(torch.tensor([[1, 5, 6, 7]] * 3), torch.tensor([4, 3, 4]))
    # The last row has nothing but an end symbol, which stays.
    ended = Tokens(torch.tensor([[11, 12, 13, 2], [14, 2, 0, 0], [2, 0, 0, 0]]), torch.tensor([4, 2, 1]))
    cut = Tokens(ended.ids[:, :3], torch.tensor([3, 1, 1]))
    asked = AttentionRequest(cross=(-1,))
    models = [make_ready(model, "float32") if native else model for model in (without, whole)]
    found, expected = (
        model.decode(model.encode(source), target, attention=asked)
        for model, source in zip(models, (ended, cut), strict=True)
    )
    torch.testing.assert_close(found.hidden, expected.hidden)
    weights = found.attention.cross[2]
    assert weights.shape[-1] == 4  # as many as were given
    torch.testing.assert_close(weights[..., :3], expected.attention.cross[2])
    assert not weights[..., 3].any()
