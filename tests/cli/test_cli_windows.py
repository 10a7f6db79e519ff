"""Files as Windows writes them give what the same text gives without carriage returns and byte-order marks."""

import json
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.command import complete
from transduce.cli.main import _run
from transduce.config import Corpus
from transduce.data import Store, read_corpus

pytest_plugins = ["tiny_run"]

MARK = b"\xef\xbb\xbf"
SOURCES = ["bamo dulu kari luso", "", "wemo", "kari kari fepi"]
REFERENCES = ["ti sor mup hax", "", "yob", "mup mup nal"]


def as_windows_does(lines):
    return MARK + "".join(f"{line}\r\n" for line in lines).encode()


def as_others_do(lines):
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def both(tmp_path):
    """Writes lines in a folder for each way, and gives the folders."""
    ways = {"windows": as_windows_does, "others": as_others_do}

    def write(**files):
        for way, ended in ways.items():
            (tmp_path / way).mkdir(exist_ok=True)
            for name, lines in files.items():
                (tmp_path / way / name).write_bytes(ended(lines))
        return [tmp_path / way for way in ways]

    return write


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "MODEL", "--input", "source"],
        ["translate", "MODEL", "--input", "source", "--prefixes", "prefixes", "--must-contain", "wanted"],
        ["translate", "MODEL", "--input", "source", "--must-not-contain", "banned"],
        ["translate", "MODEL", "--input", "objects", "--format", "jsonl"],
        ["score", "MODEL", "--source", "source", "--target", "reference"],
        ["evaluate", "MODEL", "--source", "source", "--reference", "reference", "--metric", "exact,bleu,perplexity"],
        ["evaluate", "MODEL", "--source", "source", "--reference", "reference", "--against", "other"],
    ],
)
def test_verbs_give_the_same(both, arguments, trained_run, capfdbinary, monkeypatch):
    shown = []
    for folder in both(
        source=SOURCES,
        reference=REFERENCES,
        prefixes=["ti", "", "yob", ""],
        wanted=["hax", "", "", "mup\tnal"],
        banned=["sor", "nal"],
        objects=[json.dumps({"text": text}) for text in SOURCES],
        other=[*REFERENCES[:2], "hax", "sor"],
    ):
        monkeypatch.chdir(folder)
        status = _run(
            [str(trained_run) if each == "MODEL" else each for each in arguments] + ["--precision", "float32"]
        )
        assert status == 0
        shown.append(capfdbinary.readouterr())
    windows, others = shown
    assert windows.out == others.out
    assert b"warning: " in windows.err
    assert b"line 1: a carriage return, as in files from Windows" in windows.err
    assert b"line 1: a byte-order mark" in windows.err
    assert b"carriage return" not in others.err


def test_a_pipe_gives_the_same(trained_run, tmp_path):
    command = ["translate", str(trained_run), "--precision", "float32"]
    shown = [complete(command, ended(SOURCES), tmp_path) for ended in (as_windows_does, as_others_do)]
    assert [each.returncode for each in shown] == [0, 0]
    assert shown[0].stdout == shown[1].stdout
    assert b"warning: the input line 1: a carriage return, as in files from Windows" in shown[0].stderr


def test_a_preparation_is_the_same(tiny_run_file, both, tmp_path):
    names = ["train.src", "train.trg", "dev.src", "dev.trg"]
    texts = {name: (tiny_run_file.parent / name).read_text().splitlines() for name in names}
    prepared = []
    for folder in both(**texts):
        shutil.copy(tiny_run_file, folder)
        out = folder / "run"
        assert _run(["prepare", str(folder / tiny_run_file.name), "--out", str(out)]) == 0
        pairs = [
            [tuple(side.tolist() for side in store.pair(row)) for row in range(len(store))]
            for store in (Store(out / "store" / "train.arrow"), Store(out / "store" / "dev.arrow"))
        ]
        prepared.append(((out / "tokenizer.json").read_text(), pairs))
    assert prepared[0] == prepared[1]
    assert all(prepared[0][1])


PAIRS = [("a dog", "ein Hund"), ("two", "zwei")]
TABLE = {"source": [f"{source}\r" for source, _ in PAIRS], "target": [f"{target}\r\n" for _, target in PAIRS]}


@pytest.mark.parametrize(
    ("corpus", "content"),
    [
        # What paste(1) makes of two files from Windows.
        (Corpus(pairs="pairs.tsv"), "".join(f"{s}\r\t{t}\r\n" for s, t in PAIRS).encode()),
        (Corpus(pairs="pairs.jsonl"), MARK + b'{"source": "a dog\\r\\n", "target": "ein Hund"}\r\n'
         b'{"source": "two", "target": "zwei\\r"}\r\n'),
        (Corpus(pairs="pairs.log", pattern="(?P<source>.*) \\|\\|\\| (?P<target>.*)"),
         as_windows_does([f"{s} ||| {t}" for s, t in PAIRS])),
    ],
)  # fmt: skip
def test_files_of_pairs(tmp_path, corpus, content, caplog):
    (tmp_path / corpus.pairs).write_bytes(content)
    assert list(read_corpus(corpus, tmp_path)) == PAIRS
    assert f"{tmp_path / corpus.pairs} line 1: " in caplog.text


def test_a_table_of_pairs(tmp_path, caplog):
    parquet.write_table(pa.table(TABLE), tmp_path / "pairs.parquet")
    assert list(read_corpus(Corpus(pairs="pairs.parquet"), tmp_path)) == PAIRS
    assert len(caplog.messages) == 1
    assert f"{tmp_path / 'pairs.parquet'} row 1: a carriage return" in caplog.text


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_python_has_the_same_rule(trained_run, precision):
    import transduce

    translator = transduce.load(trained_run, precision)
    lines = [f"{text}\r\n" for text in SOURCES]
    lines[0] = f"\ufeff{lines[0]}"
    assert [each.text for each in translator.translate(lines)] == [each.text for each in translator.translate(SOURCES)]
    assert translator.score(lines, [f"{text}\n" for text in REFERENCES]) == translator.score(SOURCES, REFERENCES)
    assert translator.count_tokens(lines) == translator.count_tokens(SOURCES)
    wished = [
        translator.translate(SOURCES[:1], prefixes=[f"ti{end}"], must_not_contain=[f"sor{end}"]) for end in ("", "\r\n")
    ]
    assert wished[0] == wished[1]


@pytest.mark.parametrize("pipe", [pytest.param(False, marks=pytest.mark.slow), True])
def test_utf_16_is_named(trained_run, tmp_path, pipe):
    path = tmp_path / "source"
    path.write_bytes("\ufeffbamo\r\n".encode("utf-16-le"))
    if pipe:
        ended = complete(["translate", str(trained_run)], path.read_bytes(), tmp_path)
    else:
        command = [sys.executable, "-m", "transduce", "translate", str(trained_run)]
        with path.open("rb") as stream:
            ended = subprocess.run(command, capture_output=True, check=False, stdin=stream)
    assert ended.returncode == 2
    assert b"begins with the byte-order mark of UTF-16: convert it to UTF-8" in ended.stderr
