"""SentencePiece's normalization of characters, as the ``tokenizers`` library can be brought to do it."""

from typing import Final

from tokenizers import Regex, normalizers

from transduce.config import BadInputError
from transduce.text.guard import guarded

# Rules that amount to a composition of single characters' own (and, cf, to lower case).
_COMPOSING: Final = frozenset({"nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"})

# A tag that Unicode has given up: text does not have it, and it joins with no neighbour.
_SEAM: Final = "\U000e0001"
# Not before the first character: the library fails where something is put at the beginning.
_SEAMS: Final = r"(?<=[\s\S])(?=[^\x00-\x7F])|(?<=[^\x00-\x7F])(?=[\s\S])"


def character_rules(name: str, charsmap: bytes) -> list[normalizers.Normalizer]:
    """The normalizers that do what the rules called ``name`` do.

    ``Precompiled`` replaces a letter with its marks by what the letter alone would become, and drops the marks. So each
    character is mapped alone, with seams between them, and what belongs together is composed before and after. Two
    things SentencePiece does not do: marks in another order than Unicode's are put in order, and a mark behind what
    becomes several letters (a ligature) is composed with the last of them.

    Raises:
        BadInputError: They are rules of the model's own, or damaged.
    """
    if not charsmap:
        return []
    if name not in _COMPOSING:
        raise BadInputError(
            f"its normalization rules {name!r} are its own: only models with the rules identity, "
            f"{', '.join(sorted(_COMPOSING))} can be read"
        )
    with guarded("its normalization rules are damaged"):
        mapped = normalizers.Precompiled(charsmap)
    seams, joined = normalizers.Replace(Regex(_SEAMS), _SEAM), normalizers.Replace(_SEAM, "")
    return [normalizers.NFC(), seams, mapped, joined, normalizers.NFC()]
