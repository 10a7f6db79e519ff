"""BLEU that counts the parts of hyphenated compounds as words, as tensor2tensor's get_ende_bleu.sh does."""

import re
from typing import Final, final

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

COMPOUNDS: Final = "+compounds"
# As Perl's s/(\S)-(\S)/$1 ##AT##-##AT## $2/g: what one match has read, the next does not, so a-b-c is split once.
_HYPHEN: Final = re.compile(r"(\S)-(\S)")


@final
class SplitCompounds(BaseTokenizer):
    """A tokenizer of sacreBLEU's, and then every hyphen within a word as a word of its own, on both sides.

    With tokens given (``none``), the published script's text for multi-bleu.
    """

    def __init__(self, tokenizer: BaseTokenizer, name: str) -> None:
        self._tokenizer, self._name = tokenizer, name

    def signature(self) -> str:
        """The tokenizer's own name, marked."""
        return f"{self._name}{COMPOUNDS}"

    def __call__(self, line: str) -> str:
        """The tokens, with spaces between them."""
        return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", self._tokenizer(line))


def split_compounds(bleu: BLEU) -> BLEU:
    """The same BLEU of text whose compounds are split; its signature says so."""
    bleu.tokenizer = SplitCompounds(bleu.tokenizer, bleu.tokenizer_signature)
    bleu.tokenizer_signature = bleu.tokenizer.signature()
    return bleu
