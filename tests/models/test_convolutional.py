"""What both convolutional models promise: the contract, whatever is in the batch."""

import math
from dataclasses import replace

import pytest
import torch

from tests.models.test_dropout_seeds import LABELS, SOURCE, TARGET, learn
from tests.sparing import every
from transduce.config import ConvolutionalConfig
from transduce.kernels import AllowedTokens
from transduce.layers.multi_step_attention import Attended, look_up
from transduce.models import AttentionRequest, Tokens, build, convs2s

VOCABULARY = 31
NARROW = {"embedding_width": 12, "output_width": 7, "max_positions": 19}
CONVS2S = {**NARROW, "encoder_convolutions": ((10, 3, 1), (6, 5, 1)), "decoder_convolutions": ((10, 3, 2), (6, 1, 1))}
BYTENET = {"network": "bytenet", "channels": 5, "encoder_blocks": 3, "decoder_blocks": 3, "largest_dilation": 4}
KINDS = {
    "convs2s": CONVS2S,
    "convs2s, shared": {**CONVS2S, "output_width": 12, "shared_embedding": True, "tied_projection": True},
    "convs2s, plain": {**CONVS2S, "weight_normalization": False, "source_vocab_size": 37},
    "bytenet": BYTENET,
    "bytenet, shared": {**BYTENET, "shared_embedding": True, "tied_projection": True, "unfold_extra": 2.5},
    "bytenet, undilated": {**BYTENET, "largest_dilation": 1, "unfold_factor": 1.0, "kernel_width": 5},
}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
BEAM = 2


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
def model(request):
    return make(request.param)


def make(changes, **more):
    torch.manual_seed(3)
    config = ConvolutionalConfig(vocab_size=VOCABULARY, **{"dropout": 0.2, **changes, **more})
    model = build(config).eval()
    for name, weight in model.named_parameters():  # nothing is where a training begins
        if name.endswith(("bias", "length")):
            torch.nn.init.normal_(weight)
    return model


def whole(model, source, target):
    """Logits of every position of complete targets."""
    return target.layout().pad(model.project(model.decode(model.encode(source), target).hidden))


def only(tokens, rows):
    return Tokens(tokens.ids[rows], tokens.lengths[rows])


@torch.no_grad()
def test_steps_equal_the_whole(model):
    state, expected = model.start(model.encode(SOURCE), BEAM), whole(model, SOURCE, TARGET)
    for time in range(TARGET.ids.shape[1]):
        step = model.step(state, TARGET.ids[:, time].repeat_interleave(BEAM))
        state = step.state
        still = (TARGET.lengths > time).repeat_interleave(BEAM)
        torch.testing.assert_close(step.logits[still], expected[:, time].repeat_interleave(BEAM, 0)[still], **CLOSE)


@torch.no_grad()
def test_rows_that_have_read_different_numbers_share_a_state(model):
    """Reordered, released and admitted, each row goes on from its own history."""
    ids = torch.randint(4, VOCABULARY, (4, 9))
    expected = whole(model, SOURCE, Tokens(ids, torch.full((4,), 9)))

    def read(state, rows, times):
        return model.step(state, torch.stack([ids[row, time] for row, time in zip(rows, times, strict=True)]))

    older, newer = only(SOURCE, [0, 1, 2]), only(SOURCE, [3])
    state = model.start(model.encode(older), 1)
    for time in range(5):
        state = read(state, [0, 1, 2], [time] * 3).state
    state = state.release(torch.tensor([False, True, False]))
    other = model.start(model.encode(newer), 1)
    for time in range(2):
        other = read(other, [3], [time]).state
    state = state.admit(other)
    for time in range(3):
        step = read(state, [0, 2, 3], [5 + time, 5 + time, 2 + time])
        state = step.state
        places = torch.tensor([0, 2, 3]), torch.tensor([5 + time, 5 + time, 2 + time])
        torch.testing.assert_close(step.logits, expected[places], **CLOSE)
    # Nobody is left; then somebody comes.
    state = state.release(torch.ones(3, dtype=torch.bool)).admit(model.start(model.encode(newer), 1))
    torch.testing.assert_close(read(state, [3], [0]).logits, expected[3:, 0], **CLOSE)


@torch.no_grad()
def test_reorder_moves_histories(model):
    state = model.start(model.encode(SOURCE), BEAM)
    read = torch.randint(4, VOCABULARY, (3, 8))
    order = torch.tensor([1, 0, 3, 3, 4, 4, 6, 7])
    for time in range(2):
        state = model.step(state, read[time]).state
    found = model.step(state.reorder(order), read[2]).logits
    for row in range(8):
        history = torch.stack([read[0, order[row]], read[1, order[row]], read[2, row]]).unsqueeze(0)
        alone = whole(model, only(SOURCE, [row // BEAM]), Tokens(history, torch.tensor([3])))
        torch.testing.assert_close(found[row], alone[0, -1], **CLOSE)


@torch.no_grad()
def test_a_state_is_as_large_after_many_symbols(model):
    state = model.start(model.encode(SOURCE), BEAM)
    shapes = [ring.shape for ring in state.columns]
    assert [len(ring) for ring in state.columns] == [-block.convolution.offsets[0] for block in model.decoder]
    for _ in range(17):
        state = model.step(state, torch.full((8,), 5)).state
    assert [ring.shape for ring in state.columns] == shapes


@torch.no_grad()
def test_padding_and_company_change_nothing(model):
    expected = whole(model, SOURCE, TARGET)
    spoiled = [
        replace(tokens, ids=torch.where(torch.arange(length + 3) < tokens.lengths.unsqueeze(1), padded, 6))
        for tokens in (SOURCE, TARGET)
        for length in [tokens.ids.shape[1]]
        for padded in [torch.nn.functional.pad(tokens.ids, (0, 3))]
    ]
    torch.testing.assert_close(whole(model, *spoiled)[:, : expected.shape[1]], expected, **CLOSE)
    for row in range(4):
        alone = whole(model, only(SOURCE, [row]), only(TARGET, [row]))
        torch.testing.assert_close(alone[0], expected[row], **CLOSE)


def test_any_batches_in_any_order_learn_the_same(model):
    model.train()
    loss, gradients = learn(model, [0, 1, 2, 3])
    for batches in ([[3, 1, 0, 2]], [[0, 1], [2, 3]], [[2], [3], [1], [0]]):
        other_loss, others = learn(model, *batches)
        assert other_loss == pytest.approx(loss, rel=1e-5)
        for name, gradient in gradients.items():
            torch.testing.assert_close(others[name], gradient, rtol=1e-3, atol=2e-5)
    assert gradients.keys() == dict(model.named_parameters()).keys()


def test_dropout_leaves_out_in_training_alone(model):
    losses = [model.train(mode)(SOURCE, TARGET, LABELS).nll.item() for mode in (True, False)]
    model.train()
    for module in model.modules():
        if hasattr(module, "share"):
            module.share = 0.0
    assert model(SOURCE, TARGET, LABELS).nll.item() == pytest.approx(losses[1], rel=1e-5) != losses[0]


def test_no_output_depends_on_what_follows_it(model):
    """The gradient of a position's logits is zero at every later symbol's embedding, and at some earlier one's not."""
    model.double()
    read = []
    model.embedding.register_forward_hook(lambda _, __, output: read.append(output.requires_grad_()) or output)
    target = Tokens(torch.randint(4, VOCABULARY, (1, 9)), torch.tensor([9]))
    hidden = model.decode(model.encode(only(SOURCE, [0])), target).hidden
    for time in range(9):
        (gradient,) = torch.autograd.grad(model.project(hidden[time]).sum(), read[-1], retain_graph=True)
        assert gradient[: time + 1].ne(0).any()
        assert gradient[time + 1 :].eq(0).all()


@pytest.mark.parametrize("model", [*every(2, KINDS)], indirect=True)
def test_gradients_are_those_of_differences(model, monkeypatch):
    """Of every weight, along a random direction; without what ConvS2S takes off the encoder's gradient."""
    monkeypatch.setattr(convs2s, "scale_gradient", lambda x, _: x)
    model.double()

    def objective():
        return model.project(model.decode(model.encode(SOURCE), TARGET).hidden).tanh().square().sum()

    objective().backward()
    for name, weight in model.named_parameters():
        direction = torch.randn_like(weight)
        with torch.no_grad():
            sides = []
            for step in (1e-6, -2e-6):
                weight.add_(direction, alpha=step)
                sides.append(objective())
            weight.add_(direction, alpha=1e-6)
        expected = (sides[0] - sides[1]) / 2e-6
        torch.testing.assert_close((weight.grad * direction).sum(), expected, rtol=1e-4, atol=1e-5, msg=name)


@torch.no_grad()
def test_what_is_allowed_comes_with_the_logits(model):
    allowed = AllowedTokens.where(torch.rand(4, VOCABULARY) < 0.5)
    state = model.start(model.encode(SOURCE), BEAM, allowed)
    step = model.step(state, torch.full((8,), 1))
    scores = step.over_vocabulary()
    assert step.logits.shape == scores.shape == (8, VOCABULARY)
    for sentence in range(4):
        symbols = allowed.symbols[sentence, : allowed.lengths[sentence]]
        assert scores[BEAM * sentence].isfinite().nonzero().squeeze(1).tolist() == symbols.tolist()
    gone = step.state.release(torch.tensor([True, False, True, False]))
    assert gone.allowed.lengths.tolist() == allowed.lengths[[1, 3]].tolist()


@torch.no_grad()
def test_attention_of_other_kinds_is_refused(model):
    if model.config.network == "bytenet":
        step = model.step(model.start(model.encode(SOURCE), 1), torch.ones(4, dtype=torch.long))
        assert step.attention == {}
        return
    with pytest.raises(ValueError, match="no other kinds"):
        state = model.start(model.encode(SOURCE), 1)
        model.step(state, torch.ones(4, dtype=torch.long), attention=AttentionRequest(decoder="all"))


def test_the_factor_of_a_source_s_length_is_of_the_context_s_format():
    """Sums of three values that are one: sqrt(3), which float32 has in seven digits."""
    ones = torch.ones(1, 3, 5, dtype=torch.float64)
    attended = Attended(ones, ones, torch.ones(1, 3, dtype=torch.bool))
    found, _ = look_up(ones[:, :1], attended)
    torch.testing.assert_close(found, torch.full_like(found, math.sqrt(3)), rtol=1e-15, atol=0)
