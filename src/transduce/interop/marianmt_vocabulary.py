"""The vocabulary of a MarianMT folder and the SentencePiece models of its sides."""

from pathlib import Path
from typing import Final

from transduce.config import BadInputError, SpecialIds
from transduce.config.files import check_place
from transduce.interop.json_files import read_json
from transduce.interop.options import Options
from transduce.interop.renumbering import Renumbering
from transduce.interop.vocabularies import Sides
from transduce.text import StoredModel, Tokenizer, TokenizerPair, read_sentencepiece, sentencepiece_over, text_pieces

VOCABULARY: Final = "vocab.json"
TARGET_VOCABULARY: Final = "target_vocab.json"  # where the sides share none
MODELS: Final = ("source.spm", "target.spm")
OWN: Final = "tokenizer.json"  # as our export writes it
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
# Names that ours have for something else.
RENAMED: Final = {"<s>": "<bos>"}
UNUSED: Final = "<unused "
_MOST_SYMBOLS: Final = 2**24


def read_sides(folder: Path, options: Options) -> Sides:
    """Both tokenizers, and how their ids are numbered in the model.

    Raises:
        BadInputError: A file is missing, damaged or a link out of the folder.
        TransduceError: The extra for SentencePiece models is not installed.
    """
    if (folder / OWN).exists() and not any((folder / name).exists() for name in MODELS):
        return _read_own(folder, options)
    models = []
    for name in MODELS:
        check_place(folder / name)
        models.append(read_sentencepiece(folder / name))
    if (folder / TARGET_VOCABULARY).exists():
        source, of_source = _read_side(folder / VOCABULARY, models[:1], "vocab_size", options, begin=False)
        target, of_target = _read_side(
            folder / TARGET_VOCABULARY, models[1:], "decoder_vocab_size", options, begin=True
        )
        return Sides(TokenizerPair(source[0], target[0]), of_source, of_target)
    both, numbers = _read_side(folder / VOCABULARY, models, "vocab_size", options, begin=True)
    return Sides(TokenizerPair(both[0], both[1]), numbers, numbers)


def _read_own(folder: Path, options: Options) -> Sides:
    """The tokenizers of a folder that we wrote, which has our ids."""
    for file in folder.glob("tokenizer*.json"):
        check_place(file)
    tokenizers = TokenizerPair.load(folder)
    special = tuple(options.given(name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id"))
    if (*special, tokenizers.special.unknown) != (0, 1, 2, 3) or tokenizers.special != SpecialIds(0, 1, 2, 3):
        raise BadInputError(
            f"{folder / OWN}: has no {MODELS[0]} beside it, and its symbols are not numbered as ours are"
        )
    sides = [
        Renumbering.of(each.vocab_size, pad=0, begin=1, end=2, unknown=3)
        for each in (tokenizers.source, tokenizers.target)
    ]
    return Sides(tokenizers, sides[0] if not tokenizers.shared else sides[1], sides[1])


def _read_side(
    path: Path, models: list[StoredModel], size: str, options: Options, *, begin: bool
) -> tuple[list[Tokenizer], Renumbering]:
    """The tokenizers of models over one vocabulary, and how it is numbered; ``size`` is the name of its size."""
    names = _read_names(path, None if options.given(size) is None else options.integer(size))
    ids = {name: index for index, name in enumerate(names)}
    for name in (END, UNKNOWN):
        if name not in ids:
            raise BadInputError(f"{path}: the vocabulary lacks {name}")
    pad = ids.get(PAD)
    start = pad if begin else None
    if begin and options.given("decoder_start_token_id") is not None:
        start = options.integer("decoder_start_token_id")
    if begin and start is None:
        raise BadInputError(f"{path}: the vocabulary lacks {PAD}, and no decoder_start_token_id is given in its place")
    # A begin symbol of that name which is another than what the decoder begins with.
    names = [RENAMED.get(name, name) if index != start else name for index, name in enumerate(names)]
    known = set(names)
    missing = list(dict.fromkeys(each for model in models for each in text_pieces(model) if each not in known))
    try:
        numbers = Renumbering.of(
            len(names),
            pad=pad,
            begin=start,
            end=ids[END],
            unknown=ids[UNKNOWN],
            copies=[ids[UNKNOWN]] * len(missing),
        )
        symbols = numbers.symbols(names, missing)
        codes = [name for name in symbols if name.startswith(">>") and name.endswith("<<")]
        special = [name for name in symbols if name in RENAMED.values() or name.startswith(UNUSED)]
        return [sentencepiece_over(model, symbols, codes, special) for model in models], numbers
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error


def _read_names(path: Path, size: int | None) -> list[str]:
    """The symbols in the order of their ids; rows of the model that have no symbol are called so."""
    stored = read_json(path)
    names: dict[int, str] = {}
    for name, index in stored.items():
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < _MOST_SYMBOLS or index in names:
            raise BadInputError(f"{path}: {name!r} has the id {index!r}: symbols have numbers from 0, each its own")
        names[index] = name
    rows = len(names) if size is None else size
    # A few rows may be there to make the size a round one.
    if not max(names, default=0) < rows <= 2 * len(names) + 1024:
        raise BadInputError(f"{path}: has {len(names):,} symbols where the model has {rows:,} rows")
    return [names.get(index, f"{UNUSED}{index}>") for index in range(rows)]
