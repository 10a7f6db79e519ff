"""The README's lines for own text, as a newcomer would type them; with a fresh installation too, which is slow."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXTS = {"train": 1000, "dev": 20, "test": 20, "new": 5}
SMALLER = (
    "train.batch_tokens=256",
    "train.max_steps=30",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=32",
    "model.d_ff=64",
)


@pytest.fixture(params=["this environment", pytest.param("a fresh environment", marks=pytest.mark.slow)])
def commands(request, tmp_path):
    """The folder of the commands python and transduce, and whether all are run as processes."""
    if request.param == "this environment":
        return Path(sys.executable).parent, False
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [environment / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", ROOT]
    subprocess.run(install, check=True, cwd=tmp_path)
    return environment / "bin", True


@pytest.fixture
def folder(tmp_path):
    """A thousand pairs of a made-up language, and the run file of the README."""
    chance = random.Random(3)
    for name, count in TEXTS.items():
        rows = [chance.choices(range(20), k=chance.randint(3, 9)) for _ in range(count)]
        for side, stem in (("en", "word"), ("de", "wört")):
            lines = "".join(" ".join(f"{stem}{word}" for word in row) + "\n" for row in rows)
            (tmp_path / f"{name}.{side}").write_text(lines, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(_block("[data]"), encoding="utf-8")
    return tmp_path


def _block(first: str) -> str:
    """The indented block of the README that has a line with this beginning."""
    blocks = re.findall(r"(?:^    .*\n|^\n)+", README, flags=re.MULTILINE)
    (block,) = [block for block in blocks if re.search(rf"^    {re.escape(first)}", block, flags=re.MULTILINE)]
    return re.sub(r"^    ", "", block, flags=re.MULTILINE)


def _run(folder: Path, *command: str | Path) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_lines_for_own_text_work_as_written(commands, folder, monkeypatch, capsys):
    """In this environment there is a command of each line's name, and it is called, as torch is imported."""
    place, all_as_processes = commands
    monkeypatch.chdir(folder)
    lines = _block("transduce prepare mine.toml").strip().splitlines()
    for line in lines:
        # As written, but for the length of the training, and the sizes of its batches and its model.
        command = line.partition("#")[0].split()
        smaller = [f"--set={setting}" for setting in SMALLER if "mine.toml" in command]
        if all_as_processes:
            printed = _run(folder, place / command[0], *command[1:], *smaller)
        else:
            assert command[0] == "transduce"
            assert os.access(place / "transduce", os.X_OK)
            capsys.readouterr()
            assert main._run([*command[1:], *smaller]) == 0
            printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == ["bleu", "chrf"]
    assert (folder / "new.de").read_text(encoding="utf-8").count("\n") == TEXTS["new"]
    python = _block("import transduce")
    if all_as_processes:
        printed = _run(folder, place / "python", "-c", python)
    else:
        exec(python, {})
        printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 2
