"""``torch.nn.Transformer`` itself as what an import of its state dict is compared with."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.interop.plain_reference import ComputedReference
from transduce.interop.plain_transformer import ACTIVATIONS, go_on, sinusoid_table
from transduce.interop.reference import Reference, library_errors
from transduce.interop.torch_nn import Description, load_torch_nn

_NAME: Final = "torch.nn.Transformer"
_LONGEST: Final = 1024  # positions, where the state dict has no table of them


def open_torch_nn(description: Path, codes: Path | None = None) -> Reference:
    """The model that a TOML file describes, in PyTorch's own module.

    Raises:
        BadInputError: A file is missing or damaged.
        TransduceError: PyTorch has no such module.
    """
    settings, stored = load_torch_nn(description, codes)
    with library_errors(_NAME, stored.path):
        module = _Module(settings, stored.weights)
    return ComputedReference(_NAME, module, stored.sides, stored.paths, source_end=settings.source_end)


@final
class _Module:
    """The module with its weights, and what stands around it."""

    def __init__(self, settings: Description, weights: Mapping[str, Tensor]) -> None:
        names, prefix = settings.names, f"{settings.names.transformer}."
        own = {name.removeprefix(prefix): each.float() for name, each in weights.items() if name.startswith(prefix)}
        self._source, self._target = (
            weights[name].float() for name in (names.source_embedding, names.target_embedding)
        )
        self._output = weights.get(names.output, self._target).float()
        bias = weights.get(names.output_bias)
        self._output_bias = None if bias is None else bias.float()
        width = self._target.shape[1]
        self._scale = math.sqrt(width) if settings.scale_embedding else 1.0
        sinusoids = sinusoid_table(_LONGEST, width, interleaved=True)
        match settings.positions:
            case "table":
                table = weights[names.positions].reshape(-1, width)
                self._positions: Tensor | None = go_on(table, sinusoids)
            case "sinusoidal":
                self._positions = sinusoids
            case "none":
                self._positions = None
        with warnings.catch_warnings():
            # Its advice on what would be faster is for who makes a module.
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self._module = nn.Transformer(
                width,
                settings.heads,
                _count_layers(own, "encoder"),
                _count_layers(own, "decoder"),
                dim_feedforward=len(own["decoder.layers.0.linear1.weight"]),
                activation=ACTIVATIONS[settings.activation],
                layer_norm_eps=settings.norm_epsilon,
                batch_first=True,
                norm_first=settings.norm_first,
                bias="decoder.layers.0.linear1.bias" in own,
            )
        for stack, side in ((self._module.encoder, "encoder"), (self._module.decoder, "decoder")):
            if f"{side}.norm.weight" not in own:
                stack.norm = None
        self._module.load_state_dict(own)
        self._module.eval()

    def encode(
        self, source: Int[Tensor, " positions"], outputs: dict[str, Tensor] | None = None
    ) -> Float[Tensor, "one positions model"]:
        """As ``Computation`` says."""
        with _watched(self._module.encoder.layers, "encoder", outputs):
            memory: Tensor = self._module.encoder(self._embed(self._source, source.unsqueeze(0)))
        return memory

    def decode(
        self,
        memory: Float[Tensor, "one memory model"],
        targets: Int[Tensor, "hypotheses positions"],
        outputs: dict[str, Tensor] | None = None,
    ) -> Float[Tensor, "hypotheses positions vocabulary"]:
        """As ``Computation`` says."""
        mask = nn.Transformer.generate_square_subsequent_mask(targets.shape[1])
        with _watched(self._module.decoder.layers, "decoder", outputs):
            hidden = self._module.decoder(
                self._embed(self._target, targets),
                memory.expand(len(targets), -1, -1),
                tgt_mask=mask,
                tgt_is_causal=True,
            )
        return F.linear(hidden, self._output, self._output_bias)

    def _embed(self, matrix: Tensor, ids: Tensor) -> Tensor:
        embedded = matrix[ids] * self._scale
        return embedded if self._positions is None else embedded + self._positions[: ids.shape[1]]


def _count_layers(weights: Mapping[str, Tensor], side: str) -> int:
    return len({name.split(".")[2] for name in weights if name.startswith(f"{side}.layers.")})


@contextmanager
def _watched(layers: nn.ModuleList, side: str, outputs: dict[str, Tensor] | None) -> Iterator[None]:
    """Give ``outputs`` what each layer hands on, where somebody asks."""

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: object, output: Tensor) -> None:
            if outputs is not None:
                outputs[name] = output[0]

        return hook

    handles = [layer.register_forward_hook(keep(f"{side} layer {number}")) for number, layer in enumerate(layers, 1)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
