"""Which word of the source each word of an output comes from, as its attention tells."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from transduce.text import Tokenizer

Alignment = tuple[tuple[int, int], ...]


def align(
    weights: Float[Tensor, "target source"], source_words: Sequence[int], target_words: Sequence[int]
) -> Alignment:
    """Pairs (source word, output word), counted from 0: every token of the output points at one of the source.

    ``weights`` has the end symbol last on both sides; the end of the source is nothing that a token comes from. Several
    tokens of a word may point at as many words, and words that nothing points at stand in no pair.
    """
    best = weights[: len(target_words), : len(source_words)].argmax(dim=1).tolist()
    return tuple(sorted({(source_words[token], word) for token, word in zip(best, target_words, strict=True)}))


def word_numbers(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The word that each token is in, or stands behind; white space separates words."""
    beginnings = tokenizer.decode([ids[: end + 1] for end in range(len(ids))])
    return [max(len(text.split()) - 1, 0) for text in beginnings]


def pharaoh(alignment: Alignment) -> str:
    """The usual form: ``0-0 1-2``, source before output."""
    return " ".join(f"{source}-{target}" for source, target in alignment)
