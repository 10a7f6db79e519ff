"""What callers hand over, looked at before anything is done with it: errors of ours, not of Python's own."""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, get_args

import torch

from transduce.config import BadInputError, Precision
from transduce.config.generation import as_plain
from transduce.data import read_dictionary
from transduce.search import Constraint

_SHOWN: Final = 40  # characters of what an error shows


def shorten(text: str) -> str:
    """A text as an error shows it."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def read_texts(texts: object, name: str = "text", first_number: int = 1) -> list[str]:
    """The strings of any iterable.

    Raises:
        BadInputError: It is none, or something in it is no string; ``name`` and the number say which.
    """
    if texts is None or isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise BadInputError(f"{name}: {name_kind(texts)} was given: give strings, such as a list of them")
    try:
        iterator = iter(texts)
    except TypeError as error:  # an array without a dimension
        raise BadInputError(f"{name}: {name_kind(texts)} was given: give strings, such as a list of them") from error
    found = list(iterator)
    for number, each in enumerate(found, first_number):
        if not isinstance(each, str):
            raise BadInputError(f"{name} {number:,}: {_show(each)} is {name_kind(each)}, and a string belongs here")
    return found


def read_constraints(constraints: object) -> tuple[Constraint, ...]:
    """Constraints that a caller brings.

    Raises:
        BadInputError: Something is no ``search.Constraint``.
    """
    found: list[Constraint] = []
    for each in constraints if isinstance(constraints, Iterable) else [constraints]:
        if isinstance(each, type) or not isinstance(each, Constraint):
            raise BadInputError(
                f"constraints: {_show(each)} is {name_kind(each)}: give objects that have the methods of "
                f"transduce.search.Constraint, symbols(number) and start(number), in a list"
            )
        found.append(each)
    return tuple(found)


def read_entries(dictionary: object) -> dict[str, str]:
    """The entries of a dictionary: pairs of strings, or a file of them.

    Raises:
        BadInputError: It is none, or its file is none (``data.read_dictionary``).
    """
    if isinstance(dictionary, str | Path):
        return read_dictionary(Path(dictionary))
    if not isinstance(dictionary, Mapping):
        raise BadInputError(f"dictionary: {name_kind(dictionary)} was given: give a file, or a dict of words")
    for source, target in dictionary.items():
        if not (isinstance(source, str) and isinstance(target, str)):
            raise BadInputError(f"dictionary: {_show(source)}: {_show(target)}: a word and what it becomes are strings")
    return dict(dictionary)


def check_text(text: str, place: str = "") -> None:
    """Refuse a string that is no text: one that cannot be written in UTF-8.

    Raises:
        BadInputError: It holds half of a surrogate pair; ``place`` says which string it is.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInputError(
            f"{place}{place and ': '}character {error.start + 1:,} is half of a surrogate pair, which is no text: "
            f"decode the bytes that it came from as UTF-8"
        ) from error


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False.

    Raises:
        BadInputError: It is neither.
    """
    if not isinstance(value, bool):
        raise BadInputError(f"{name} {_show(value)}: must be True or False")


def check_object(name: str, value: object, kind: type, known_as: str) -> None:
    """Refuse what is neither None nor of a class, which callers know by a name.

    Raises:
        BadInputError: It is neither.
    """
    if value is not None and not isinstance(value, kind):
        raise BadInputError(f"{name}: {name_kind(value)} was given: give a {known_as}")


def check_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number that is not too small and not too large.

    Raises:
        BadInputError: It is none, or out of range.
    """
    number = as_plain(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise BadInputError(f"{name} {_show(value)}: must be a whole number")
    if number < least or (most is not None and number > most):
        raise BadInputError(
            f"{name} {number}: must be {least:,} or more" + ("" if most is None else f", {most:,} at most")
        )
    return number


def check_choice(name: str, value: object, known: Collection[str]) -> None:
    """Refuse what is none of the known words; the nearest one is named.

    Raises:
        BadInputError: It is none of them.
    """
    if value not in known:
        nearest = get_close_matches(str(value), known, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"choose from {', '.join(known)}"
        raise BadInputError(f"{name} {_show(value)}: there is no such choice: {hint}")


# What options are called elsewhere, in Hugging Face's `generate` above all.
_ELSEWHERE: Final = {
    "num_beams": "it is beam_size here",
    "num_return_sequences": "it is n_best here",
    "do_sample": "it is sampling here",
    "max_new_tokens": "it is max_length here",
    "no_repeat_ngram_size": "it is no_repeat_ngram here",
    "output_attentions": "it is return_attention here",
    "batch_size": "texts are batched by their lengths, give all of them at once",
}


def check_names(given: Collection[str], known: Collection[str], verb: str) -> None:
    """Refuse options that a verb does not have; what another library means is said, or the nearest one named.

    Raises:
        BadInputError: It does not have one.
    """
    for name in given:
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(sorted(known))}"
            hint = _ELSEWHERE.get(name, hint)
            raise BadInputError(f"{verb} has no option {name!r}: {hint}")


def read_precision(precision: object) -> Precision:
    """A number format by its name.

    Raises:
        BadInputError: There is none of that name.
    """
    known: tuple[Precision, ...] = get_args(Precision)
    check_choice("precision", precision, known)
    return next(each for each in known if each == precision)


def read_device(device: object) -> torch.device | None:
    """A device by torch's name for it, such as ``cpu`` or ``cuda:0``; None where nothing is said.

    Raises:
        BadInputError: There is no such device, here or at all.
    """
    if device is None:
        return None
    if not isinstance(device, str | torch.device):
        raise BadInputError(f"device {_show(device)}: give a name such as 'cpu' or 'cuda', or nothing")
    remedy = "give 'cpu', 'cuda' or 'cuda:N' for the N-th GPU, or nothing for what is here"
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise BadInputError(f"device {str(device)!r}: torch knows no such device: {remedy}") from error
    if found.type == "meta":
        raise BadInputError(f"device {str(device)!r}: holds no numbers: {remedy}")
    try:
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        # torch explains at length; what matters stands in its first line.
        reason = str(error).strip().partition("\n")[0]
        raise BadInputError(f"device {str(device)!r}: is not here ({reason}): {remedy}") from error
    return found


def name_kind(value: object) -> str:
    """What a value of the wrong type is, for an error."""
    if value is None or isinstance(value, str):
        return "None" if value is None else "one string"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in set('aeiou') else 'a'} {name}"


def _show(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:  # whatever a stranger's class raises, it is not the point
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
