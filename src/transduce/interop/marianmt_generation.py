"""How a MarianMT model writes, as ``transformers``' ``generate`` is told."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from transduce.config import BadInputError, GenerationConfig
from transduce.interop.json_files import read_json
from transduce.interop.renumbering import Renumbering

_log = logging.getLogger(__name__)

GENERATION: Final = "generation_config.json"
_DEFAULT_LENGTH: Final = 20  # of its outputs, where nothing is said
_DEFAULT_TOP_K: Final = 50
_OF_SAMPLES: Final = ("temperature", "top_k", "top_p")
# What its search can do and ours cannot, and the value that means nothing.
_UNSAYABLE: Final = {
    "repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "forced_bos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}


def read_generation(folder: Path, config: Mapping[str, Any]) -> tuple[GenerationConfig, object]:
    """Our settings of its search, and its ``bad_words_ids``.

    They stand in ``generation_config.json`` or, in older folders, in the configuration. Its lengths count what the
    decoder begins with, its longest one the end too; a score is divided by the length, the end counted, to the power of
    its penalty.

    Raises:
        BadInputError: A value is out of range.
    """
    place = folder / GENERATION
    said = read_json(place) if place.exists() else dict(config)
    place = place if place.exists() else folder / "config.json"
    for name, nothing in _UNSAYABLE.items():
        if said.get(name) not in (nothing, None, []):
            _log.warning(f"{place}: {name} = {said[name]!r} is left out: no search of ours has it")
    sampling = bool(said.get("do_sample"))
    values: dict[str, object] = {
        "beam_size": said.get("num_beams") or 1,
        "length_penalty": said.get("length_penalty", 1.0),
        "length_penalty_kind": "marian",
        "stopping": "full_beam" if said.get("early_stopping") is True else "exact",
        "max_length": _less(said.get("max_length") or _DEFAULT_LENGTH, 2),
        "min_length": _less(said.get("min_length") or 0, 1),
        "no_repeat_ngram": said.get("no_repeat_ngram_size") or None,
        "sampling": sampling,
    }
    if sampling:
        values |= {"top_k": _DEFAULT_TOP_K} | {name: said[name] for name in _OF_SAMPLES if said.get(name)}
    try:
        return GenerationConfig().changed(values), said.get("bad_words_ids")
    except BadInputError as error:
        raise BadInputError(f"{place}: {error}") from error


def _less(length: object, counted: int) -> object:
    return max(0, length - counted) if isinstance(length, int) and not isinstance(length, bool) else length


def forbidden_symbols(bad_words: object, target: Renumbering) -> list[int]:
    """The symbols that it never writes, by its own ids, without those that no search of ours writes.

    Whole words of several symbols are left out, which is said.

    Raises:
        BadInputError: It is no list of lists of ids.
    """
    words = [] if bad_words is None else bad_words
    if not isinstance(words, list) or not all(isinstance(each, list) and each for each in words):
        raise BadInputError(f"bad_words_ids = {bad_words!r}: lists of symbols belong here")
    single = [each[0] for each in words if len(each) == 1]
    if len(single) < len(words):
        _log.warning(f"bad_words_ids: {len(words) - len(single)} words of several symbols are left out")
    if any(not isinstance(each, int) or isinstance(each, bool) for each in single):
        raise BadInputError(f"bad_words_ids = {bad_words!r}: lists of symbols belong here")
    never = {target.rows[place] for place in (0, 1, 3)}
    return sorted({*single} - never)
