"""What a model's process answers to each call."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError, TransduceError
from transduce.config.attention import AttentionHead
from transduce.inference import Translation, Translator
from transduce.inference.paragraphs import check_options, translate_paragraphs
from transduce.inference.running import Cancellation
from transduce.text import split_sentences
from transduce.viewing import AttentionPage, SearchPage, ViewedSentence

Without = Callable[[Collection[AttentionHead]], Translator]
# Next symbols that are told of each hypothesis.
_TOP: Final = 10
# What only a single sentence has.
_OF_SENTENCES: Final = ("alignment", "attention", "prefixes", "must_contain")


@final
class Answers:
    """Calls of a model by their names; any thread may ask. ``without`` loads the model with some heads muted."""

    def __init__(self, translator: Translator, without: Without) -> None:
        self._translator, self._without = translator, without
        # The last translator without some heads: whoever looks at one sentence asks for the same heads again.
        self._muted: tuple[frozenset[AttentionHead], Translator] | None = None

    def answer(self, call: dict[str, Any], cancellation: Cancellation) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """The answer to a call.

        Raises:
            BadInputError: What is asked for cannot be.
            TransduceError: Memory is too small, or the search has failed.
        """
        match call.pop("call"):
            case "translate":
                return self._translate(call, cancellation)
            case "split":
                return split_sentences(call["text"], call["language"])
            case "attend":
                return self._attend(call)
            case "search":
                return SearchPage(self._translator.trace_search(call["text"], top=_TOP, **call["settings"])).data()
            case "card":
                return {"summary": repr(self._translator)}
            case other:
                raise BadInputError(f"{other}: there is no such call")

    def _translate(self, call: dict[str, Any], cancellation: Cancellation) -> list[dict[str, Any]]:
        texts, details, glossary = call["texts"], call["details"], call.get("glossary", {})

        def translate(sentences: Sequence[str]) -> list[Translation]:
            terms = _terms(sentences, glossary) if glossary else None
            return self._translator.translate(
                sentences,
                n_best=call["n_best"],
                return_alignment="alignment" in details,
                return_attention="attention" in details,
                prefixes=call.get("prefixes"),
                must_contain=_join(call.get("must_contain"), terms),
                must_not_contain=call.get("must_not_contain", ()),
                first_number=None,
                errors="return",
                cancellation=cancellation,
                **call["settings"],
            )

        if call["format"] != "text":
            raise BadInputError(f"format {call['format']}: is not supported")
        if call["split"]:
            asked = {name: name in details or bool(call.get(name)) for name in _OF_SENTENCES}
            check_options(asked)
            outputs = translate_paragraphs(
                texts, call["language"], lambda several: list(map(_outcome, translate(several)))
            )
        else:
            outputs = [_outcome(each) for each in translate(texts)]
        return [_describe(each, details) for each in outputs]

    def _attend(self, call: dict[str, Any]) -> dict[str, Any]:
        text, output = call["text"], call["output"]
        heads = frozenset(AttentionHead(kind, layer, head) for kind, layer, head in call["mute"])
        translator = self._mute(heads) if heads else self._translator
        written = translator.translate(text, first_number=None).text
        maps = translator.attend(text, written if output is None else output)
        return AttentionPage([ViewedSentence(maps, written)]).data()

    def _mute(self, heads: frozenset[AttentionHead]) -> Translator:
        if self._muted is None or self._muted[0] != heads:
            self._muted = heads, self._without(heads)
        return self._muted[1]


def _terms(sentences: Sequence[str], glossary: Mapping[str, str]) -> list[list[str]]:
    """Of each sentence, the translations of the terms that stand in it as words of their own."""
    patterns = {
        re.compile(rf"(?<!\w){re.escape(term)}(?!\w)", re.IGNORECASE): translation
        for term, translation in glossary.items()
    }
    return [[translation for term, translation in patterns.items() if term.search(each)] for each in sentences]


def _join(given: list[list[str]] | None, terms: list[list[str]] | None) -> list[list[str]] | None:
    if given is None or terms is None:
        return terms if given is None else given
    return [[*one, *other] for one, other in zip(given, terms, strict=True)]


def _outcome(output: Translation) -> Translation | TransduceError:
    return output if output.error is None else TransduceError(output.error)


def _describe(output: Translation | TransduceError, details: Sequence[str]) -> dict[str, Any]:
    if isinstance(output, TransduceError):
        return {"text": "", "error": str(output)}
    described = {"text": output.text, **{name: _plain(getattr(output, name)) for name in details}}
    if output.alternatives:
        described["alternatives"] = [_describe(each, details) for each in output.alternatives]
    return described


def _plain(value: float | bool | tuple[Any, ...] | NDArray[np.float32] | None) -> Any:  # noqa: ANN401 - as JSON has it
    return value.tolist() if isinstance(value, np.ndarray) else value
