"""MarianMTModel of ``transformers`` as what an import or an export is compared with."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import TransduceError
from transduce.interop.json_files import read_json
from transduce.interop.marianmt import CONFIG, find_weights
from transduce.interop.marianmt_generation import forbidden_symbols, read_generation
from transduce.interop.marianmt_vocabulary import read_sides
from transduce.interop.options import Options
from transduce.interop.reference import Ids, Reference, library_errors
from transduce.interop.renumbering import Renumbering
from transduce.text.tokenizer import BEGIN, END, PAD, UNKNOWN

_BATCH: Final = 32
_BEGIN, _END, _UNKNOWN = 1, 2, 3
_SPECIAL: Final = {"pad_token": PAD, "bos_token": BEGIN, "eos_token": END, "unk_token": UNKNOWN}


def open_marianmt(folder: Path) -> Reference:
    """A folder in its own library, with its own tokenizer. It is opened behind ``read_marianmt``, which looks at it.

    Raises:
        TransduceError: ``transformers`` is not installed, or cannot open it.
    """
    with library_errors(_MarianMT.name, folder):
        return _MarianMT(folder)


@final
class _MarianMT:
    """It computes in float32, on the processor, and its search goes on while an open hypothesis can still win."""

    name = "transformers"

    def __init__(self, folder: Path) -> None:
        transformers = _library()
        self.versions = {"transformers": version("transformers")}
        self.weights = [find_weights(folder)]
        options = Options.of(read_json(folder / CONFIG), folder / CONFIG)
        sides = read_sides(folder, options)
        self._source, self._target = sides.source, sides.target
        self._forbidden = forbidden_symbols(read_generation(folder, options)[1], self._target)
        self._log = transformers.utils.logging
        with self._quiet():
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            # Of two tokenizers that we wrote, the target's writes.
            target, fast = folder / "tokenizer.target.json", transformers.PreTrainedTokenizerFast
            self._writer = fast(tokenizer_file=str(target), **_SPECIAL) if target.exists() else self._tokenizer
            model = transformers.MarianMTModel.from_pretrained(str(folder), local_files_only=True, dtype=torch.float32)
        self._model: Any = model.eval()

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Keep its advice and its progress bars to itself."""
        before, bars = self._log.get_verbosity(), self._log.is_progress_bar_enabled()
        self._log.set_verbosity_error()
        self._log.disable_progress_bar()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            self._log.set_verbosity(before)
            if bars:
                self._log.enable_progress_bar()

    def _make_room(self, longest: int) -> None:
        """Make its tables of positions longer, where a sequence is: they are sinusoids, which ours has without end."""
        for stack in (self._model.model.encoder, self._model.model.decoder):
            table = stack.embed_positions
            if len(table.weight) < longest:
                grown = type(table)(2 * longest, table.weight.shape[1])
                grown.weight.copy_(grown.create_weight())
                stack.embed_positions = grown

    @torch.inference_mode()
    def logits(self, source: Ids, target: Ids) -> Float[Tensor, "positions vocabulary"]:
        """As ``Reference`` says; of a symbol that it must not write, ours are lower."""
        self._make_room(max(len(source), len(target)) + 1)
        found: Tensor = self._model(**self._inputs(source, target)).logits[0].float()
        ours = self._target.permute(found.T).T
        absent = ~torch.tensor(self._target.owners)
        absent[self._target.ours[self._forbidden]] = True
        return ours.masked_fill(absent, float("nan"))

    def _inputs(self, source: Ids, target: Ids) -> dict[str, Tensor]:
        begin = self._target.rows[_BEGIN]
        return {
            "input_ids": torch.tensor([[*_translate(self._source, source), self._source.rows[_END]]]),
            "decoder_input_ids": torch.tensor([[begin, *_translate(self._target, target)]]),
        }

    @torch.inference_mode()
    def translate(self, lines: Sequence[str], beam: int, longest: int) -> list[str]:
        """As ``Reference`` says."""
        pad, begin, unknown = (self._target.rows[place] for place in (0, _BEGIN, _UNKNOWN))
        never = sorted({pad, begin, unknown, *self._forbidden} - {-1})
        outputs: list[str] = []
        for first in range(0, len(lines), _BATCH):
            read = self._tokenizer(list(lines[first : first + _BATCH]), return_tensors="pt", padding=True)
            self._make_room(max(read["input_ids"].shape[1], longest + 1))
            with self._quiet():
                found = self._model.generate(
                    input_ids=read["input_ids"],
                    attention_mask=read["attention_mask"],
                    # A folder may say them in its configuration alone.
                    decoder_start_token_id=begin,
                    eos_token_id=self._target.rows[_END],
                    num_beams=beam,
                    do_sample=False,
                    max_length=longest + 1,  # with what the decoder begins with
                    min_length=0,
                    length_penalty=0.0,
                    early_stopping="never",
                    bad_words_ids=[[each] for each in never],
                )
            outputs += self._writer.batch_decode(found, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return outputs

    @torch.inference_mode()
    def layers(self, source: Ids, target: Ids) -> Mapping[str, Float[Tensor, "positions model"]]:
        """Embeddings with their positions, and what every layer hands on."""
        self._make_room(max(len(source), len(target)) + 1)
        found = self._model(**self._inputs(source, target), output_hidden_states=True)
        named: dict[str, Tensor] = {}
        for side, states in (("encoder", found.encoder_hidden_states), ("decoder", found.decoder_hidden_states)):
            layers = getattr(self._model.config, f"{side}_layers")
            for number, state in enumerate(states[-layers:], 1):
                named[f"{side} layer {number}"] = state[0].float()
        return named


def _translate(numbers: Renumbering, ids: Ids) -> list[int]:
    return [numbers.rows[index] for index in ids]


def _library() -> Any:  # noqa: ANN401 - a library of many types
    try:
        import transformers  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TransduceError(
            "MarianMT models are compared with transformers': pip install 'transduce[interop]'"
        ) from error
    return transformers
