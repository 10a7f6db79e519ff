"""ONNX Runtime as what an export is compared with; it has no search, so that it is given a plain one."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from transduce.config import TransduceError
from transduce.interop.onnx import DECODER, DECODER_WITH_PAST, ENCODER
from transduce.interop.onnx_graph import library
from transduce.interop.plain_search import beam_search
from transduce.interop.reference import Ids, Reference
from transduce.text import TokenizerPair

Arrays = dict[str, NDArray[Any]]
_LAYER: Final = ("encoder input", "encoder layer ", "decoder input", "decoder layer ", "decoder output")


def open_onnx(folder: Path, tokenizers: TokenizerPair) -> Reference:
    """A folder that ``export_onnx`` wrote, run by ONNX Runtime; ``tokenizers`` are the model's.

    Raises:
        TransduceError: ONNX Runtime is not installed.
    """
    return OnnxRuntime(folder, tokenizers)


@final
class OnnxRuntime:
    """It computes in float32, on the processor."""

    name = "ONNX Runtime"

    def __init__(self, folder: Path, tokenizers: TokenizerPair) -> None:
        self.weights = sorted(folder.glob("*.onnx"))
        self._folder, self._tokenizers = folder, tokenizers
        self._encoder, self._decoder, self._going_on = (
            _session(str(folder / name)) for name in (ENCODER, DECODER, DECODER_WITH_PAST)
        )
        self.versions = {"onnx": version("onnx"), "onnxruntime": version("onnxruntime")}

    def logits(self, source: Ids, target: Ids) -> Float[Tensor, "positions vocabulary"]:
        """By the decoder that reads a target from its beginning."""
        inputs = self._decoder_inputs(source, target)
        (logits,) = self._decoder.run(["logits"], inputs)
        return torch.from_numpy(logits[0])

    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """Line by line, by the two decoders in turn."""
        found = [self._search(ids, beam, longest) for ids in self._tokenizers.source.encode(lines)]
        return self._tokenizers.target.decode(found)

    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """By the same graphs, whose values are made outputs by their names."""
        encoder, decoder = self._showing
        found = _run(encoder, self._encoder_inputs(source)) | _run(decoder, self._decoder_inputs(source, target))
        layers = {name: torch.from_numpy(array[0]) for name, array in found.items() if name.startswith(_LAYER)}
        return layers | {"encoder output": torch.from_numpy(found["last_hidden_state"][0])}

    @cached_property
    def _showing(self) -> tuple[Any, Any]:
        encoder, decoder = (_session(_showing_layers(self._folder / name)) for name in (ENCODER, DECODER))
        return encoder, decoder

    def _encoder_inputs(self, source: Ids) -> Arrays:
        ids = np.array([[*source, self._tokenizers.special.end]])
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    def _decoder_inputs(self, source: Ids, target: Ids) -> Arrays:
        inputs = self._encoder_inputs(source)
        (memory,) = self._encoder.run(["last_hidden_state"], inputs)
        return {
            "encoder_hidden_states": memory,
            "encoder_attention_mask": inputs["attention_mask"],
            "input_ids": np.array([[self._tokenizers.special.begin, *target]]),
        }

    def _search(self, source: Ids, beam: int, longest: int) -> Ids:
        special, first = self._tokenizers.special, self._decoder_inputs(source, [])
        kept: Arrays = {}

        def next_logits(prefixes: Tensor, rows: Tensor) -> Tensor:
            """Of a first symbol by the one decoder; of all others by the other, from what is kept of those before."""
            if kept:
                past = {name: array[rows.numpy()] for name, array in kept.items()}
                mask = np.repeat(first["encoder_attention_mask"], len(prefixes), axis=0)
                newest = prefixes[:, -1:].numpy()
                found = _run(self._going_on, {**past, "input_ids": newest, "encoder_attention_mask": mask})
                kept.update(past)
            else:
                found = _run(self._decoder, first)
            kept.update(_kept(found))
            return torch.from_numpy(found["logits"][:, -1])

        never = (special.pad, special.begin, special.unknown)
        return beam_search(next_logits, special.begin, special.end, never, beam, longest)


def _session(model: str | bytes) -> Any:  # noqa: ANN401 - a library without types
    try:
        import onnxruntime  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError("running ONNX models needs their library: pip install 'transduce[interop]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run(session: Any, inputs: Arrays) -> Arrays:  # noqa: ANN401
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _kept(found: Arrays) -> Arrays:
    """What the next symbol needs, by the names of inputs."""
    return {name.replace("present", "past_key_values"): each for name, each in found.items() if "present" in name}


def _showing_layers(path: Path) -> bytes:
    """The model of a file with every layer's output among its outputs."""
    onnx = library()
    model = onnx.load(str(path))
    names = [name for node in model.graph.node for name in node.output if name.startswith(_LAYER)]
    shown = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    model.graph.output.extend(shown)
    serialized: bytes = model.SerializeToString()
    return serialized
