"""A Transformer packed for decoding on CPUs: a few large operations in C++ where the plain one has hundreds."""

import copy
from dataclasses import replace
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.kernels import Columns, Format, PackedStack, Writable, encode, pack, remember, step
from transduce.layers import PositionalEncoding
from transduce.models.contract import Decoded, LossSums, Step, Tokens
from transduce.models.narrow import narrow
from transduce.models.narrowed import Narrowed
from transduce.models.packed_stacks import pack_decoder, pack_encoder
from transduce.models.packed_state import PackedState
from transduce.models.transformer import Memory, Transformer


@final
class PackedTransformer:
    """What ``model`` computes, with its matrices in one number format; it keeps the contract of ``contract.Model``.

    Sources are read and outputs written by the C++ kernels. What is done with known targets is left to the same model
    in PyTorch's operations. Uses ``model`` up.
    """

    def __init__(self, model: Transformer, format_: Format) -> None:
        self.config = model.config
        # Keys and values are read again for every symbol: half the bytes, where products are rounded as much anyway.
        self._kept = torch.float32 if format_ == "float32" else torch.bfloat16
        # Copies: a table that grows must not have been rounded with the rest of the plain model.
        self._encoder_positions = copy.deepcopy(model.encoder_positions)
        self._decoder_positions = copy.deepcopy(model.decoder_positions)
        self._encoder, self._decoder = pack_encoder(model, format_), pack_decoder(model, format_)
        self._projection = pack(model.output.weight.detach(), None, format_)
        self._plain = narrow(model, format_)

    def encode(self, source: Tokens) -> Memory:
        """Read the sources, which end with the end symbol."""
        packing = source.packing()
        self._encoder = _reaching(self._encoder, self._encoder_positions, packing.longest)
        return Memory(encode(self._encoder, packing.pack(source.ids), packing), packing)

    def decode(self, memory: Memory, target: Tokens, *, want_attention: bool = False) -> Decoded:
        """Hidden states for all positions of known targets, which begin with the begin symbol."""
        hidden = memory.hidden.to(self._plain.embedding.weight.dtype)
        return self._plain.decode(Memory(hidden, memory.packing), target, want_attention=want_attention)

    def project(self, hidden: Float[Tensor, "*positions model"]) -> Float[Tensor, "*positions vocabulary"]:
        """The logits of the next symbol."""
        return self._plain.project(hidden)

    def forward(self, source: Tokens, target: Tokens, labels: Int[Tensor, "batch length"]) -> LossSums:
        """The loss of known targets; ``labels`` is ``target`` shifted left by one, ending with the end symbol."""
        return self._plain.forward(source, target, labels)

    def start(
        self, memory: Memory, beam: int, prefix: Tokens | None = None, writable: Writable | None = None
    ) -> PackedState:
        """A state for ``beam`` rows a sentence that have read ``prefix`` (begin symbol included), or nothing."""
        remembered = remember(self._decoder, memory.hidden, memory.packing, self._kept)
        state = replace(PackedState.empty(remembered, self.config, memory.packing.longest, beam), writable=writable)
        if prefix is None:
            return state
        for ids in prefix.ids.repeat_interleave(beam, dim=0).unbind(dim=1):
            state = self._read(state, ids.contiguous())[1]
        # What the shorter prefixes' rows have read behind their ends is written over, and never looked at.
        return replace(state, lengths=prefix.lengths.cpu().clone())

    def step(
        self, state: PackedState, tokens: Int[Tensor, " rows"], *, want_attention: bool = False
    ) -> Step[PackedState]:
        """Read one symbol in every row."""
        weights = state.room_for_weights(self.config.heads) if want_attention else None
        logits, after = self._read(state, tokens, weights)
        attention = None if weights is None else weights[:, :, : state.source]
        return Step(logits, attention, after, _columns(after))

    def _read(
        self, state: PackedState, tokens: Int[Tensor, " rows"], weights: Tensor | None = None
    ) -> tuple[Float[Tensor, "rows columns"], PackedState]:
        state = state.with_room()
        if state.writable is not None and state.narrowed is None:
            state = replace(state, narrowed=Narrowed.of(self._projection, state.writable))
        projection = self._projection if state.narrowed is None else state.narrowed.matrix
        self._decoder = _reaching(self._decoder, self._decoder_positions, state.width + 1)
        found = state.lengths, state.slots, state.past, state.memory
        logits = state.logits.flatten()[: len(tokens) * projection.outputs].view(len(tokens), projection.outputs)
        step(self._decoder, projection, tokens.contiguous(), *found, logits, weights)
        return logits, replace(state, lengths=state.lengths + 1, width=state.width + 1)


def _columns(state: PackedState) -> Columns | None:
    """What a step's scores are of, where the state was told what is writable."""
    if state.writable is None or state.narrowed is None:
        return None
    return Columns(state.writable, state.narrowed.places)


def _reaching(stack: PackedStack, positions: PositionalEncoding, longest: int) -> PackedStack:
    """The same with positions for sequences of so many symbols."""
    if stack.positions is None or longest <= len(stack.positions):
        return stack
    return replace(stack, positions=positions.vectors(2 * longest))
