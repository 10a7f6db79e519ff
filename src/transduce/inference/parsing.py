"""Sentences to trees: a translator whose outputs are linearised trees, kept well-formed by a constraint."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final, Protocol, Unpack, final

from transduce.config import BadInputError, GenerationChanges
from transduce.inference.arguments import check_names, name_kind, read_texts
from transduce.inference.translation import Translation
from transduce.search import TreeSymbols, WellFormed
from transduce.text import BadTreeError, Linearization, Tokenizer, TokenizerPair, Tree, escape, unescape
from transduce.text.linearization import Closing, Leaf, Opening

# What would contradict the shape of a tree: asked for, it is refused; where a model's own settings have it, it is off.
_AGAINST: Final = {"no_repeat_ngram": 0, "min_length": 0, "replace_unknown": False}


@final
@dataclass(frozen=True)
class Parse:
    """The tree of a sentence, or why it has none.

    ``confidence`` is the (geometric) mean probability of a symbol, in 0 to 1. ``repaired`` says that the model wrote no
    tree over the sentence's words. An empty line has neither tree nor error. Of ``alternatives``, the next best are
    first.
    """

    tree: Tree | None
    log_probability: float = 0.0
    score: float = 0.0
    confidence: float = 0.0
    repaired: bool = False
    error: str | None = None
    alternatives: tuple["Parse", ...] = ()


class Translates(Protocol):
    """What a parser asks of a ``Translator``."""

    @property
    def tokenizers(self) -> TokenizerPair:
        """Whose target's vocabulary has the symbols of trees."""
        ...

    @property
    def translate(self) -> Callable[..., list[Translation]]:
        """One output for each text, as ``Translator.translate`` gives them."""
        ...


@final
@dataclass(frozen=True)
class TreeVocabulary:
    """The symbols of trees in a vocabulary: how they are written, their names, and what each id means."""

    linearization: Linearization
    names: frozenset[str]
    symbols: TreeSymbols

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TreeVocabulary | None":
        """Those of a tokenizer's, all of which are looked through; none where it has no trees."""
        vocabulary = _written_alone(tokenizer)
        found = Linearization.of(vocabulary.values())
        if found is None:
            return None
        names = frozenset(name for name in vocabulary.values() if found.meaning(name) is not None)
        return cls(found, names, _tree_symbols(found, vocabulary, tokenizer.special.end))


@final
class Parser:
    """What a model that was trained on trees makes of sentences.

    ``vocabulary`` is that of the translator's target side, for who has it already.

    Raises:
        BadInputError: The model's vocabulary has no trees.
    """

    def __init__(self, translator: Translates, vocabulary: TreeVocabulary | None = None) -> None:
        found = vocabulary or TreeVocabulary.of(translator.tokenizers.target)
        if found is None:
            raise BadInputError(
                f"{translator!r} writes no trees: its vocabulary has no symbols of them. Train one on treebanks "
                f'(trees = "FILE" in the run file)'
            )
        self._translator, self._vocabulary = translator, found

    def parse(
        self,
        sentences: Iterable[str | Sequence[str]],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        *,
        well_formed: bool = True,
        prefix: str = "",
        first_number: int | None = 1,
        **changes: Unpack[GenerationChanges],
    ) -> list[Parse]:
        """Parse sentences; a word stands in the tree to the letter, brackets escaped.

        Args:
            sentences: The words of each, in a list or separated by white space; without words, it has no tree.
            beam_size: As in ``Translator.translate``.
            length_penalty: Alpha of the length penalty.
            n_best: Trees for each sentence, the best one first.
            well_formed: Keep every output a tree over the sentence's words while it is written. Otherwise what comes
                out is repaired.
            prefix: What the model reads before each sentence, such as a corpus's tag and a space; no word of the tree.
            first_number: The number of the first sentence, in warnings; None leaves them out.
            **changes: Other settings of ``config.GenerationConfig``.

        Raises:
            BadInputError: As ``Translator.translate``; or a setting contradicts the shape of trees, or a word is empty.
        """
        check_names(changes, frozenset(GenerationChanges.__annotations__), "parse")
        if asked := [name for name in _AGAINST if changes.get(name)]:
            raise BadInputError(f"{asked[0].replace('_', ' ')}: contradicts the shape of trees: leave it out")
        several = read_sentences(sentences, 1 if first_number is None else first_number)
        texts = [prefix + " ".join(map(unescape, words)) if words else "" for words in several]
        first = 1 if first_number is None else first_number
        spelled = [self._spell(words) for words in several]
        options: dict[str, Any] = {**changes, **_AGAINST}
        if well_formed:
            options["constraints"] = [WellFormed(self._vocabulary.symbols, dict(enumerate(spelled, first)))]
        found = self._translator.translate(
            read_texts(texts, "sentence", first),
            beam_size,
            length_penalty,
            n_best,
            first_number=first_number,
            errors="return",
            **options,
        )
        return [
            self._read(each, words, pieces if well_formed else None)
            for each, words, pieces in zip(found, several, spelled, strict=True)
        ]

    def _spell(self, words: Sequence[str]) -> list[list[int]]:
        """What stands for each word behind its leaf: its ids, or nothing where outputs have no words."""
        if not self._vocabulary.linearization.words:
            return [[] for _ in words]
        return self._translator.tokenizers.target.encode([unescape(word) for word in words])

    def _read(self, found: Translation, words: Sequence[str], spelled: list[list[int]] | None) -> Parse:
        """The trees of a sentence; ``spelled`` is how its words stand in outputs that the constraint has kept."""
        if found.error is not None or not words:
            return Parse(None, error=found.error)
        leaves = [escape(word) for word in words]
        best, *others = (self._one(each, leaves, spelled) for each in (found, *found.alternatives))
        return replace(best, alternatives=tuple(others))

    def _one(self, found: Translation, words: Sequence[str], spelled: list[list[int]] | None) -> Parse:
        symbols_and_end = len(found.tokens) + 1
        known = found.log_probability, found.score, math.exp(found.log_probability / symbols_and_end)
        symbols = [token.strip() for token in found.tokens]  # in a BPE they begin with a space
        linearization = self._vocabulary.linearization
        if linearization.words:
            symbols = self._without_words(symbols, spelled)
        try:
            return Parse(linearization.read(symbols, words), *known)
        except BadTreeError:
            if spelled is not None:  # there was no way to a tree from the beginning
                size = f"a tree of {len(words):,} words"
                advice = "allow more (max_length, max_extra_length)"
                return Parse(None, error=f"{size} does not fit in the length limit: {advice}")
            return Parse(linearization.repair(symbols, words), *known, repaired=True)

    def _without_words(self, symbols: Sequence[str], spelled: list[list[int]] | None) -> list[str]:
        """The symbols of the tree. A word may look like one: where words are known, so many symbols are passed over."""
        if spelled is None:
            return [each for each in symbols if each in self._vocabulary.names]
        kept, rest, words = [], iter(symbols), iter(spelled)
        for symbol in rest:
            kept.append(symbol)
            if isinstance(self._vocabulary.linearization.meaning(symbol), Leaf):
                for _ in next(words, ()):
                    next(rest, None)
        return kept


def _written_alone(tokenizer: Tokenizer) -> dict[int, str]:
    """The symbols that stand for a word of its own; a BPE has parts of words too, some of which look alike."""
    special = {*astuple(tokenizer.special)}
    names = [token.strip() for token in tokenizer.tokens(range(tokenizer.vocab_size))]
    return {
        index: name
        for index, (name, ids) in enumerate(zip(names, tokenizer.encode(names), strict=True))
        if ids == [index] and index not in special
    }


def _tree_symbols(linearization: Linearization, vocabulary: Mapping[int, str], end: int) -> TreeSymbols:
    """What the ids of a vocabulary mean."""
    opening: dict[int, str] = {}
    closing: dict[str | None, int] = {}
    leaves: list[int] = []
    for index, symbol in vocabulary.items():
        match linearization.meaning(symbol):
            case Opening("") | Closing(""):
                pass  # a bracket of the texts, where both sides share a vocabulary
            case Opening(label):
                opening[index] = label
            case Closing(label):
                if closing.setdefault(label, index) != index:
                    raise BadInputError(
                        f"the vocabulary has two symbols, {closing[label]} and {index}, that both read {symbol}: "
                        f"which of them closes a phrase cannot be told; make the tokenizer anew"
                    )
            case Leaf():
                leaves.append(index)
    # Where each phrase ends by a symbol of its own, what has none is a piece of text that begins with a bracket.
    if None not in closing:
        labels = {*opening.values()} & closing.keys()
        opening = {index: label for index, label in opening.items() if label in labels}
        closing = {label: index for label, index in closing.items() if label in labels}
    return TreeSymbols(opening, closing, tuple(leaves), end)


def _words_of(sentence: object, number: int) -> list[Any]:
    if isinstance(sentence, str):
        return sentence.split()
    if not isinstance(sentence, Iterable):
        raise BadInputError(f"sentence {number:,}: {name_kind(sentence)} was given: give a string, or a list of words")
    return list(sentence)


def read_sentences(sentences: Iterable[str | Sequence[str]], first: int = 1) -> list[list[str]]:
    """The words of each.

    Raises:
        BadInputError: They are one string, or a word is none; the first such sentence is named.
    """
    if isinstance(sentences, str):
        raise BadInputError("parse: one string was given: give a list of sentences")
    several = [_words_of(each, number) for number, each in enumerate(sentences, first)]
    for number, words in enumerate(several, first):
        for place, word in enumerate(words, 1):
            if not isinstance(word, str) or not word.strip():
                raise BadInputError(f"sentence {number:,}: word {place} is {word!r}: give a string that is not empty")
    return several
