"""Our model from another library's weights: each found under its name there, of the shape that the settings ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, final

import torch
from pydantic import ValidationError
from torch import Tensor

from transduce.config import BadInputError, ModelConfig, RecurrentConfig, TransformerConfig
from transduce.config.values import shorten, what_is_wrong
from transduce.interop.renumbering import Renumbering
from transduce.interop.vocabularies import Sides
from transduce.models import TrainableModel, Transformer, build_unfilled, build_without_storage

# A matrix may stand in several places, as section 3.4 of the paper has one in three.
_MOST_PLACES: Final = 4
_EMBEDDING: Final = "embedding.weight"
_SOURCE: Final = "source_embedding.weight"
_SCORES: Final = "projection.weight"
_BIAS: Final = "output_bias"
Config = TypeVar("Config", TransformerConfig, RecurrentConfig)


@final
@dataclass(frozen=True)
class Names:
    """What a format calls the parts of a Transformer, by what we call them.

    ``encoder`` and ``decoder`` are names of a layer with ``{}`` for its number, and ``first`` is the first one's;
    ``in_encoder`` and ``in_decoder`` the parts of one. ``whole`` are parts that there is one of. A part is a module:
    ``weight`` and ``bias`` follow it, which ``tensor`` may call otherwise.
    """

    encoder: str
    decoder: str
    in_encoder: Mapping[str, str]
    in_decoder: Mapping[str, str]
    whole: Mapping[str, str] = field(default_factory=dict)
    first: int = 0
    tensor: Callable[[str, str], str] = lambda module, kind: f"{module}.{kind}"

    def find(self, ours: str) -> str:
        """The name of one of our parameters there; it is our own where the format has none."""
        module, _, kind = ours.rpartition(".")
        side, _, rest = module.partition(".")
        number, _, part = rest.partition(".")
        if side in ("encoder", "decoder") and number.isdecimal():
            layer = (self.encoder if side == "encoder" else self.decoder).format(int(number) + self.first)
            parts = self.in_encoder if side == "encoder" else self.in_decoder
            return self.tensor(f"{layer}{parts[part]}", kind)
        return self.tensor(self.whole[module], kind) if module in self.whole else ours


def make_config(values: Mapping[str, Any], path: Path, kind: type[Config]) -> Config:
    """The configuration of a model that comes from ``path``, of an architecture.

    Raises:
        BadInputError: A value is one that ours cannot have.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        place = f"{place} = {shorten(first['input'])}: " if place else ""
        raise BadInputError(f"{path}: {place}{what_is_wrong(first, kind)}") from error


def count_layers(weights: Mapping[str, Tensor], prefix: str, behind: str = ".") -> int:
    """How many layers there are, whose number stands between ``prefix`` and a point, or what else is ``behind``."""
    names = (name.removeprefix(prefix).partition(behind)[0] for name in weights if name.startswith(prefix))
    return len({number for number in names if number.isdecimal()})


def shape_of(weights: Mapping[str, Tensor], name: str, path: Path, axes: int = 2) -> tuple[int, ...]:
    """The shape of a tensor.

    Raises:
        BadInputError: It is missing, or has another number of axes.
    """
    if name not in weights:
        raise BadInputError(f"{path}: {name} is missing among the weights: no such model, or a damaged one")
    if weights[name].dim() != axes:
        raise BadInputError(f"{path}: {name} has {weights[name].dim()} axes where {axes} belong: damaged")
    return tuple(weights[name].shape)


def drop_equal(weights: dict[str, Tensor], name: str, other: str) -> bool:
    """Whether two matrices are one, and then only the second is left; one that is not stored is the other."""
    if name in weights and other in weights:
        if weights[name].shape != weights[other].shape or not torch.equal(weights[name], weights[other]):
            return False
        del weights[name]
    return True


def rename(weights: Mapping[str, Tensor], config: TransformerConfig, names: Names, path: Path) -> dict[str, Tensor]:
    """Another library's weights under our names.

    Raises:
        BadInputError: One is missing, or there are some that the model has no place for.
    """
    # What follows takes time for each layer, whether it is stored or not.
    if len(weights) < config.least_tensors:
        raise BadInputError(
            f"{path}: {len(weights):,} weights, and its settings ask for a model of {config.least_tensors:,} at least: "
            f"they are of two models, or the file is not whole"
        )
    places = {ours: names.find(ours) for ours in build_without_storage(config).state_dict()}
    for theirs in places.values():
        if theirs not in weights:
            raise BadInputError(f"{path}: {theirs} is missing among the weights: the file is damaged, or not whole")
    if left := sorted(weights.keys() - set(places.values())):
        raise BadInputError(f"{path}: {left[0]} among the weights ({len(left)} such): a part that no model of ours has")
    return {ours: weights[theirs] for ours, theirs in places.items()}


def renumber(weights: Mapping[str, Tensor], source: Renumbering, target: Renumbering, path: Path) -> dict[str, Tensor]:
    """The same weights, under our names, with the symbols of both vocabularies in our order.

    Where ours has symbols that the other model has not, the logits have a bias, which they may not have had.

    Raises:
        BadInputError: A matrix has another number of symbols than its vocabulary.
    """
    numbered = {_EMBEDDING: target, _SOURCE: source, _SCORES: target, _BIAS: target}
    changed = dict(weights)
    for name, numbers in numbered.items():
        if name not in weights:
            continue
        if weights[name].dim() == 0 or len(weights[name]) != numbers.size:
            shape = tuple(weights[name].shape)
            raise BadInputError(f"{path}: {name} has shape {shape}, and its vocabulary {numbers.size:,} symbols")
        tensor = weights[name].float()
        changed[name] = numbers.bias(tensor) if name == _BIAS else numbers.permute(tensor)
    if target.needs_bias and _BIAS not in changed:
        changed[_BIAS] = target.bias(torch.zeros(target.size))
    return changed


def convert(
    weights: Mapping[str, Tensor], names: Names, values: Mapping[str, Any], sides: Sides, path: Path, *, shared: bool
) -> Transformer:
    """Our model from another library's weights, under its names and in its numbering.

    Args:
        weights: All of them, and no more.
        names: What the library calls our parameters.
        values: Our settings, without the sizes of the vocabularies.
        sides: The vocabularies.
        path: The file that it is about.
        shared: Whether source and target have one matrix of embeddings.

    Raises:
        BadInputError: There is no such model of ours, or the weights are not its.
    """
    config = make_config({**values, **sides.sizes(shared=shared)}, path, TransformerConfig)
    ours = renumber(rename(weights, config, names, path), sides.source, sides.target, path)
    model = fill(config.model_copy(update={"output_bias": _BIAS in ours}), ours, path)
    assert isinstance(model, Transformer)
    return model


@torch.no_grad()
def fill(config: ModelConfig, weights: Mapping[str, Tensor], path: Path) -> TrainableModel:
    """The model with these weights, which are under our names, in float32.

    No memory is taken before all shapes are seen to be the model's.

    Raises:
        BadInputError: A weight has another shape or entries that are no finite numbers, or there is no such model.
    """
    wanted = build_without_storage(config).state_dict()
    if different := sorted(wanted.keys() ^ weights.keys()):
        raise BadInputError(f"{path}: {different[0]} is only in the weights or only in what the settings ask for")
    for name, place in wanted.items():
        if tuple(weights[name].shape) != tuple(place.shape):
            raise BadInputError(
                f"{path}: {name} has shape {tuple(weights[name].shape)} where the settings ask for {tuple(place.shape)}"
            )
    _check_stored(weights, path)
    model = build_unfilled(config)
    for name, place in model.state_dict().items():
        place.copy_(weights[name])
        if not bool(place.isfinite().all()):
            raise BadInputError(f"{path}: {name} has entries that are no finite numbers: the file is damaged")
    return model.eval()


def _check_stored(weights: Mapping[str, Tensor], path: Path) -> None:
    """What stands in so many places that a small file would make a huge model is no model."""
    stored = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in weights.values()}
    asked = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    if asked > _MOST_PLACES * sum(stored.values()):
        raise BadInputError(f"{path}: its weights would take {asked:,} bytes, and so many are not stored: damaged")
