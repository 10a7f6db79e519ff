"""Where two computations of one model part: the first layer whose outputs differ by more than rounding."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.config import SpecialIds
from transduce.interop.logits import as_tokens, compare
from transduce.interop.reference import Library, Pair, Reference, Scorer, library_errors
from transduce.interop.rounding import Numbers, count_terms, tolerance
from transduce.layers import Stream
from transduce.models import Tokens, TrainableModel, Transformer

# Brings a model to the other library, for as long as the context is open.
Export = Callable[[Transformer], AbstractContextManager[Reference | Scorer]]
ENCODER_INPUT: Final = "encoder input"
ENCODER_OUTPUT: Final = "encoder output"
DECODER_INPUT: Final = "decoder input"
DECODER_OUTPUT: Final = "decoder output"


@final
@dataclass(frozen=True)
class Parting:
    """The first place at which two computations differ, by how much, and how much of it rounding accounts for."""

    place: str
    difference: float
    tolerance: float

    def __str__(self) -> str:
        return f"{self.place} (apart by {self.difference:.2g}, of which rounding accounts for {self.tolerance:.2g})"


def explain_difference(
    model: TrainableModel, special: SpecialIds, reference: Library, pairs: Sequence[Pair], export: Export | None
) -> str:
    """At which layer they part, in words: by the outputs of layers where the other library shows them.

    Else ``export`` brings models with the first layers alone there, and their logits are compared.
    """
    if not isinstance(model, Transformer):
        return "layers are compared of Transformers alone"
    shown = False
    for pair in pairs:
        with library_errors(reference.name, *reference.weights):
            theirs = reference.layers(*pair)
        kind = next((output.dtype for output in theirs.values()), torch.float32)
        exact = model if kind == torch.float32 else copy.deepcopy(model).to(kind)
        parting = find_parting(exact, layer_outputs(exact, *as_tokens(pair, special)), theirs)
        if parting is not None:
            return f"they part at {parting}"
        shown = shown or bool(theirs)
    if shown:
        return "all layers are the same: they part behind the last one, at the output's matrix or its bias"
    if export is None:
        return f"{reference.name} shows no layers, so that where they part is not known"
    return _explain_by_cutting(model, special, pairs, export)


def _explain_by_cutting(model: Transformer, special: SpecialIds, pairs: Sequence[Pair], export: Export) -> str:
    """The same from models that end behind ever more layers; one stack cannot be without any."""
    encoder, decoder = len(model.encoder), len(model.decoder)
    sizes = chain(((number, 1) for number in range(1, encoder + 1)), ((encoder, n) for n in range(2, decoder + 1)))
    for first, second in sizes:
        shorter = _cut(model, first, second)
        with export(shorter) as reference:
            compared = compare(shorter, special, reference, pairs)
        if not compared.same:
            if first == second == 1:
                place = "embeddings, encoder layer 1, decoder layer 1 or the output's matrix"
            else:
                place = f"decoder layer {second}" if second > 1 else f"encoder layer {first}"
            return (
                f"they part at {place} (a model that ends there: {compared.largest_difference:.2g}, of which rounding "
                f"accounts for {compared.tolerance:.2g})"
            )
    return "a second export is the same: what was written has been changed, or is damaged"


def _cut(model: Transformer, encoder: int, decoder: int) -> Transformer:
    """The same weights with the first layers of each stack alone."""
    shorter = copy.copy(model)
    shorter._modules = dict(model._modules)
    shorter.encoder, shorter.decoder = model.encoder[:encoder], model.decoder[:decoder]
    shorter.config = model.config.model_copy(update={"encoder_layers": encoder, "decoder_layers": decoder})
    return shorter


@torch.inference_mode()
def layer_outputs(model: Transformer, source: Tokens, target: Tokens) -> dict[str, Float[Tensor, "positions model"]]:
    """What every layer hands on for one pair, in the order in which they are computed.

    ``encoder input`` and ``decoder input`` are embeddings with their positions, ``encoder layer 1`` and so on the
    residual stream behind each layer, ``encoder output`` and ``decoder output`` what the stacks give, behind a last
    normalization where they have one.
    """
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Any:  # noqa: ANN401 - torch's type of hooks
        def hook(_: nn.Module, __: object, output: Tensor | tuple[Stream, object]) -> None:
            found[name] = output if isinstance(output, Tensor) else output[0].settle()

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in _places(model).items()]
    try:
        memory = model.encode(source)
        found[ENCODER_OUTPUT] = memory.hidden
        found[DECODER_OUTPUT] = model.decode(memory, target).hidden
    finally:
        for handle in handles:
            handle.remove()
    return found


def find_parting(
    model: Transformer, ours: Mapping[str, Float[Tensor, "_ model"]], theirs: Mapping[str, Float[Tensor, "_ model"]]
) -> Parting | None:
    """The first of our layers that ``theirs`` has otherwise; None where those that both name are the same."""
    places = _places(model)
    passed: list[nn.Module] = [model.embedding]
    for name, output in ours.items():
        passed += [places[name]] if name in places else []
        if name not in theirs:
            continue
        other = theirs[name].to(output.dtype)
        allowed = tolerance(Numbers.of(output), count_terms(passed), output.dtype)
        difference = float((output - other).abs().max()) if output.shape == other.shape else float("inf")
        if not difference <= allowed:  # so that NaN is a difference
            return Parting(name, difference, allowed)
    return None


def _places(model: Transformer) -> dict[str, nn.Module]:
    """The modules whose outputs are looked at."""
    return {
        ENCODER_INPUT: model.encoder_positions,
        **{f"encoder layer {number}": layer for number, layer in enumerate(model.encoder, 1)},
        DECODER_INPUT: model.decoder_positions,
        **{f"decoder layer {number}": layer for number, layer in enumerate(model.decoder, 1)},
    }
