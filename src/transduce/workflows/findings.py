"""What is found before a training: how often it would go through its text, one text in two places, swapped sides."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal, final

from transduce.config import BadInputError, Corpus, DataConfig, RunConfig, TrainConfig
from transduce.data import corpus_paths, read_beginning, read_numbered


@final
@dataclass(frozen=True)
class Finding:
    """``ok``, ``warning`` (it will run, but perhaps not as meant) or ``problem`` (it will not run)."""

    kind: Literal["ok", "warning", "problem"]
    text: str


# The paper's base goes through its text some twenty times; published trainings on small corpora, and the recipes here,
# at most about a hundred times. Three times that is still a choice. Far beyond, defaults (train.max_steps is the
# paper's, for 4.5 million pairs) have met a small corpus.
_MANY: Final = 300
_ENOUGH: Final = 100
_LOOKED_AT: Final = 2_000  # pairs of each corpus, to see which side is which
_LEAST_WORDS: Final = 20
_MORE: Final = 0.2  # of a side's words that the other side of training knows, beyond chance and words of both languages


def find_schedule(train: TrainConfig) -> Iterator[str]:
    """Steps of warm-up and cooldown that leave the learning rate no time at its height."""
    rate, warmup, cooldown, steps = train.learning_rate, train.warmup_steps, train.cooldown_steps, train.max_steps
    height = "the schedule's peak" if rate is None else f"train.learning_rate = {rate:g}"
    of_all = f"of train.max_steps = {steps:,}"
    if warmup > steps or warmup == steps > 1:
        reached = "never reached" if warmup > steps else "reached in the last step alone"
        yield (
            f"train.warmup_steps = {warmup:,} {of_all}: {height} is {reached}: fewer warmup_steps (a tenth of the "
            f"steps is usual)"
        )
    if cooldown > steps:
        yield (
            f"train.cooldown_steps = {cooldown:,} {of_all}: the rate falls from the first step on, and never comes to "
            f"what it is meant to be: fewer cooldown_steps (half of the steps is usual)"
        )
    elif warmup < steps < warmup + cooldown - 1:
        yield (
            f"train.warmup_steps = {warmup:,} and train.cooldown_steps = {cooldown:,} {of_all}: the rate begins to "
            f"fall before {height} is reached: fewer of one of them"
        )


def judge_epochs(train: TrainConfig, steps: float, pairs: str) -> Finding:
    """Whether ``max_steps`` is sensible where an epoch of these pairs takes so many steps."""
    epochs = train.max_steps / steps
    if epochs < _MANY:
        return Finding("ok", f"{pairs}: {epochs:.1f} epochs of them")
    text = f"{pairs}: {epochs:,.0f} epochs of them in train.max_steps = {train.max_steps:,}"
    if train.early_stop is not None or train.max_minutes is not None:
        limit = "train.early_stop" if train.early_stop is not None else "train.max_minutes"
        return Finding("ok", f"{text}, if {limit} does not end it before")
    enough = _round(_ENOUGH * steps)
    return Finding(
        "warning",
        f"{text}: long before, a model knows them by heart and gets no better; train.max_steps = {enough:,} are "
        f"{_ENOUGH} epochs, which is plenty (with train.warmup_steps = {max(1, enough // 10):,}), and train.early_stop "
        f"= 5 ends a training that no longer gets better on dev",
    )


def _round(number: float) -> int:
    """To two digits that say something."""
    whole = max(1, round(number))
    return round(whole, min(0, 2 - len(str(whole))))


def find_same_text(config: RunConfig) -> Iterator[str]:
    """Corpora of which both sides are the same, and what dev and test share with training. Their files are there."""
    data = config.data
    several = len(data.train) > 1
    train = {f"data.train.{i}" if several else "data.train": corpus for i, corpus in enumerate(data.train)}
    held_out = {name: corpus for name, corpus in (("data.dev", data.dev), ("data.test", data.test)) if corpus}
    for name, corpus in (train | held_out).items():
        if (what := _one_for_both(corpus, data.folder)) is not None:
            yield (
                f"{name}: {what} is both source and target, so that the task is to copy: where that is not meant, name "
                f"the other side's"
            )
    for name, corpus in held_out.items():
        if name == "data.dev" and data.dev_overlap == "drop":
            continue  # which is the way to keep them apart
        for other, trained_on in train.items():
            if (what := _shared(corpus, trained_on, data.folder)) is not None:
                yield f"{name}: {what} is trained on too ({other}): its scores will say nothing of new text"


def _one_for_both(corpus: Corpus, root: Path) -> str | None:
    paths = [path.resolve() for path in corpus_paths(corpus, root)]
    if len(paths) == 2 and paths[0] == paths[1] and not _is_empty(paths[0]):  # an empty file is another mistake
        return str(paths[0])
    # Columns and groups of a pattern are no fields.
    fields = corpus.pairs is not None and corpus.pattern is None and ".tsv" not in Path(corpus.pairs).suffixes
    if fields and corpus.source_field == corpus.target_field:
        return f"the field {corpus.source_field!r} of {paths[0]}"
    return None


def _is_empty(path: Path) -> bool:
    return path.is_file() and not path.stat().st_size


def _shared(corpus: Corpus, other: Corpus, root: Path) -> str | None:
    first, last = corpus.lines or (1, None)
    other_first, other_last = other.lines or (1, None)
    if (last is not None and last < other_first) or (other_last is not None and other_last < first):
        return None
    if corpus.made_up is not None:
        same = (corpus.made_up, corpus.seed) == (other.made_up, other.seed)
        return f"what seed = {corpus.seed} makes up" if same else None
    paths, others = ([path.resolve() for path in corpus_paths(each, root)] for each in (corpus, other))
    return next((str(path) for path in paths if path in others), None)


def find_swapped(config: RunConfig) -> Iterator[str]:
    """Dev or test whose sides are those of training the other way round, by their words. Their files are there."""
    data = config.data
    try:
        known = _words_of_sides(chain.from_iterable(_beginning(data, each) for each in data.train if _has_sides(each)))
        for name, corpus in (("data.dev", data.dev), ("data.test", data.test)):
            words = [] if corpus is None or not _has_sides(corpus) else _words_of_sides(_read_pairs(corpus, data))
            if not words or min(map(Counter.total, words)) < _LEAST_WORDS:
                continue
            own, other = ([_share(words[i], known[i ^ swap]) for i in (0, 1)] for swap in (0, 1))
            if all(b - a > _MORE for a, b in zip(own, other, strict=True)):
                yield (
                    f"{name}: source and target seem to be swapped: {other[0]:.0%} of the words of its source occur in "
                    f"the targets of data.train, {own[0]:.0%} in the sources: a model would be measured in the other "
                    f"direction than it learns: swap the two sides of one of them"
                )
    except BadInputError:  # which whoever reads all of it says
        return


def _has_sides(corpus: Corpus) -> bool:
    """Whether somebody could have taken one side for the other: trees and what is made up have theirs."""
    return corpus.trees is None and corpus.made_up is None


def _beginning(data: DataConfig, corpus: Corpus) -> Iterator[tuple[str, str]]:
    if not data.streaming:
        return _read_pairs(corpus, data)
    alone = data.model_copy(update={"train": (corpus,)})
    return islice((record.pair for record in read_beginning(alone, waits=False)), _LOOKED_AT)


def _read_pairs(corpus: Corpus, data: DataConfig) -> Iterator[tuple[str, str]]:
    numbered = read_numbered(corpus, data.folder, keep_invalid=data.invalid_utf8 == "drop")
    return ((source, target) for _, source, target in islice(numbered, _LOOKED_AT))


def _words_of_sides(pairs: Iterable[tuple[str, str]]) -> tuple[Counter[str], Counter[str]]:
    """How often words occur in sources and in targets; characters, of lines without spaces."""
    words = Counter[str](), Counter[str]()
    for pair in pairs:
        for counter, line in zip(words, pair, strict=True):
            counter.update(line.split() if " " in line.strip() else line)
    return words


def _share(words: Counter[str], known: Counter[str]) -> float:
    return sum(count for word, count in words.items() if word in known) / words.total()
