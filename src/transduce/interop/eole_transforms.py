"""What eole's transforms make of text, as far as ours can do it: how words are cut."""

import logging
from pathlib import Path
from typing import Final

from transduce.config import BadInputError
from transduce.config.files import check_place
from transduce.interop.options import Options
from transduce.interop.vocabularies import PIECES, find_codes

_log = logging.getLogger(__name__)

_SIDES: Final = ("src", "tgt")
_TOKENIZERS: Final = frozenset({"sentencepiece", "bpe", "onmt_tokenize", "huggingface_tokenize"})
_ADDITIONS: Final = ("prefix", "suffix")
# What these do, they do in training alone.
_OF_TRAINING: Final = frozenset(
    {"bart", "clean", "filtertoolong", "filtertooshort", "switchout", "tokendrop", "tokenmask", "uppercase"}
)
_PLAIN: Final = {"mode": "none"}  # the options of onmt_tokenize under which a SentencePiece model cuts alone


def read_cuts(config: Options, folder: Path, codes: Path | None) -> tuple[Path | None, Path | None]:
    """The files by which a source's and a target's words are cut: ``codes``, or what the transforms name.

    Transforms that change text otherwise are left out, which is said.

    Raises:
        BadInputError: They cut otherwise than ours can, put symbols of their own around texts, or name a file that is
            not in the folder.
    """
    used = _used(config)
    _refuse_additions(config, used)
    if left := [name for name in used if name not in _TOKENIZERS | _OF_TRAINING | {*_ADDITIONS}]:
        _log.warning(f"{config.place}: transforms {', '.join(left)} are left out: give text as it is behind them")
    tokenizers = [name for name in used if name in _TOKENIZERS]
    if codes is not None:
        return codes, codes
    if not tokenizers:
        found = find_codes(folder)
        return found, found
    if len(tokenizers) > 1:
        raise _otherwise(config, " and ".join(tokenizers))
    all_ = config.section("transforms_configs", optional=True)
    source, target = (_find_model(all_, tokenizers[0], side, folder) for side in _SIDES)
    # Of a vocabulary that both sides share, eole cuts both by the source's.
    return source, source if target is None or config.flag("share_vocab", default=False) else target


def _used(config: Options) -> list[str]:
    """The names of its transforms, wherever a corpus has its own."""
    corpora = config.section("data", optional=True)
    sections = [config, *(corpora.section(name) for name in corpora.names)]
    names: list[str] = []
    for section in sections:
        names += [] if section.given("transforms") is None else section.texts("transforms")
    return list(dict.fromkeys(names))


def _refuse_additions(config: Options, used: list[str]) -> None:
    """Refuse symbols that are put before and behind texts."""
    corpora = config.section("data", optional=True)
    sections = [corpora.section(name) for name in corpora.names]
    for kind in _ADDITIONS:
        if kind not in used:
            continue
        places = [*sections, config.section("transforms_configs", optional=True).section(kind, optional=True)]
        for section in places:
            for name in (f"{side}_{kind}" for side in _SIDES):
                if section.given(name) not in (None, ""):
                    raise section.refuse(name, "ours puts no symbols around texts")


def _find_model(all_: Options, kind: str, side: str, folder: Path) -> Path | None:
    """The file by which words of a side are cut, if there is one."""
    options = all_.section(kind, optional=True)
    pieces = kind == "sentencepiece"
    if kind == "onmt_tokenize":
        pieces = options.given(f"{side}_subword_type") == "sentencepiece"
        if not pieces or options.given(f"{side}_onmttok_kwargs") not in (None, _PLAIN):
            raise _otherwise(all_, kind)
    elif kind == "huggingface_tokenize":
        raise _otherwise(all_, kind)
    if options.integer(f"{side}_vocab_threshold", 0) > 0:
        raise options.refuse(f"{side}_vocab_threshold", "ours cuts no rare symbols further: name a file with --codes")
    key = f"{side}_subword_model"
    if not (said := options.text(key, "")):
        return None
    # The place is that of the training, or begins with a variable.
    path = folder / Path(said).name
    check_place(path)
    if not path.is_file():
        raise options.refuse(key, f"{path.name} is not in {folder}: put it there, or name it with --codes")
    if pieces != (path.suffix in PIECES):
        called = " or ".join(PIECES) if pieces else f"no {' or '.join(PIECES)}"
        raise options.refuse(key, f"a file for {kind} ends with {called} here: give it such a name, or use --codes")
    return path


def _otherwise(options: Options, kind: str) -> BadInputError:
    return BadInputError(
        f"{options.place}: transforms: {kind} cuts words otherwise than SentencePiece and subword-nmt do: "
        f"name a file of theirs with --codes if it comes to the same"
    )
