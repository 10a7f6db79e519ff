"""How a MarianMT model writes, as ``transformers``' ``generate`` is told."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from transduce.config import BadInputError, GenerationConfig
from transduce.config.values import shorten
from transduce.interop.json_files import read_json
from transduce.interop.options import Options
from transduce.interop.renumbering import Renumbering

_log = logging.getLogger(__name__)

GENERATION: Final = "generation_config.json"
_DEFAULT_LENGTH: Final = 20  # of its outputs, where nothing is said
_DEFAULT_TOP_K: Final = 50
# What its search can do and ours cannot, and the value that means nothing.
_UNSAYABLE: Final = {
    "repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "forced_bos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_decoder_ids": None,
    "force_words_ids": None,
    "constraints": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
    "penalty_alpha": None,
    "guidance_scale": 1.0,
    "stop_strings": None,
    "max_time": None,
}
# The same of its samples.
_UNSAYABLE_OF_SAMPLES: Final = {"min_p": None, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}


def read_generation(folder: Path, config: Options) -> tuple[GenerationConfig, object]:
    """Our settings of its search, and its ``bad_words_ids``.

    They stand in ``generation_config.json`` or, in older folders, in the configuration. Its lengths count what the
    decoder begins with, its longest one the end too; a score is divided by the length, the end counted, to the power of
    its penalty.

    Raises:
        BadInputError: A value is out of range.
    """
    place = folder / GENERATION
    said = Options.of(read_json(place), place) if place.exists() else config
    sampling = said.flag("do_sample", default=False)
    for name, nothing in (_UNSAYABLE | (_UNSAYABLE_OF_SAMPLES if sampling else {})).items():
        if (value := said.given(name)) not in (nothing, None, []):
            _log.warning(f"{said.place}: {name} = {shorten(value)} is left out: no search of ours has it")
    if isinstance(said.given("eos_token_id"), list):
        _log.warning(f"{said.place}: eos_token_id is a list: the end symbol is the one of the model's configuration")
    values: dict[str, object] = {
        "beam_size": said.integer("num_beams", 1),
        "length_penalty": said.number("length_penalty", 1.0),
        "length_penalty_kind": "marian",
        "stopping": "full_beam" if said.given("early_stopping") is True else "exact",
        "max_length": max(0, _longest(said) - 2),
        "min_length": max(0, said.integer("min_length", 0) - 1, said.integer("min_new_tokens", 0)),
        "no_repeat_ngram": said.integer("no_repeat_ngram_size", 0) or None,
        "sampling": sampling,
    }
    if sampling:
        if (beams := said.integer("num_beams", 1)) > 1:
            _log.warning(f"{said.place}: do_sample beside num_beams = {beams}: samples are drawn without a beam here")
        values |= {
            "top_k": said.integer("top_k", _DEFAULT_TOP_K) or None,
            "top_p": None if said.given("top_p") is None else said.number("top_p"),
            "temperature": said.number("temperature", 1.0),
        }
    try:
        return GenerationConfig().changed(values), said.given("bad_words_ids")
    except BadInputError as error:
        raise BadInputError(f"{said.place}: {error}") from error


def _longest(said: Options) -> int:
    """The most symbols, that which the decoder begins with and the end counted; ``max_new_tokens`` comes first."""
    if new := said.integer("max_new_tokens", 0):
        return new + 1
    return said.integer("max_length", 0) or _DEFAULT_LENGTH


def warn_of_left_out(ours: GenerationConfig, names: Sequence[str], whose: str) -> None:
    """Name what is set of these settings, which another search has not."""
    usual = GenerationConfig()
    for name in names:
        if (value := getattr(ours, name)) != getattr(usual, name):
            _log.warning(f"{name} = {value} is left out: {whose} search has no such setting")


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
