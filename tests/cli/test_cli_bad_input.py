"""Every kind of bad input that a run can have, through ``transduce prepare``: a 2, and one line that names it."""

import gzip

import pytest

from transduce.cli import main

# What a test appends begins in line 6.
RUN = """[data]
train = { source = "train.src", target = "train.trg" }
dev = { source = "dev.src", target = "dev.trg" }
[tokenizer]
vocab_size = 300
"""
LINES = [f"bamo {number % 7} dulu {number % 11}\n" for number in range(60)]


@pytest.fixture
def folder(tmp_path):
    for name, count in {"train.src": 60, "train.trg": 60, "dev.src": 7, "dev.trg": 7, "short": 57, "empty": 0}.items():
        (tmp_path / name).write_text("".join(LINES[:count]))
    (tmp_path / "blank").write_text("\n" * 60)
    (tmp_path / "bytes").write_bytes(b"bamo\n" * 30 + b"\xff\n" + b"bamo\n" * 29)
    (tmp_path / "cut.gz").write_bytes(gzip.compress("".join(LINES).encode())[:-9])
    (tmp_path / "folder").mkdir()
    return tmp_path


def outcome(folder, capsys, text, *settings):
    path = folder / "run.toml"
    path.write_text(text)
    given = [argument for setting in settings for argument in ("--set", setting)]
    status = main._run(["prepare", str(path), "--out", str(folder / "out"), *given])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_what_the_cases_change_is_a_good_run(folder, capsys):
    status, _, errors = outcome(folder, capsys, RUN)
    assert (status, errors) == (0, "")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["data.train.target=short"], "{folder}/train.src has 60 lines but {folder}/short has 57: "),
        (["data.dev.target=short"], "{folder}/dev.src has 7 lines but {folder}/short has 57: "),
        (["data.train.source=empty", "data.train.target=empty"], "train {folder}/empty: no pair in it"),
        (["data.dev.source=empty", "data.dev.target=empty"], "dev {folder}/empty: no pair in it"),
        (["data.train.source=blank"], "no pair is left of train {folder}/blank: 0 of 60"),
        (["data.train.source=missing"], "{folder}/missing: no such file"),
        (["data.dev.target=missing"], "{folder}/missing: no such file"),
        (["data.train.source=folder"], "{folder}/folder: is a directory"),
        (["data.dev.target=folder"], "{folder}/folder: is a directory"),
        (["data.train.source=cut.gz"], "{folder}/cut.gz: damaged gzip file after line "),
        (["data.dev.source=cut.gz"], "{folder}/cut.gz: damaged gzip file after line "),
        (["data.train.source=bytes"], "{folder}/bytes line 31: invalid UTF-8 (byte 0xff at column 1)"),
        (["data.train.lines=[50, 70]"], "{folder}/train.src: ends before line 70"),
        (["tokenizer.kind=existing", "tokenizer.path=missing"], "{folder}/missing: no such file"),
        (["data.train.weigth=2"], "--set data.train.weigth: unknown key: did you mean data.train.weight?"),
        (["data.train.weight=0"], "--set data.train.weight = 0: "),
    ],
)
def test_is_named(folder, capsys, settings, named):
    status, shown, errors = outcome(folder, capsys, RUN, *settings)
    assert (status, shown) == (2, "")
    assert errors.startswith("error: ")
    assert named.format(folder=folder) in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (RUN + "kid = 'bpe'\n", "line 6: tokenizer.kid: unknown key: did you mean tokenizer.kind?"),
        (RUN + "[train]\nmax_steps = 0\n", "line 7: train.max_steps = 0: must be at least 1"),
        (RUN.replace("dev =", "dve ="), "line 3: data.dve: unknown key: did you mean data.dev?"),
        (RUN.replace("300", "299"), "line 4: tokenizer: vocab_size = 299 is too small"),
        (RUN + "[train\n", "not a TOML file: "),
    ],
)
def test_is_named_with_its_line_in_the_run_file(folder, capsys, text, named):
    status, shown, errors = outcome(folder, capsys, text)
    assert (status, shown) == (2, "")
    assert errors.startswith(f"error: {folder / 'run.toml'}")
    assert named in errors
    assert errors.count("\n") == 1


def test_every_error_has_its_line(folder, capsys):
    status, shown, errors = outcome(folder, capsys, RUN + "kid = 'bpe'\n[train]\nmax_steps = 0\n", "train.seed=x")
    assert (status, shown) == (2, "")
    starts = ["error: --set train.seed", *(f"error: {folder / 'run.toml'} line {number}: " for number in (6, 8))]
    assert len(errors.splitlines()) == len(starts)
    assert all(line.startswith(start) for line, start in zip(errors.splitlines(), starts, strict=True))


def test_every_missing_file_has_its_line(folder, capsys):
    status, _, errors = outcome(
        folder, capsys, RUN, "data.train.source=no", "data.train.target=no", "data.dev.target=nor"
    )
    assert status == 2
    assert [line.split("/")[-1].split(":")[0] for line in errors.split(" (data.root")[:-1]] == ["no", "nor"]
