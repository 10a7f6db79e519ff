"""The whole path on a made-up task: text, training, translation, scores; no data and no network."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from transduce.config import (
    BadInputError,
    Corpus,
    DataConfig,
    RunConfig,
    TokenizerConfig,
    TrainConfig,
    TransduceError,
    preset,
)
from transduce.evaluation import corpus_score
from transduce.inference import Translator, load
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

Pairs = Sequence[tuple[str, str]]

# No run of one's own has a folder of this name, so a demo is known by it.
DEMO_TEXT: Final = "demo-text"
_TRAIN_PAIRS: Final = 60_000
_TEST_PAIRS: Final = 500
_SEED: Final = 1
_MINUTES: Final = 3.0


@dataclass(frozen=True)
class DemoScore:
    """How a test went: shares in percent."""

    exact: float
    bleu: float
    lookup_exact: float


def demo(
    run: RunDirectory, say: Callable[[str], None], minutes: float = _MINUTES, *, own_process: bool = False
) -> dict[str, DemoScore]:
    """Make the corpus, train for at most ``minutes``, and score lines that the training never saw.

    ``own_process`` is as for ``train_run``.

    Raises:
        TransduceError: Babel is not installed.
        BadInputError: The folder holds something that is no earlier demo.
    """
    try:
        from transduce.data.phrases import make_phrases  # noqa: PLC0415 - Babel is an extra
    except ImportError as error:
        raise TransduceError("the demo writes its text with Babel: pip install 'transduce[demo]'") from error
    corpus = make_phrases(_TRAIN_PAIRS, _TEST_PAIRS, _SEED)
    tests = {"unseen values": corpus.unseen_values, "unseen combinations": corpus.unseen_combinations}
    text = _make_room(run, say)
    parts = {"train": corpus.train, "dev": corpus.dev, "test": corpus.unseen_values + corpus.unseen_combinations}
    for name, pairs in parts.items():
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (text / f"{name}.{language}").write_text(lines, encoding="utf-8")
    say(f"{len(corpus.train):,} English-German pairs, made up, in {text}; for example")
    for source, target in corpus.train[:3]:
        say(f"    {source}  ->  {target}")
    train_run(_configuration(run, minutes), run, resume=False, own_process=own_process)
    translator = load(run.root)
    scores = {name: _score(translator, corpus.train, pairs) for name, pairs in tests.items()}
    _tell(run, translator, tests, scores, say)
    return scores


def _make_room(run: RunDirectory, say: Callable[[str], None]) -> Path:
    """An empty folder for the text. An earlier demo goes, which is said; anything else stays, and is an error."""
    text = run.root / DEMO_TEXT
    if run.root.is_file():
        raise BadInputError(f"{run.root}: is a file, a run directory cannot take its place: give another --out")
    if text.is_dir():
        say(f"{run.root}: an earlier demo, which is deleted")
        shutil.rmtree(run.root)
    elif run.root.exists() and any(run.root.iterdir()):
        raise BadInputError(f"{run.root}: holds something else than an earlier demo: give --out DIR")
    text.mkdir(parents=True)
    return text


def _configuration(run: RunDirectory, minutes: float) -> RunConfig:
    """A small model on a short schedule: what the task needs, and no more."""
    return RunConfig(
        data=DataConfig(
            root=str((run.root / DEMO_TEXT).resolve()),
            train=(Corpus(source="train.en", target="train.de"),),
            dev=Corpus(source="dev.en", target="dev.de"),
        ),
        tokenizer=TokenizerConfig(vocab_size=700),
        model=preset(
            "tiny", {"encoder_layers": 3, "decoder_layers": 2, "dropout": 0.0, "label_smoothing": 0.0, "norm": "pre"}
        ),
        train=TrainConfig(
            batch_tokens=1024,
            max_steps=5000,
            max_minutes=minutes,
            warmup_steps=800,
            learning_rate_factor=1.0,
            log_every=500,
            validate_every=1000,
            checkpoint_every=100,
            average_last=5,  # the newest alone is off here and there, in a digit or an ending
            seed=_SEED,
        ),
    )


def _score(translator: Translator, train: Pairs, test: Pairs) -> DemoScore:
    sources, references = (list(side) for side in zip(*test, strict=True))
    outputs = [translation.text for translation in translator.translate(sources)]
    return DemoScore(
        exact=corpus_score("exact", outputs, references).value,
        bleu=corpus_score("bleu", outputs, references).value,
        lookup_exact=corpus_score("exact", _look_up(train, sources), references).value,
    )


def _look_up(train: Pairs, sources: Sequence[str]) -> list[str]:
    """What needs no learning: the target of the training source that shares the most words."""
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for index, (source, _) in enumerate(train):
        for word in set(source.split()):
            holders[word].append(index)
    answers = []
    for source in sources:
        shared = Counter(index for word in set(source.split()) for index in holders[word])
        answers.append(train[shared.most_common(1)[0][0]][1] if shared else "")
    return answers


def _tell(
    run: RunDirectory,
    translator: Translator,
    tests: dict[str, list[tuple[str, str]]],
    scores: dict[str, DemoScore],
    say: Callable[[str], None],
) -> None:
    text = run.root / DEMO_TEXT
    say("")
    for name, score in scores.items():
        say(
            f"{name:<20} {len(tests[name])} lines   exact match {score.exact:5.1f}%   BLEU {score.bleu:5.1f}   "
            f"(looking up the nearest training line: {score.lookup_exact:.1f}%)"
        )
    say("\nLines it has never seen:")
    for pairs in tests.values():
        for source, translation in zip(pairs[:3], translator.translate([pair[0] for pair in pairs[:3]]), strict=True):
            say(f"    {source[0]}  ->  {translation.text}")
    say(
        f"\nNext:\n"
        f"    echo 'The answer is $12.50.' | transduce translate {run.root}\n"
        f"    transduce serve en-de={run.root}    # and a page to try it: the address is printed\n"
        f"    transduce evaluate {run.root} --source {text}/test.en --reference {text}/test.de\n"
        f"    your own text: see README.md"
    )
