"""Where the text is: corpora of pairs, and what of them is left out."""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from transduce.config.section import FROM_LIST, REFUSED, SAFE, Section, Setting, check_word

MadeUpTask = Literal["copy"]
LinearizationKind = Literal["brackets", "shift_reduce"]
TreeTags = Literal["normalized", "kept"]
AtEnd = Literal["repeat", "stop", "wait"]

# The store numbers them in a byte.
MAX_CORPORA: Final = 256
_FORMS: dict[tuple[str, ...], str] = {
    ("source", "target"): "a source and a target file",
    ("pairs",): "one file of pairs",
    ("trees",): "a treebank",
    ("made_up",): "a made-up task",
}
_OF_STREAMS: Final = ("streaming", (True,))
# How trees become targets: the same in all of a run.
_TREE_SETTINGS: Final = ("linearization", "tags", "words", "functions")


class Corpus(Section):
    """Pairs of text: two files, line i of ``source`` belonging to line i of ``target``, or one file of ``pairs``."""

    source: str | None = Field(
        default=None, description="source text: a file, plain, .gz or .zst, with a sentence a line"
    )
    target: str | None = Field(default=None, description="target text: a file with as many lines")
    pairs: str | None = Field(
        default=None,
        description="one file of pairs in place of source and target: .tsv of two columns, .jsonl (also compressed), "
        ".parquet, or as pattern says",
    )
    source_field: str = Field(
        default="source", description="field (column) of .jsonl and .parquet that holds the source"
    )
    target_field: str = Field(
        default="target", description="field (column) of .jsonl and .parquet that holds the target"
    )
    pattern: str | None = Field(
        default=None,
        description="regular expression that each line of pairs matches, with groups (?P<source>) and (?P<target>)",
    )
    trees: Annotated[str | tuple[str, ...] | None, FROM_LIST] = Field(
        default=None,
        description="a treebank in Penn brackets in place of source and target, whose sentences are the sources and "
        "trees the targets: a file (plain, .gz or .zst), a folder of files, or a list of such",
        examples=["train.trees.gz", ["wsj/02", "wsj/03"]],
    )
    linearization: LinearizationKind = Field(
        default="brackets",
        description="how trees become symbols: brackets, which close with their label (Vinyals et al. 2015), or the "
        "actions of a top-down shift_reduce parser",
    )
    tags: TreeTags = Field(
        default="normalized", description="part-of-speech tags of words in trees: one symbol for all of them, or kept"
    )
    words: bool = Field(
        default=False,
        description="write each word itself behind its tag: a small treebank teaches no model to count them",
    )
    functions: bool = Field(default=False, description="keep what phrases do in the sentence in their labels (NP-SBJ)")
    bad_trees: Literal["refuse", "drop"] = Field(
        default="refuse", description="refuse the treebank, or leave the tree out, where one cannot be read"
    )
    made_up: MadeUpTask | None = Field(default=None, description="generated task in place of files")
    count: int = Field(default=10_000, ge=1, description="pairs of the generated task")
    seed: int = Field(default=1, ge=0, description="random seed of the generated task")
    lines: Annotated[tuple[int, int] | None, FROM_LIST] = Field(
        default=None,
        description="first and last line (or row) of the files that is read, counted from 1; left out: all",
        examples=[[1, 5000]],
    )
    weight: float = Field(default=1.0, gt=0, description="times that an epoch goes through these pairs")
    tag: str | None = Field(
        default=None,
        min_length=1,
        description="token put before each source, such as <bt>; the tokenizer learns it by itself",
    )

    @field_validator("source", "target", "pairs", mode="before")
    @classmethod
    def _check_one(cls, value: object) -> object:
        if isinstance(value, list):
            raise ValueError(  # noqa: TRY004 - what pydantic takes for an answer
                "must be one file: where there are several, join them, or train on several corpora, one [[data.train]] "
                "for each"
            )
        return value

    @field_validator("lines")
    @classmethod
    def _check_lines(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and not 1 <= value[0] <= value[1]:
            raise ValueError("give the first and the last line, counted from 1")
        return value

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            groups = re.compile(value).groupindex
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        missing = [name for name in ("source", "target") if name not in groups]
        if missing:
            raise ValueError(f"has no group (?P<{missing[0]}>...)")
        return value

    @field_validator("tag")
    @classmethod
    def _check_tag(cls, value: str | None) -> str | None:
        return None if value is None else check_word(value)

    @model_validator(mode="after")
    def _check_form(self) -> "Corpus":
        names = ("source", "target", "pairs", "trees", "made_up")
        given = tuple(name for name in names if getattr(self, name) is not None)
        if given not in _FORMS:
            raise ValueError(
                f"a corpus is {', or '.join(_FORMS.values())}; given is {' and '.join(given) or 'nothing'}"
            )
        changed = [
            name
            for name in (*_TREE_SETTINGS, "bad_trees")
            if getattr(self, name) != type(self).model_fields[name].default
        ]
        if self.trees is None and changed:
            raise ValueError(f"{changed[0]} is for treebanks: name one with trees, or leave it out")
        if self.pattern is not None and self.pairs is None:
            raise ValueError("pattern is for one file of pairs: name it with pairs")
        for name, of, reads in (
            ("count", "made_up", "a generated task: name one with made_up"),
            ("seed", "made_up", "a generated task: name one with made_up"),
            ("source_field", "pairs", "files of records: name one with pairs"),
            ("target_field", "pairs", "files of records: name one with pairs"),
        ):
            if getattr(self, of) is None and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for {reads}, or leave it out")
        return self

    @property
    def source_prefix(self) -> str:
        """What stands before each source."""
        return "" if self.tag is None else f"{self.tag} "

    @property
    def fields(self) -> tuple[str, str]:
        """Source and target field of a file of records."""
        return self.source_field, self.target_field


class DataConfig(Section):
    """Where the text is. Paths are relative to ``root``, and ``root`` to the run file."""

    root: Annotated[str, SAFE] = Field(default=".", description="folder of the corpora; relative to the run file")
    train: Annotated[tuple[Corpus, ...], REFUSED] = Field(
        description="training corpus, or several ([[data.train]]) with weights and tags",
        examples=[{"source": "train.en", "target": "train.de"}],
    )
    dev: Annotated[Corpus, REFUSED] = Field(
        description="development corpus: measured in training, never trained on",
        examples=[{"source": "dev.en", "target": "dev.de"}],
    )
    test: Annotated[Corpus | None, SAFE] = Field(
        default=None,
        description="test corpus of transduce evaluate RUN",
        examples=[{"source": "test.en", "target": "test.de"}],
    )
    max_length: Annotated[int, REFUSED] = Field(
        default=256,
        ge=2,
        description="longest side of a training pair in tokens, end symbol included; longer pairs are left out",
    )
    max_length_ratio: Annotated[float | None, REFUSED] = Field(
        default=None,
        gt=1,
        description="largest ratio of a training pair's lengths in tokens, end symbols included; left out: any",
    )
    streaming: Annotated[bool, REFUSED] = Field(
        default=False,
        description="read the training corpora while training, and store no token ids; files may then be folders, "
        "patterns (DIR/*.en.gz) and addresses (s3://BUCKET/DIR) as well",
    )
    shuffle_window: Annotated[int, Setting("refused", read_with=_OF_STREAMS)] = Field(
        default=200_000,
        ge=1,
        description="sentence pairs that streaming reads at a time: batches are made of these, in random order",
    )
    at_end: Annotated[AtEnd, Setting("allowed", read_with=_OF_STREAMS)] = Field(
        default="repeat",
        description="what streaming does where the training corpora end: repeat: begin again; stop: end the training; "
        "wait: for more files, until one named _SUCCESS stands in the folder, and stop then",
    )
    duplicates: Annotated[Literal["keep", "drop"], REFUSED] = Field(
        default="keep", description="keep or drop training pairs that occurred before"
    )
    dev_overlap: Annotated[Literal["keep", "drop"], REFUSED] = Field(
        default="keep", description="keep or drop training pairs with a source or target of dev"
    )
    invalid_utf8: Annotated[Literal["refuse", "drop"], REFUSED] = Field(
        default="refuse", description="refuse the corpus, or drop the pair, where a training line is not UTF-8"
    )

    @field_validator("train", mode="before")
    @classmethod
    def _accept_one(cls, value: Any) -> Any:  # noqa: ANN401 - as pydantic calls it
        if isinstance(value, list):
            return tuple(value)
        return (value,) if isinstance(value, dict | Corpus) else value

    @field_validator("train")
    @classmethod
    def _check_some(cls, value: tuple[Corpus, ...]) -> tuple[Corpus, ...]:
        if not value:
            raise ValueError("there is no corpus to train on")
        if len(value) > MAX_CORPORA:
            raise ValueError(f"at most {MAX_CORPORA} corpora can be told apart: join some")
        return value

    @model_validator(mode="after")
    def _check_that_trees_agree(self) -> "DataConfig":
        corpora = [*self.train, self.dev, *([self.test] if self.test else [])]
        treebanks = [corpus for corpus in corpora if corpus.trees is not None]
        for name in _TREE_SETTINGS:
            if len({getattr(corpus, name) for corpus in treebanks}) > 1:
                raise ValueError(f"{name} differs between treebanks: give all of train, dev and test the same")
        return self

    @model_validator(mode="after")
    def _check_that_weights_are_of_training(self) -> "DataConfig":
        for name, corpus in (("dev", self.dev), ("test", self.test)):
            if corpus is not None and corpus.weight != 1:
                raise ValueError(
                    f"{name}.weight = {corpus.weight:g} is for training corpora: leave it out ({name} is gone through "
                    f"once, whole)"
                )
        return self

    @model_validator(mode="after")
    def _check_that_it_can_be_streamed(self) -> "DataConfig":
        if not self.streaming:
            return self
        if self.duplicates == "drop":
            raise ValueError(
                'duplicates = "drop" remembers every pair there was, which a stream has no room for: drop them where '
                "the corpus is made, or leave streaming out"
            )
        for number, corpus in enumerate(self.train):
            name = f"train.{number}." if len(self.train) > 1 else "train."
            if corpus.weight != 1:
                raise ValueError(
                    f"{name}weight = {corpus.weight:g} is of an epoch, which a stream does not know the size of: leave "
                    f"it out (corpora are read in turns, a pair of each), name files several times, or leave streaming "
                    f"out"
                )
            if corpus.trees is not None:
                raise ValueError(
                    f"{name}trees: all symbols of a treebank are learned before training: leave streaming out"
                )
        return self

    @property
    def folder(self) -> Path:
        """The root as a path."""
        return Path(self.root)

    @property
    def tags(self) -> tuple[str, ...]:
        """What the corpora are told apart by, each once."""
        corpora = [*self.train, self.dev, *([self.test] if self.test else [])]
        return tuple(dict.fromkeys(corpus.tag for corpus in corpora if corpus.tag is not None))
