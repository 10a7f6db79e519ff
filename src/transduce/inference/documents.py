"""Documents: their texts translated all together, and written back between their tags."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, final

from transduce.config import TransduceError
from transduce.inference.arguments import shorten
from transduce.inference.translation import Translation, count_ranks, of_rank
from transduce.text import AlignedText, Document

_MOST_NAMED: Final = 10


@final
@dataclass(frozen=True)
class DocumentTranslation:
    """A document in another language; ``alternatives`` are made of the next best outputs of its sentences.

    ``failures`` tell which sentences have no output, and why: these stay as they were.
    """

    text: str
    alternatives: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    def check(self) -> None:
        """See that all of it is translated.

        Raises:
            TransduceError: Sentences have no output; they are named.
        """
        if self.failures:
            more = f"; and {len(self.failures) - _MOST_NAMED:,} more" if len(self.failures) > _MOST_NAMED else ""
            raise TransduceError(
                f"{len(self.failures):,} sentences have no output (they stay as they were): "
                f"{'; '.join(self.failures[:_MOST_NAMED])}{more}"
            )


def translate_documents(
    documents: Sequence[Document], translate: Callable[[list[str]], Sequence[Translation | TransduceError]]
) -> list[DocumentTranslation]:
    """Translate documents (``text.read_document``) with one call, which should ask for alignments where there are any.

    Without them tags are placed by the places of words.

    Raises:
        TransduceError: ``translate`` does.
    """
    texts = [segment.text for document in documents for segment in document.segments]
    outcomes = iter(translate(texts) if texts else [])
    return [_write(document, list(islice(outcomes, len(document.segments)))) for document in documents]


def _write(document: Document, outcomes: Sequence[Translation | TransduceError]) -> DocumentTranslation:
    pairs = list(zip(document.segments, outcomes, strict=True))
    failures = (
        f"{shorten(segment.text)}: {reason}" for segment, outcome in pairs if (reason := _find_failure(outcome))
    )
    best = [None if isinstance(each, TransduceError) or each.error is not None else each for each in outcomes]
    text, *alternatives = (
        document.write([None if each is None else _align(of_rank(each, rank)) for each in best])
        for rank in range(count_ranks(each for each in best if each is not None))
    )
    return DocumentTranslation(text, tuple(alternatives), tuple(failures))


def _find_failure(outcome: Translation | TransduceError) -> str | None:
    return str(outcome) if isinstance(outcome, TransduceError) else outcome.error


def _align(output: Translation) -> AlignedText:
    return AlignedText(output.text, output.alignment)
