"""What a model's process answers to each call."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from transduce.config import BadInputError, TransduceError
from transduce.config.attention import AttentionHead
from transduce.inference import Cancellation, DocumentTranslation, Translation, Translator, translate_documents
from transduce.inference.paragraphs import check_options, translate_paragraphs
from transduce.text import Tokenizer, read_document, split_sentences
from transduce.viewing import AttentionPage, SearchPage, ViewedSentence

Without = Callable[[Collection[AttentionHead]], Translator]
# Attention weights grow with the square of a text's tokens, and a search's tree is large. Of so many tokens, and
# so many texts, they still go through HTTP.
_LOOKED_AT: Final = 300
_MOST_LOOKED_AT: Final = 10
# Next symbols that are told of each hypothesis.
_TOP: Final = 10
# Sentences without an output, of a document.
_MOST_NAMED: Final = 3
# Numbers of attention that an answer has as JSON, which the server has to read and write.
_MOST_WEIGHTS: Final = 250_000
# Phrases that one sentence must have: its search compares what fulfils them with each other.
_MOST_PHRASES: Final = 100
# What only a single sentence has.
_OF_SENTENCES: Final = ("alignment", "attention", "prefixes", "must_contain")


@final
class Answers:
    """Calls of a model by their names; any thread may ask. ``without`` loads the model with some heads muted."""

    def __init__(self, translator: Translator, without: Without) -> None:
        self._translator, self._without = translator, without
        # The last translator without some heads: whoever looks at one sentence asks for the same heads again. There is
        # one at a time, whoever asks for how many.
        self._muted: tuple[frozenset[AttentionHead], Translator] | None = None
        self._muting = Lock()

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
                return self._attend(call, cancellation)
            case "search":
                return self._search(call, cancellation)
            case "card":
                return {"summary": self._translator.summary}
            case other:
                raise BadInputError(f"{other}: there is no such call")

    def _translate(self, call: dict[str, Any], cancellation: Cancellation) -> list[dict[str, Any]]:
        texts, details, kind = call["texts"], call["details"], call["format"]
        if "attention" in details:
            self._check_size(texts, call["n_best"])
            _check_lengths(call["settings"])
        # What only a sentence has is asked for where a text is one.
        of_sentences = [name for name in _OF_SENTENCES if name in details or call.get(name)]

        n_best = call["n_best"]
        if not call["strict"]:
            settings = self._translator.generation.changed(call["settings"])
            n_best = n_best if settings.sampling else min(n_best, settings.beam_size)

        def translate(sentences: Sequence[str]) -> list[Translation | TransduceError]:
            glossary = call.get("glossary", {})
            terms = _terms(sentences, glossary, cancellation) if glossary else None
            phrases = _join(call.get("must_contain"), terms)
            if phrases is not None and (most := max(map(len, phrases), default=0)) > _MOST_PHRASES:
                raise BadInputError(f"{most:,} phrases and terms for one sentence: at most {_MOST_PHRASES}")
            outputs = self._translator.translate(
                sentences,
                n_best=n_best,
                return_alignment="alignment" in details or (kind != "text" and self._translator.has_alignments),
                return_attention="attention" in details,
                prefixes=call.get("prefixes"),
                must_contain=phrases,
                must_not_contain=call.get("must_not_contain", ()),
                first_number=call["first_number"],
                warn=False,
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
            lines = call["split"] == "lines"
            found = translate_paragraphs(texts, call["language"], translate, at_line_feeds=lines)
            return [_describe(each, details) for each in found]
        outputs = translate(texts)
        _check_weights(outputs)
        return [_describe(each, details) for each in outputs]

    def _attend(self, call: dict[str, Any], cancellation: Cancellation) -> dict[str, Any]:
        text, output = call["text"], call["output"]
        self._check_size([text])
        heads = frozenset(AttentionHead(kind, layer, head) for kind, layer, head in call["mute"])
        if not heads:
            return self._look(self._translator, text, output, cancellation)
        with self._muting:
            cancellation.check()  # it may have waited for long
            if self._muted is None or self._muted[0] != heads:
                self._muted = None  # gone from memory before the next one comes
                self._muted = heads, self._without(heads)
            return self._look(self._muted[1], text, output, cancellation)

    def _look(
        self, translator: Translator, text: str, output: str | None, cancellation: Cancellation
    ) -> dict[str, Any]:
        written = translator.translate(text, first_number=None, cancellation=cancellation).text
        if output is not None:
            _check_tokens(self._translator.tokenizers.target, [output])
        maps = translator.attend(text, written if output is None else output)
        return AttentionPage([ViewedSentence(maps, written)]).data()

    def _search(self, call: dict[str, Any], cancellation: Cancellation) -> dict[str, Any]:
        self._check_size([call["text"]])
        settings = call["settings"]
        _check_lengths(settings)
        trace = self._translator.trace_search(call["text"], top=_TOP, cancellation=cancellation, **settings)
        return SearchPage(trace).data()

    def _check_size(self, texts: Sequence[str], outputs: int = 1) -> None:
        if (number := len(texts) * outputs) > _MOST_LOOKED_AT:
            raise BadInputError(f"{number:,} outputs: at most {_MOST_LOOKED_AT} can be looked at in one request")
        _check_tokens(self._translator.tokenizers.source, texts)


def _check_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    for ids in tokenizer.encode(list(texts)):
        if len(ids) > _LOOKED_AT:
            raise BadInputError(f"{len(ids):,} tokens: at most {_LOOKED_AT} can be looked at: send a shorter text")


def _check_lengths(settings: Mapping[str, Any]) -> None:
    for name in ("min_length", "max_length", "max_extra_length"):
        if settings.get(name, 0) > _LOOKED_AT:
            raise BadInputError(f"{name} {settings[name]:,}: outputs of at most {_LOOKED_AT} tokens can be looked at")


def _check_weights(outputs: Sequence[Translation | TransduceError]) -> None:
    every = (one for each in outputs if isinstance(each, Translation) for one in (each, *each.alternatives))
    number = sum(each.attention.size for each in every if each.attention is not None)
    if number > _MOST_WEIGHTS:
        raise BadInputError(
            f"{number:,} numbers of attention: at most {_MOST_WEIGHTS:,} go into one answer: ask for fewer outputs, or "
            f"for those of one sentence at /v1/attention, where they are packed"
        )


def _terms(sentences: Sequence[str], glossary: Mapping[str, str], cancellation: Cancellation) -> list[list[str]]:
    """Of each sentence, the translations of the terms that stand in it as words of their own.

    Where terms overlap, the longest one counts, and of those that differ in case the one that is written so.
    """
    # Those that differ in case are found at the same places: one search is for all of them.
    spellings: dict[str, list[str]] = {}
    for term in glossary:
        spellings.setdefault(_without_case(term), []).append(term)
    found = (_find_terms(sentence, spellings, cancellation) for sentence in sentences)
    return [[glossary[term] for term in glossary if term in terms] for terms in found]


def _find_terms(sentence: str, spellings: Mapping[str, Sequence[str]], cancellation: Cancellation) -> set[str]:
    found: list[tuple[int, int, str]] = []
    for terms in spellings.values():
        cancellation.check()  # a long text takes a while
        for match in _pattern(terms[0]).finditer(sentence):
            found.append((*match.span(), match[0] if match[0] in terms else terms[0]))
    found.sort(key=lambda each: (each[0] - each[1], sentence[each[0] : each[1]] != each[2]))
    taken, kept = set[int](), set[str]()
    for begin, end, term in found:
        if taken.isdisjoint(range(begin, end)):
            taken.update(range(begin, end))
            kept.add(term)
    return kept


def _without_case(term: str) -> str:
    return "".join(lower if len(lower := letter.lower()) == 1 else letter for letter in term)


@lru_cache(10_000)  # a streamed text brings the same ones with each of its sentences
def _pattern(term: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(term)}(?!\w)", re.IGNORECASE)


def _join(given: list[list[str]] | None, terms: list[list[str]] | None) -> list[list[str]] | None:
    if given is None or terms is None:
        return terms if given is None else given
    if len(given) != len(terms):
        raise BadInputError(f"{len(given):,} lists of must_contain for {len(terms):,} texts: give one for each text")
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
