"""What a model's process answers to each call."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError, TransduceError
from transduce.config.attention import AttentionHead
from transduce.inference import DocumentTranslation, Translation, Translator, translate_documents
from transduce.inference.paragraphs import check_options, translate_paragraphs
from transduce.inference.running import Cancellation
from transduce.text import read_document, split_sentences
from transduce.viewing import AttentionPage, SearchPage, ViewedSentence

Without = Callable[[Collection[AttentionHead]], Translator]
# Next symbols that are told of each hypothesis.
_TOP: Final = 10
# Sentences without an output, of a document.
_MOST_NAMED: Final = 3
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
        texts, details, kind = call["texts"], call["details"], call["format"]
        # What only a sentence has is asked for where a text is one.
        of_sentences = [name for name in _OF_SENTENCES if name in details or call.get(name)]

        def translate(sentences: Sequence[str]) -> list[Translation | TransduceError]:
            glossary = call.get("glossary", {})
            terms = _terms(sentences, glossary) if glossary else None
            outputs = self._translator.translate(
                sentences,
                n_best=call["n_best"],
                return_alignment="alignment" in details or kind != "text",
                return_attention="attention" in details,
                prefixes=call.get("prefixes"),
                must_contain=_join(call.get("must_contain"), terms),
                must_not_contain=call.get("must_not_contain", ()),
                first_number=None,
                errors="return",
                cancellation=cancellation,
                **call["settings"],
            )
            return [each if each.error is None else TransduceError(each.error) for each in outputs]

        if kind != "text":
            if details or of_sentences:
                raise BadInputError(f"format {kind}: a document has no {(*details, *of_sentences)[0]} of its own")
            documents = [read_document(kind, text, call["language"] if call["split"] else None) for text in texts]
            return [_describe_document(each) for each in translate_documents(documents, translate)]
        if call["split"]:
            check_options(dict.fromkeys(of_sentences, True))
            return [_describe(each, details) for each in translate_paragraphs(texts, call["language"], translate)]
        return [_describe(each, details) for each in translate(texts)]

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


def _describe_document(document: DocumentTranslation) -> dict[str, Any]:
    if document.failures:
        return {"text": "", "error": "; ".join(document.failures[:_MOST_NAMED])}
    alternatives = {"alternatives": [{"text": each} for each in document.alternatives]} if document.alternatives else {}
    return {"text": document.text, **alternatives}


def _describe(output: Translation | TransduceError, details: Sequence[str]) -> dict[str, Any]:
    if isinstance(output, TransduceError):
        return {"text": "", "error": str(output)}
    described = {"text": output.text, **{name: _plain(getattr(output, name)) for name in details}}
    if output.alternatives:
        described["alternatives"] = [_describe(each, details) for each in output.alternatives]
    return described


def _plain(value: float | bool | tuple[Any, ...] | NDArray[np.float32] | None) -> Any:  # noqa: ANN401 - as JSON has it
    return value.tolist() if isinstance(value, np.ndarray) else value
