"""What is wrong with the text of a run, before it is prepared."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from transduce.config import BadInputError, Corpus, DataConfig, RunConfig
from transduce.config.tokenizer import TokenizerKind
from transduce.data import (
    DuplicateFinder,
    HeldOut,
    PairFilter,
    Tally,
    name_corpus,
    read_beginning,
    read_numbered,
    text_flaw,
)
from transduce.text.tokenizer import SPECIAL_SYMBOLS
from transduce.workflows.findings import Finding, find_same_text, find_swapped, judge_epochs
from transduce.workflows.prepare import Prepared, check_files
from transduce.workflows.vocabulary import find_idle, find_small, find_unknown, judge_unknown

_LINES: Final = 100_000  # of each corpus are read
_MANY: Final = 0.1  # of which, so many left out make one wonder
_ODD: Final = 0.01  # and so many of odd lengths
_RATIO: Final = 4  # one side so many times as long as the other, in characters, is hardly a translation
_SHORT: Final = 40  # characters, up to which that says little
_SMALLEST: Final = 300  # symbols: bytes and little more
_FEW: Final = 20  # occurrences of a symbol on average that it is hardly learned from
_RARE: Final = 0.001  # share of dev's characters that may be new
_SHOWN: Final = 10
_NOTICED: Final[dict[str, str]] = {
    "duplicate": 'occurred before, and stay (data.duplicates = "drop"',
    "in dev": 'have a sentence of dev, and stay (data.dev_overlap = "drop"',
}


@dataclass
class _Sample:
    """What was counted in the beginnings of the training corpora."""

    complete: bool = True
    pairs: int = 0
    words: int = 0
    tokens: list[float] = field(default_factory=lambda: [0.0, 0.0])  # of each side in an epoch, roughly
    characters: Counter[str] = field(default_factory=Counter)
    vocabularies: tuple[Counter[str], ...] = ()  # words and how often they occur, of each vocabulary of words


def examine_corpora(config: RunConfig, prepared: Prepared | None) -> Iterator[Finding]:
    """The beginning of each corpus as the preparation reads it, then how dev and the vocabulary fit to it."""
    try:
        check_files(config)
    except BadInputError as error:
        yield from (Finding("problem", message) for message in error.args)
        return
    if prepared is None:
        yield from (Finding("warning", text) for text in find_idle(config.tokenizer))
    yield from (Finding("warning", text) for text in find_same_text(config))
    sample, broken = _Sample(), False
    if prepared is None and any(side.kind == "words" for side in config.tokenizer.sides):
        sample.vocabularies = tuple(Counter() for _ in config.tokenizer.sides)
    for finding in chain(_examine_training(config, sample), _examine_held_out(config)):
        broken = broken or finding.kind == "problem"
        yield finding
    if not broken:
        yield from (Finding("warning", text) for text in find_swapped(config))
        yield from _examine_characters(config, sample)
        yield from _examine_vocabulary(config, sample, prepared)
        if (unknown := _examine_unknown(config, sample, prepared)) is not None:
            yield unknown
        if prepared is None and sample.complete and sample.pairs:  # what is prepared is counted, not estimated
            train = config.train
            steps = max(1.0, max(sample.tokens) / train.batch_tokens) / train.accumulate
            yield judge_epochs(train, steps, f"{sample.pairs:,} pairs, by estimate")


def _examine_training(config: RunConfig, sample: _Sample) -> Iterator[Finding]:
    data = config.data
    try:
        dev, test = (_without_tags(corpus, data) if corpus else [] for corpus in (data.dev, data.test))
    except BadInputError:  # named where dev and test themselves are examined
        dev, test = [], []
    held_out = HeldOut(test, of_trees=data.test is not None and data.test.trees is not None)
    with closing(DuplicateFinder()) as seen:
        accepted = PairFilter(data, dev, None if data.streaming else seen)
        for corpus in data.train:
            yield from _examine_one(config, corpus, accepted, held_out, sample)


def _without_tags(corpus: Corpus, data: DataConfig) -> list[tuple[str, str]]:
    """The pairs as they stand in the files: a tag is in no text."""
    return [(source, target) for _, source, target in read_numbered(corpus, data.folder)]


def _examine_one(
    config: RunConfig, corpus: Corpus, accepted: PairFilter, test: HeldOut, sample: _Sample
) -> Iterator[Finding]:
    tally, read, odd, long, in_test, same = Tally(name_corpus(corpus, config.data.folder)), 0, 0, 0, 0, 0
    try:
        for number, *pair in islice(_numbered(config.data, corpus), _LINES):
            read += 1
            source, target = pair
            if not accepted.accepts_text(number, (source, target), tally):
                continue
            odd += corpus.trees is None and _is_odd(source, target)  # symbols of trees are many for a word
            words = len(source.split()), len(target.split())
            long += max(words) >= config.data.max_length
            in_test += test.overlaps((source, target))
            sample.pairs += 1
            sample.words += sum(words)
            kinds = [side.kind for side in config.tokenizer.sides]
            for i, text in enumerate((source, target)):
                sample.tokens[i] += corpus.weight * _count_tokens(text, kinds[i % len(kinds)])
            same += source == target
            sample.characters.update(source)
            sample.characters.update(target)
            for i, text in enumerate((source, target) if sample.vocabularies else ()):
                sample.vocabularies[i % len(kinds)].update(text.split())
    except BadInputError as error:
        yield Finding("problem", str(error))
        return
    sample.complete &= read < _LINES and not config.data.streaming
    if not read and config.data.at_end == "wait":
        yield Finding("warning", f"{tally.name}: no pair in it yet: a training waits for its first file")
        return
    if not read:
        yield Finding("problem", f"{tally.name}: no pair in it")
        return
    if (reasons := _why_nothing_is_left(config, tally, read, long)) is not None:
        yield Finding("problem", f"{tally.name}: none of its {read:,} pairs is left to learn from: {reasons}")
        return
    yield _describe(tally, read)
    if in_test:
        yield Finding("warning", f"{tally.name}: {in_test:,} pairs have a sentence of data.test, which flatters")
    if same > _MANY * read and corpus.made_up is None:
        yield Finding(
            "warning",
            f"{tally.name}: in {same:,} pairs source and target are the same: what is not translated teaches a "
            f"model to copy",
        )
    if odd > _ODD * read:
        yield Finding(
            "warning",
            f"{tally.name}: in {odd:,} pairs one side is over {_RATIO} times as long as the other: the files may be "
            f"out of step; data.max_length_ratio leaves such pairs out",
        )
    if long:
        yield Finding(
            "ok" if long <= _ODD * read else "warning",
            f"{tally.name}: {long:,} pairs have a side beyond data.max_length = {config.data.max_length:,}, and are "
            f"left out",
        )


def _why_nothing_is_left(config: RunConfig, tally: Tally, read: int, long: int) -> str | None:
    """Why a training is sure to refuse this corpus, if it is."""
    data = config.data
    more_may_come = read == _LINES or (data.streaming and (len(data.train) > 1 or data.at_end == "wait"))
    if any(side.path is not None for side in config.tokenizer.sides):
        long = 0  # a tokenizer of elsewhere may have one token for several words
    if more_may_come or tally.dropped.total() + long < read:
        return None
    beyond = [f"a side beyond data.max_length = {data.max_length:,} {long:,}"] if long else []
    return ", ".join([_count_dropped(tally), *beyond] if tally.dropped else beyond)


def _count_dropped(tally: Tally) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in tally.dropped.items())


def _numbered(data: DataConfig, corpus: Corpus) -> Iterator[tuple[int, str, str]]:
    if data.streaming:
        alone = data.model_copy(update={"train": (corpus,)})
        return ((record.number, *record.pair) for record in read_beginning(alone, waits=False))
    return read_numbered(corpus, data.folder, keep_invalid=data.invalid_utf8 == "drop")


def _describe(tally: Tally, read: int) -> Finding:
    which = f"the first {read:,} pairs" if read == _LINES else f"{read:,} pairs"
    dropped = tally.dropped.total()
    why = f"; {dropped:,} of them are left out: {_count_dropped(tally)}" if dropped else ""
    also = "".join(f"; {count:,} {_NOTICED[reason]} leaves them out)" for reason, count in tally.noticed.items())
    alarming = (
        dropped > _MANY * read or tally.noticed["duplicate"] > _MANY * read or tally.noticed["in dev"] > _ODD * read
    )
    return Finding("warning" if alarming else "ok", f"{tally.name}: {which} can be read{why}{also}")


def _count_tokens(text: str, kind: TokenizerKind) -> float:
    """Roughly, the end symbol counted: by experience a piece of a word has about four characters."""
    match kind:
        case "characters":
            return len(text) + 1
        case "words":
            return len(text.split()) + 1
        case _:
            return max(len(text) / 4, len(text.split())) + 1


def _is_odd(source: str, target: str) -> bool:
    shorter, longer = sorted((len(source), len(target)))
    return longer > _SHORT and longer > _RATIO * shorter


def _examine_held_out(config: RunConfig) -> Iterator[Finding]:
    """Dev and test are read whole, and nothing of them is left out but what is no pair."""
    for corpus in (config.data.dev, config.data.test):
        if corpus is None:
            continue
        tally = Tally(name_corpus(corpus, config.data.folder))
        try:
            for number, source, target in read_numbered(corpus, config.data.folder):
                tally.kept += 1
                if (flaw := text_flaw((source, target))) is not None:
                    tally.notice(flaw, number, (source, target), dropped=True)
        except BadInputError as error:
            yield Finding("problem", str(error))
            continue
        if not tally.kept:
            yield Finding("problem", f"{tally.name}: no pair in it")
        elif corpus is config.data.dev and tally.dropped.total() == tally.kept:
            dropped = _count_dropped(tally)
            yield Finding("problem", f"{tally.name}: none of its {tally.kept:,} pairs is left to measure: {dropped}")
        else:
            yield _describe(tally, tally.kept)


def _examine_characters(config: RunConfig, sample: _Sample) -> Iterator[Finding]:
    """Characters of dev that training does not have: a model cannot know what they mean."""
    text = Counter(chain.from_iterable(chain.from_iterable(_without_tags(config.data.dev, config.data))))
    new = Counter({character: count for character, count in text.items() if character not in sample.characters})
    if not new:
        yield Finding("ok", "every character of dev occurs in training")
        return
    shown = " ".join(map(_visible, (character for character, _ in new.most_common(_SHOWN))))
    where = "training" if sample.complete else f"the {sample.pairs:,} pairs of training that were read"
    yield Finding(
        "warning" if new.total() > _RARE * text.total() else "ok",
        f"dev has {len(new):,} character{'s' if len(new) > 1 else ''} ({new.total() / text.total():.2%} of its text) "
        f"not in {where}: {shown}",
    )


def _examine_unknown(config: RunConfig, sample: _Sample, prepared: Prepared | None) -> Finding | None:
    """Words of dev that the vocabulary has not: of a learned one of words, by what it will be learned from."""
    if prepared is not None:
        return find_unknown(prepared.tokenizers, prepared.dev)
    if not sample.vocabularies:
        return None
    sides, shares = config.tokenizer.sides, []
    known = [
        {word for word, _ in words.most_common(side.vocab_size - len(SPECIAL_SYMBOLS) - len(config.tokenizer.symbols))}
        for side, words in zip(sides, sample.vocabularies, strict=True)
    ]
    for i, lines in enumerate(zip(*_without_tags(config.data.dev, config.data), strict=True)):
        words = [word for line in lines for word in line.split()]
        unknown = sum(word not in known[i % len(sides)] for word in words)
        shares.append(unknown / max(1, len(words)) if sides[i % len(sides)].kind == "words" else 0.0)
    return judge_unknown(shares)


def _visible(character: str) -> str:
    """A character, or its number where nobody would see it."""
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"


def _examine_vocabulary(config: RunConfig, sample: _Sample, prepared: Prepared | None) -> Iterator[Finding]:
    """Whether there is text enough for as many symbols."""
    if prepared is not None:
        sizes = " and ".join(f"{size:,}" for size in reversed(prepared.tokenizers.sizes().values()))
        yield Finding("ok", f"the prepared vocabulary has {sizes} symbols")
        small = [Finding("warning", text) for text in find_small(config, prepared.tokenizers)]
        yield from small
        if not small:
            return
    wanted = sum(side.vocab_size for side in config.tokenizer.sides if side.path is None)
    if not wanted or not sample.complete:
        return
    text = f"tokenizer.vocab_size = {wanted:,} for {sample.words:,} words of training"
    if sample.words < _FEW * wanted:
        few = max(_SMALLEST, sample.words // _FEW)
        cure = f"take {few:,} or fewer" if few < wanted else "that is little text to learn a language from"
        yield Finding("warning", f"{text}: many symbols will hardly be seen: {cure}")
    else:
        yield Finding("ok", f"{text}: {sample.words / wanted:,.0f} for each symbol")
