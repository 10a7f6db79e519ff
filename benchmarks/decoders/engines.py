"""Three ways from texts to translations by one model: ours, CTranslate2's and ``generate`` of ``transformers``.

All three search alike: without a length penalty, until nothing open can be better than what has ended, and with one
limit of length for all texts of a call, as CTranslate2 has no other. All read text and write text, with our tokenizer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_never, cast, final

import torch

from transduce.bundle import Bundle, load_bundle
from transduce.config import GenerationConfig, Precision
from transduce.text import TokenizerPair

Family = Literal["transduce", "CTranslate2", "generate"]
# Texts, the beam and how many sentences a batch has at most, to translations.
Translate = Callable[[list[str], int, int], list[str]]


@final
@dataclass(frozen=True)
class Engine:
    """One of them in one number format, with so many workers of so many threads each.

    ``device`` is torch's name of where it computes.
    """

    family: Family
    precision: str
    workers: int
    threads: int
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.family} {self.precision}"


def load_engine(engine: Engine, model: Path, exported: Path) -> Translate:
    """Make one ready: ``model`` is our directory, ``exported`` the same model's for CTranslate2."""
    # Ours takes as many workers as torch has threads; the others have theirs named.
    torch.set_num_threads(engine.workers * engine.threads if engine.family == "transduce" else engine.threads)
    match engine.family:
        case "transduce":
            return _ours(engine, model)
        case "CTranslate2":
            return _ctranslate2(engine, model, exported)
        case "generate":
            return _generate(engine, model)
        case _:
            assert_never(engine.family)


def _ours(engine: Engine, model: Path) -> Translate:
    from transduce.inference import load  # noqa: PLC0415 - the others do without

    tokenizer, extra = TokenizerPair.load(model).source, _read_extra(model)
    translator = load(model, cast(Precision, engine.precision), engine.device)

    def translate(texts: list[str], beam: int, _: int) -> list[str]:
        """Ours chooses its batches itself."""
        longest = _limit(tokenizer.encode(texts), extra) - 1  # which does not count the end symbol
        found = translator.translate(texts, beam, length_penalty_kind="none", max_length=longest, first_number=None)
        return [each.text for each in found]

    return translate


def _ctranslate2(engine: Engine, model: Path, exported: Path) -> Translate:
    from benchmarks.decoders.exported import ExportedModel  # noqa: PLC0415

    extra = _read_extra(model)
    runtime = ExportedModel(exported, engine.precision, engine.workers, engine.threads, engine.device)

    def translate(texts: list[str], beam: int, batch: int) -> list[str]:
        sources = runtime.tokenizers.source.encode(texts)
        found = runtime.search(sources, beam, _limit(sources, extra), batch)
        return runtime.tokenizers.target.decode([each.ids for each in found])

    return translate


def _generate(engine: Engine, model: Path) -> Translate:
    from benchmarks.decoders.generate import make_generator  # noqa: PLC0415

    bundle = load_bundle(model)
    generator = make_generator(bundle, getattr(torch, engine.precision)).to(engine.device)

    def translate(texts: list[str], beam: int, batch: int) -> list[str]:
        """In batches of similar length, the longest first, as the others do too."""
        sources = bundle.tokenizers.source.encode(texts)
        limit = _limit(sources, bundle.generation.max_extra_length)
        order = sorted(range(len(texts)), key=lambda row: -len(sources[row]))
        outputs: dict[int, list[int]] = {}
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            found = _generate_batch(generator, bundle, [sources[row] for row in rows], beam, limit)
            outputs |= zip(rows, found, strict=True)
        return bundle.tokenizers.target.decode([outputs[row] for row in range(len(texts))])

    return translate


@torch.inference_mode()
def _generate_batch(
    generator: Any,  # noqa: ANN401
    bundle: Bundle,
    sources: list[list[int]],
    beam: int,
    limit: int,
) -> list[list[int]]:
    special = bundle.tokenizers.special
    rows = [torch.tensor([*source, special.end]) for source in sources]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=special.pad).to(generator.device)
    exact = {"length_penalty": 0.0, "early_stopping": "never"} if beam > 1 else {}
    found = generator.generate(
        input_ids=ids,
        attention_mask=(ids != special.pad).long(),
        max_new_tokens=limit,
        num_beams=beam,
        do_sample=False,
        **exact,
    )
    return [list(row) for row in found.tolist()]  # decoding leaves special symbols out


def _read_extra(model: Path) -> int:
    return GenerationConfig.model_validate_json((model / "generation_config.json").read_text()).max_extra_length


def _limit(sources: list[list[int]], extra: int) -> int:
    """The most symbols of an output, end symbol counted: what the longest text of the call may have."""
    return max(map(len, sources)) + 1 + extra
