"""The Translator: text in, text out."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Unpack, final, get_args, overload

import torch

from transduce.bundle import Bundle, PrepackedBundle
from transduce.config import BadInputError, GenerationChanges, GenerationConfig, Precision, TransduceError
from transduce.data import bare
from transduce.inference.arguments import (
    check_choice,
    check_flag,
    check_names,
    check_number,
    check_object,
    check_text,
    name_kind,
    read_constraints,
    read_entries,
    read_texts,
    shorten,
)
from transduce.inference.attention import AttentionMaps, attend
from transduce.inference.engine import Engine
from transduce.inference.head_roles import HeadStatistics, measure_heads
from transduce.inference.nltk_trees import parse_to_nltk
from transduce.inference.paragraphs import check_options, translate_paragraphs
from transduce.inference.parsing import Parser, TreeVocabulary
from transduce.inference.requirements import OutputRequirements, search_settings
from transduce.inference.running import Cancellation, RunningSearch
from transduce.inference.scoring import score_pairs
from transduce.inference.search_trace import SearchTrace, describe_search
from transduce.inference.text_search import TextSearch, TranslationRequest
from transduce.inference.translation import (
    Translation,
    failed,
    length_option,
    warn_of_failures,
    warn_of_limits,
)
from transduce.inference.unknown_words import NO_ATTENTION, UnknownWords
from transduce.models import Shortlist
from transduce.search import (
    Constraint,
    Recorder,
)
from transduce.text import TokenizerPair

if TYPE_CHECKING:
    import nltk

Errors = Literal["raise", "return"]
# With as many texts as memory holds behind it, a number is still one of 64 bits.
_MOST_NUMBERS: Final = 2**53


class TranslationOptions(GenerationChanges, total=False):
    """The options of ``Translator.translate`` that are given by name; what each means stands there."""

    return_alignment: bool
    prefixes: Iterable[str] | None
    must_contain: Iterable[Iterable[str]] | None
    must_not_contain: Iterable[str]
    dictionary: Mapping[str, str] | str | Path | None
    constraints: Iterable[Constraint]
    paragraphs: bool
    language: str | None
    first_number: int | None
    warn: bool
    errors: Errors
    cancellation: Cancellation | None
    recorder: Recorder | None


_OPTIONS: Final = frozenset(TranslationOptions.__annotations__) | {
    "beam_size",
    "length_penalty",
    "n_best",
    "return_attention",
}


@final
class Translator:
    """A loaded model that writes one output for every input, in the order of the input, empty for empty.

    Several bundles are an ensemble: the mean of their probabilities. How it writes is the first one's to say. With a
    shortlist, it writes each output with what is in its text's list. With ``consume`` it takes the bundles' models
    themselves, in place of copies; prepacked ones are taken as they are. ``name`` is for people to know it by.
    """

    def __init__(
        self,
        bundle: Bundle | Sequence[Bundle] | Sequence[PrepackedBundle],
        precision: Precision = "auto",
        device: torch.device | None = None,
        shortlist: Shortlist | None = None,
        *,
        consume: bool = False,
        name: str = "",
    ) -> None:
        bundles = [bundle] if isinstance(bundle, Bundle) else bundle
        first = bundles[0]
        self._name = name
        self._configs = [each.config for each in bundles]
        self._tokenizers = first.tokenizers
        self._source, self._target = first.tokenizers.source, first.tokenizers.target
        self._defaults = first.generation
        models: Any = [each.model for each in bundles]  # of one type
        self._engine = Engine(models, first.tokenizers.special, precision, device, consume=consume)
        self._texts = TextSearch(self._engine, self._tokenizers)
        self._shortlist = None if shortlist is None else shortlist.to(self._engine.device)

    @property
    def tokenizers(self) -> TokenizerPair:
        """What makes ids of texts and texts of ids, on either side: constraints speak of ``target``'s."""
        return self._tokenizers

    @property
    def generation(self) -> GenerationConfig:
        """How the model writes where a call says nothing else."""
        return self._defaults

    @property
    def precision(self) -> Precision:
        """The number format that it computes in, also where that was left to ``auto``."""
        return self._engine.format

    @property
    def has_alignments(self) -> bool:
        """Whether it can say which word of the source each word of an output comes from: it has that attention."""
        return self._engine.has_cross_attention

    def __repr__(self) -> str:
        """What is loaded, and from where."""
        return f"Translator({f'{self._name!r}, ' if self._name else ''}{self.summary})"

    @property
    def summary(self) -> str:
        """What is loaded: of which size, in which number format, on which device."""
        models = [
            f"{each.summary}, vocabulary "
            + " to ".join(f"{size:,}" for size in (each.source_vocab_size, each.vocab_size) if size is not None)
            for each in self._configs
        ]
        several = f"{len(models)} models: " if len(models) > 1 else ""
        shortlist = "" if self._shortlist is None else ", shortlist"
        size = several + "; ".join(dict.fromkeys(models))
        return f"{size}, {self._engine.format} on {self._engine.device}{shortlist}"

    # A string is an iterable of strings as well: the type checker cannot be told that the first one goes before.
    @overload
    def translate(  # type: ignore[overload-overlap]
        self,
        texts: str,
        beam_size: int | None = ...,
        length_penalty: float | None = ...,
        n_best: int = ...,
        return_attention: bool = ...,
        **options: Unpack[TranslationOptions],
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: Iterable[str],
        beam_size: int | None = ...,
        length_penalty: float | None = ...,
        n_best: int = ...,
        return_attention: bool = ...,
        **options: Unpack[TranslationOptions],
    ) -> list[Translation]: ...

    def translate(
        self,
        texts: str | Iterable[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        return_attention: bool = False,
        *,
        return_alignment: bool = False,
        prefixes: Iterable[str] | None = None,
        must_contain: Iterable[Iterable[str]] | None = None,
        must_not_contain: Iterable[str] = (),
        dictionary: Mapping[str, str] | str | Path | None = None,
        constraints: Iterable[Constraint] = (),
        paragraphs: bool = False,
        language: str | None = None,
        first_number: int | None = 1,
        warn: bool = True,
        errors: Errors = "raise",
        cancellation: Cancellation | None = None,
        recorder: Recorder | None = None,
        **changes: Unpack[GenerationChanges],
    ) -> Translation | list[Translation]:
        """Translate texts, one sentence each. None means what the model's ``generation_config.json`` says.

        Text of nothing but white space is empty. Line ends behind a text are no part of it, nor is a byte-order mark
        before it (``data.bare``), as in files; with ``paragraphs``, white space stays. No text is cut. An output that
        reached the length limit may lack its end: a warning names the numbers of such texts.

        Args:
            texts: The sources: strings in a list or any other iterable; one string gives one translation.
            beam_size: Open hypotheses; 1 is greedy search.
            length_penalty: Alpha.
            n_best: Outputs for each text, the best one first; with ``sampling``, how many are drawn. Fewer come where
                the search ends with fewer.
            return_attention: Whether to give the attention weights of each output.
            return_alignment: Whether to give which word of the source each word of the output comes from.
            prefixes: How each output begins; an empty one leaves it free.
            must_contain: The phrases that each output must have, token for token.
            must_not_contain: The phrases that no output may have, token for token.
            dictionary: With ``replace_unknown``: what words of the source become where they are put in the place of an
                unknown word, or a file of that (``data.read_dictionary``). Words that it has not are copied.
            constraints: What else outputs have to fulfil, over the ids of ``tokenizers.target``; they know the texts by
                their numbers, from ``first_number`` (None counts from 1).
            paragraphs: Whether texts may have several sentences: each is translated on its own, and what stood between
                them stands between their translations. Needs the extra ``paragraphs``.
            language: The language of the sources, for splitting paragraphs: a code such as ``de``. None means ``en``.
            first_number: The number that a warning gives the first text; None leaves the warning out. Samples follow
                from the numbers too: a text of the same number and seed gets the same ones (None counts from 1).
            warn: Whether texts whose output reached the length limit are warned of.
            errors: What becomes of a text that has no output: ``raise`` an error that names it, or ``return`` an empty
                translation whose ``error`` says why; the others are translated.
            cancellation: What another thread may withdraw the call by; its texts then have no output.
            recorder: Where the rounds of the search are written down, by the texts' numbers: see ``trace_search``.
            **changes: Any other setting of ``config.GenerationConfig``, by its name.

        Raises:
            BadInputError: An argument is of the wrong type or out of range, there is no option of a name, or options
                exclude each other. With ``errors="raise"``: what is asked of an output cannot be met, or a text is
                longer than ``max_source_length`` or the positions that the model has learned.
            TransduceError: With ``errors="raise"``, memory is too small for a text.
        """
        check_names(changes, _OPTIONS, "translate")
        for name, flag in (
            ("return attention", return_attention),
            ("return alignment", return_alignment),
            ("paragraphs", paragraphs),
            ("warn", warn),
        ):
            check_flag(name, flag)
        check_choice("errors", errors, get_args(Errors))
        first = 1 if first_number is None else check_number("first number", first_number, 0, _MOST_NUMBERS)
        check_object("recorder", recorder, Recorder, "transduce.search.Recorder")
        check_object("cancellation", cancellation, Cancellation, "transduce.inference.Cancellation")
        if language is not None and not isinstance(language, str):
            raise BadInputError(f"language {language!r}: give a code such as 'de'")
        several = [texts] if isinstance(texts, str) else read_texts(texts, "text", first)
        generation = self._defaults.changed({"beam_size": beam_size, "length_penalty": length_penalty, **changes})
        if generation.sampling and beam_size is not None:
            raise BadInputError(f"beam size {beam_size}: sampling has no beam: leave it out (n-best says how many)")
        self._check_attention(
            {
                "return attention": return_attention,
                "return alignment": return_alignment,
                "coverage penalty": generation.coverage_penalty > 0,
            }
        )
        request = TranslationRequest(
            generation,
            replace(
                search_settings(generation, check_number("n-best", n_best, 1), self._target, self._shortlist),
                recorder=recorder,
            ),
            OutputRequirements.read(several, first, prefixes, must_contain, must_not_contain),
            read_constraints(constraints),
            return_attention,
            return_alignment,
            self._unknown_words(generation, dictionary),
            first,
            hurry=errors == "raise",
            cancellation=cancellation,
        )
        if paragraphs:
            asked = {
                "attention weights": return_attention,
                "alignment": return_alignment,
                "prefix": prefixes is not None,
                "phrases that it must contain": must_contain is not None,
                "constraints": bool(request.constraints),
                "samples": generation.sampling,
                "recorded search": recorder is not None,
            }
            check_options(asked)
            # Its sentences have numbers of their own.
            request = replace(request, first=1)
            outcomes = translate_paragraphs(
                several, language or "en", lambda each: self._texts.translate(each, request)
            )
        elif language is not None:
            raise BadInputError(f"language {language!r}: is for splitting paragraphs, and none are to be split")
        else:
            outcomes = self._texts.translate(several, request)
        results = []
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, Translation):
                results.append(outcome)
            elif errors == "return":
                results.append(replace(failed(str(outcome)), alignment=() if return_alignment else None))
            else:
                place = shorten(several[index]) if first_number is None else f"text {first + index:,}"
                raise type(outcome)(f"{place}: {outcome}")
        if warn and first_number is not None:
            warn_of_limits(results, first_number, self._engine.longest, length_option(generation))
        return results[0] if isinstance(texts, str) else results

    @overload
    def score(  # type: ignore[overload-overlap]
        self,
        sources: str,
        targets: str,
        *,
        first_number: int = ...,
        max_source_length: int | None = ...,
        errors: Errors = ...,
    ) -> float: ...

    @overload
    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        *,
        first_number: int = ...,
        max_source_length: int | None = ...,
        errors: Errors = ...,
    ) -> list[float]: ...

    def score(
        self,
        sources: str | Iterable[str],
        targets: str | Iterable[str],
        *,
        first_number: int = 1,
        max_source_length: int | None = None,
        errors: Errors = "raise",
    ) -> float | list[float]:
        """The natural log-probability of each target given its source, both ``bare``, end symbol counted.

        Args:
            sources: Strings in a list or any other iterable; one string, and one target, give one number.
            targets: As many.
            first_number: The number of the first pair, for errors and warnings.
            max_source_length: The most symbols of either side. None means what the model's ``generation_config.json``
                says.
            errors: What becomes of a pair that cannot be scored: ``raise`` an error that names it, or ``return`` nan in
                its place, with a warning that names it.

        Raises:
            BadInputError: An argument is of the wrong type, or there are more sources than targets, or fewer. With
                ``errors="raise"``: a side of a pair is longer than it may be.
            TransduceError: With ``errors="raise"``, memory is too small for a pair.
        """
        check_choice("errors", errors, get_args(Errors))
        first = check_number("first number", first_number, 0)
        one = isinstance(sources, str)
        if one != isinstance(targets, str):
            raise BadInputError("score takes a source and a target, or several of each: one string was given")
        limit = self._defaults.changed({"max_source_length": max_source_length}).max_source_length
        sides = (
            [sources] if isinstance(sources, str) else read_texts(sources, "source", first),
            [targets] if isinstance(targets, str) else read_texts(targets, "target", first),
        )
        found = score_pairs(self._engine, self._tokenizers, sides, limit, first, hurry=errors == "raise")
        if found.failures and errors == "raise":
            raise next(iter(found.failures.values()))
        warn_of_failures([str(each) for each in found.failures.values()])
        return found.values[0] if one else found.values

    def _check_attention(self, asked: Mapping[str, bool]) -> None:
        """Refuse what follows from attention where a model has none, before anything is searched for.

        Raises:
            BadInputError: Something of it is asked for.
        """
        for name in (name for name, wanted in asked.items() if wanted):
            if not self._engine.has_cross_attention:
                raise BadInputError(f"{name}: the model has no encoder-decoder attention: leave it out")

    def _unknown_words(self, generation: GenerationConfig, dictionary: object) -> UnknownWords:
        """What becomes of unknown words.

        Raises:
            BadInputError: The model cannot say what an unknown word stands for, or the dictionary is none or not read.
        """
        if not generation.replace_unknown:
            if dictionary is not None:
                raise BadInputError("dictionary: is for unknown words: ask for replace_unknown, or leave it out")
            return UnknownWords()
        if not (self._target.knows_all or self._engine.has_cross_attention):
            raise BadInputError(NO_ATTENTION)
        return UnknownWords({} if dictionary is None else read_entries(dictionary))

    def attend(self, source: str, target: str | None = None) -> AttentionMaps:
        """All attention weights of one forced pass: each kind, layer and head, off the fast path.

        Args:
            source: A text.
            target: What is written for it; None means what the model itself writes.

        Raises:
            BadInputError: An argument is no string, or too long, or ``source`` is empty.
            TransduceError: Memory is too small.
        """
        for name, text in (("source", source), ("target", target)):
            if not isinstance(text, str) and (text is not None or name == "source"):
                raise BadInputError(f"attend: the {name} is {type(text).__name__}: give a string")
        if not bare(source).strip():
            raise BadInputError("attend: the source is empty: there is nothing to look at")
        written = self.translate(source).text if target is None else target
        limit = self._defaults.max_source_length
        ((_, found),) = attend(self._engine, self._tokenizers, [(source, written)], limit)
        if isinstance(found, TransduceError):
            raise found
        return found

    def measure_heads(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        *,
        alignments: Iterable[str] | None = None,
        first_number: int = 1,
        max_source_length: int | None = None,
    ) -> HeadStatistics:
        """What each attention head does over a corpus (``config.head_roles.HeadRole``), by forced passes.

        Args:
            sources: Texts.
            targets: What is written for them.
            alignments: Which words belong together, a line in Pharaoh form for each pair: what the encoder-decoder
                attention is held against. None means the model's own alignment.
            first_number: The number of the first pair, for errors.
            max_source_length: The most symbols of either side. None means what the model's ``generation_config.json``
                says. A longer pair is left out, and stands in ``left_out``.

        Raises:
            BadInputError: An argument is of the wrong type, there are more of one side than of the other, or an
                alignment is none.
        """
        first_number = check_number("first number", first_number, 0, _MOST_NUMBERS)
        sides = [read_texts(texts, name) for texts, name in ((sources, "source"), (targets, "target"))]
        if len(sides[0]) != len(sides[1]):
            raise BadInputError(
                f"{len(sides[0]):,} sources and {len(sides[1]):,} targets: give one target for each source"
            )
        references = None if alignments is None else read_texts(alignments, "alignment", first_number)
        limit = self._defaults.changed({"max_source_length": max_source_length}).max_source_length
        pairs = list(zip(*sides, strict=True))
        return measure_heads(self._engine, self._tokenizers, pairs, limit, references, first_number)

    def trace_search(
        self,
        text: str,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        *,
        top: int = 10,
        prefix: str | None = None,
        must_contain: Iterable[str] | None = None,
        must_not_contain: Iterable[str] = (),
        constraints: Iterable[Constraint] = (),
        cancellation: Cancellation | None = None,
        **changes: Unpack[GenerationChanges],
    ) -> SearchTrace:
        """Translate a text and record how: all hypotheses of the search as a tree, and what might have come next.

        With a ``prefix`` it shows the distribution of the next symbol at every place of a text of one's own.

        Args:
            text: The source.
            beam_size: As in ``translate``; so are the others that are not told here.
            length_penalty: Alpha.
            n_best: For how many outputs the search goes on.
            top: How many of the most probable next symbols are kept for each hypothesis.
            prefix: How the output begins.
            must_contain: The phrases that the output must have.
            must_not_contain: The phrases that it may not have.
            constraints: What else it has to fulfil; they know the text by the number 1.
            cancellation: As in ``translate``.
            **changes: Any other setting of ``config.GenerationConfig``, by its name.

        Raises:
            BadInputError: As ``translate``; or the text is no string, or empty.
            TransduceError: Memory is too small.
        """
        check_names(changes, frozenset(GenerationChanges.__annotations__), "trace_search")
        if not isinstance(text, str):
            raise BadInputError(f"trace_search: the text is {name_kind(text)}: give a string")
        if not bare(text).strip():
            raise BadInputError("trace_search: the text is empty: there is nothing to search for")
        recorder = Recorder(check_number("top", top, 1))
        found = self.translate(
            text,
            beam_size,
            length_penalty,
            n_best,
            prefixes=None if prefix is None else [prefix],
            must_contain=None if must_contain is None else [must_contain],
            must_not_contain=must_not_contain,
            constraints=constraints,
            first_number=None,
            cancellation=cancellation,
            recorder=recorder,
            **changes,
        )
        return describe_search(self._tokenizers, text, found.text, recorder)

    def parse(
        self,
        sentences: Iterable[str | Sequence[str]],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        **changes: Unpack[GenerationChanges],
    ) -> "list[nltk.Tree]":
        """The tree of each sentence, by a model that was trained on trees; more is told by ``inference.Parser``.

        Args:
            sentences: Words separated by white space, or lists of words; they stand in the trees to the letter.
            beam_size: As in ``translate``.
            length_penalty: As in ``translate``.
            **changes: Settings of ``config.GenerationConfig``, by their names.

        Raises:
            BadInputError: The model writes no trees, or as ``translate``.
            TransduceError: The extra ``parsing`` is not installed, or memory is too small for a sentence.
        """
        return parse_to_nltk(Parser(self, self._trees), sentences, beam_size, length_penalty, **changes)

    @cached_property
    def _trees(self) -> TreeVocabulary | None:
        """Made once, as it takes a look at every symbol; and not the parser, which would keep this object alive."""
        return TreeVocabulary.of(self._target)

    def keep_searching(self) -> AbstractContextManager[RunningSearch]:
        """While it is open, ``translate`` may be called by many threads, and their texts share the running search.

        As a server has it: a text comes in as there is room, beside those of other calls. Outputs are the same, bit for
        bit, as those of calls one after the other. From then on the tokenizers keep no words from call to call, which
        they would do for each thread.
        """
        self._tokenizers.cache_nothing()
        return self._engine.keep_searching()

    def count_tokens(self, texts: Iterable[str]) -> int:
        """How many symbols the texts have as targets, end symbols counted.

        Raises:
            BadInputError: Something is no text; its number is named.
        """
        several = read_texts(texts)
        for number, text in enumerate(several, start=1):
            check_text(text, f"text {number:,}")
        return sum(len(ids) + 1 for ids in self._target.encode([bare(text) for text in several]))

    def __reduce__(self) -> NoReturn:
        """What pickle and copy ask for.

        Raises:
            TransduceError: Always: addresses and threads of this process mean nothing elsewhere.
        """
        raise TransduceError(
            "a Translator cannot be pickled or copied: load the model in each process (transduce.load), or start the "
            'processes by "fork"; threads may share one'
        )
