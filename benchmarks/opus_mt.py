"""A model of OPUS-MT's kind beside its own library: the same logits, the same translations, and how fast each is.

    python -m benchmarks.opus_mt FOLDER SOURCE [--lines 500] [--parts 5] [--beam 6] [--longest 128]
    python -m benchmarks.opus_mt --make FOLDER SOURCE TARGET

FOLDER is a MarianMT folder of ``transformers``. It is imported; logits are compared by the certificate's rule, and the
first lines of SOURCE translated by ``generate``, by ours in int8 and float32, and by CTranslate2 in int8, with one
worker of all threads and with as many workers of one each. All have the same beam and penalty, each once its model is
loaded, and by turns, a part of the lines at a time, so that whatever else the machine does meets all of them.
``generate`` stops as "never" asks it to and has no length penalty, so that both search alike; the lines that differ are
shown. ``--make`` writes a folder of OPUS-MT's size (6+6 layers of 512/2048, swish, 58,101 symbols) with random weights,
and SentencePiece models learned from SOURCE and TARGET. Writes opus_mt.md of benchmarks/results.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import torch

from benchmarks.decoders.exported import ExportedModel
from benchmarks.page import circumstances, table
from transduce.bundle import Bundle, load_bundle
from transduce.config import Precision
from transduce.data import read_lines
from transduce.inference import Translation, Translator
from transduce.interop import certify, export_ctranslate2, open_marianmt
from transduce.workflows.import_model import import_model

RESULT: Final = Path(__file__).parent / "results" / "opus_mt.md"
BATCH: Final = 32
PIECES: Final = 32_000
SYMBOLS: Final = 58_101
SIZES: Final[dict[str, Any]] = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 6),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 2048),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 8),
    "d_model": 512,
    "activation_function": "swish",
    "scale_embedding": True,
    "max_position_embeddings": 512,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}
Side = Callable[[Sequence[str]], Sequence[Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make a folder, or compare one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("folder", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path, nargs="?")
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--parts", type=int, default=5, help="of the lines, which the sides translate by turns")
    parser.add_argument("--beam", type=int, default=6)
    parser.add_argument("--longest", type=int, default=128, help="symbols of an output")
    options = parser.parse_args(arguments)
    if options.make:
        make(options.folder, (options.source, options.target or options.source))
        return
    lines = list(islice(read_lines(options.source), options.lines))
    report = compare(options.folder, lines, options.parts, options.beam, options.longest)
    text = "\n".join(
        [f"# {options.folder.name}, beam {options.beam}, {len(lines)} lines", "", *report, "", circumstances()]
    )
    RESULT.write_text(text + "\n", encoding="utf-8")
    print(text)


def make(folder: Path, texts: tuple[Path, Path], pieces: int = PIECES, symbols: int = SYMBOLS) -> None:
    """A folder of OPUS-MT's size."""
    transformers, spm = import_module("transformers"), import_module("sentencepiece")
    folder.mkdir(parents=True)
    names: dict[str, None] = dict.fromkeys(("</s>", "<unk>"))
    for side, text in zip(("source", "target"), texts, strict=True):
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(read_lines(text)),
            model_prefix=str(folder / side),
            vocab_size=pieces,
            hard_vocab_limit=False,
            character_coverage=1.0,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        (folder / f"{side}.vocab").unlink()
        model = spm.SentencePieceProcessor(str(folder / f"{side}.spm"))
        names |= dict.fromkeys(model.id_to_piece(i) for i in range(len(model)) if not model.is_control(i))
    # Few texts are large enough for as many pieces as OPUS-MT has: the others are of no text.
    names |= {f"▁filler {number}": None for number in range(max(0, symbols - 1 - len(names)))}
    vocabulary = {name: index for index, name in enumerate([*names, "<pad>"])}
    pad = len(vocabulary) - 1
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    config = transformers.MarianConfig(
        **SIZES, vocab_size=len(vocabulary), pad_token_id=pad, decoder_start_token_id=pad
    )
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config)
    model.generation_config = transformers.GenerationConfig(
        num_beams=6, max_length=512, bad_words_ids=[[pad]], pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0
    )
    model.save_pretrained(folder)
    print(f"{folder}: {len(vocabulary):,} symbols")


def compare(folder: Path, lines: Sequence[str], parts: int, beam: int, longest: int) -> list[str]:
    """The report on a folder."""
    with tempfile.TemporaryDirectory() as place:
        import_model(folder, Path(place) / "ours", prove=False)
        bundle = load_bundle(Path(place) / "ours")
        weights = [Path(place) / "ours" / "model.safetensors"]
        reference = open_marianmt(folder)
        certificate = certify(bundle, reference, lines[:8], weights=weights)
        print(*certificate.describe(), sep="\n", flush=True)
        export_ctranslate2(bundle, Path(place) / "ct2")
        threads = torch.get_num_threads()
        runtimes = {
            f"CTranslate2, int8, {workers} x {each}": ExportedModel(Path(place) / "ct2", "int8", workers, each)
            for workers, each in sorted({(1, threads), (threads, 1)})
        }
        sides: dict[str, Side] = {
            "transduce, int8": translating(bundle, "int8", beam, longest),
            "transduce, float32": translating(bundle, "float32", beam, longest),
            **{name: searching(runtime, bundle, beam, longest) for name, runtime in runtimes.items()},
            "generate, float32": lambda part: reference.translate(part, beam, longest),
        }
        found, seconds = by_turns(sides, lines, parts)
    exact, theirs = found["transduce, float32"], found["generate, float32"]
    best = min(runtimes, key=lambda name: sum(seconds[name]))
    free = [row for row, each in enumerate(exact) if not each.at_limit]
    equal = sum(exact[row].text == theirs[row] for row in free)
    return [
        *certificate.describe(),
        "",
        f"translations in float32: {equal} of {len(free)} that end are equal, {len(lines) - len(free)} reach the limit",
        *(f"- {lines[row]!r}: {exact[row].text!r}, {theirs[row]!r}" for row in free if exact[row].text != theirs[row]),
        "",
        *table(
            ["", "lines a second", "times generate", "times CTranslate2 at its best"],
            [
                [
                    name,
                    f"{len(lines) / sum(each):.2f}",
                    times(seconds["generate, float32"], each),
                    times(seconds[best], each),
                ]
                for name, each in seconds.items()
            ],
        ),
        "",
        f"Of all lines; in brackets the least and the most of {len(next(iter(seconds.values())))} parts. CTranslate2 "
        f"has so many workers of so many threads each.",
    ]


def by_turns(
    sides: Mapping[str, Side], lines: Sequence[str], parts: int
) -> tuple[dict[str, list[Any]], dict[str, list[float]]]:
    """What each gives for all lines, and its seconds for each part; three lines beforehand warm it up."""
    outputs: dict[str, list[Any]] = {name: [] for name in sides}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side(lines[:3])
    size = -(-len(lines) // parts)
    for first in range(0, len(lines), size):
        for name, side in sides.items():
            began = perf_counter()
            outputs[name] += side(lines[first : first + size])
            seconds[name].append(perf_counter() - began)
            print(f"{name}: {len(outputs[name])} lines, the last part in {seconds[name][-1]:.1f} s", flush=True)
    return outputs, seconds


def times(slower: Sequence[float], faster: Sequence[float]) -> str:
    """How many times as fast, over all parts and by part."""
    by_part = sorted(slow / fast for slow, fast in zip(slower, faster, strict=True))
    return f"{sum(slower) / sum(faster):.2f} ({by_part[0]:.2f} to {by_part[-1]:.2f})"


def searching(runtime: ExportedModel, bundle: Bundle, beam: int, longest: int) -> Side:
    """CTranslate2's."""
    encode = bundle.tokenizers.source.encode
    return lambda part: [each.ids for each in runtime.search(encode(part), beam, longest, BATCH)]


def translating(
    bundle: Bundle, precision: Precision, beam: int, longest: int
) -> Callable[[Sequence[str]], list[Translation]]:
    """Ours, as the others search; its model is loaded."""
    translator = Translator(bundle, precision, torch.device("cpu"))
    return lambda part: list(
        translator.translate(list(part), beam, length_penalty_kind="none", max_length=longest - 1, first_number=None)
    )


if __name__ == "__main__":
    main()
