"""The same commands with several versions of Python and of PyTorch: which of them this package runs with.

    python -m benchmarks.versions --python 3.11 --python 3.14 --torch 2.11.0 --torch 2.15.0 --out runs/versions

Every pair gets an environment of its own, with the package's wheel, and there goes the whole way on a small copy
task: ``doctor``, ``train``, ``translate``, ``evaluate``, ``export``, and the tests of some rooms. What each came to is
a file in ``--out``, so that the command, given again, does only what is missing; a pair that failed is tried again.
The table is Markdown.

An interpreter is a name on the PATH, a version or a path. ``--wheel FILE`` is one for all of them; without it, each
interpreter builds its own. On Linux, PyPI's torch asks for CUDA's libraries, gigabytes of them for each environment.
With ``--libraries DIR`` it is installed without them, and finds those that it is linked to in that folder, once for
all: nothing of them runs without a GPU. ``--wheels DIR`` has wheels that need not be fetched. The environments stay,
a gigabyte and a half each, unless ``--remove`` is given. This file needs nothing but Python.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Final, Literal, final

ROOT: Final = Path(__file__).parents[1]
STEPS: Final = ("install", "doctor", "train", "translate", "evaluate", "export", "tests")
# What tests/conftest.py and the tests below ask for, beside the package itself.
_FOR_TESTS: Final = ("beartype", "filelock", "hypothesis", "pytest")
_TESTED: Final = ("tests/layers", "tests/models/test_transformer.py", "tests/search/test_beam.py")
_RUN: Final = """
[data]
train = { made_up = "copy", count = 2000, seed = 1 }
dev = { made_up = "copy", count = 50, seed = 2 }
test = { made_up = "copy", count = 50, seed = 3 }

[tokenizer]
kind = "words"

[model]
preset = "tiny"
encoder_layers = 2
decoder_layers = 2
d_model = 64
norm = "pre"

[train]
batch_tokens = 512
max_steps = 100
warmup_steps = 40
log_every = 50
validate_every = 50
checkpoint_every = 50
"""
# Prints what a distribution needs on this machine, without its extras, one requirement a line.
_ASK_REQUIREMENTS: Final = """
import sys
from importlib.metadata import requires
from packaging.requirements import Requirement
for text in (text for name in sys.argv[1:] for text in requires(name) or ()):
    one = Requirement(text)
    if one.marker is None or one.marker.evaluate({"extra": ""}):
        print(f"{one.name}{one.specifier}")
"""
_ASK_WHAT_RAN: Final = """
import platform, torch
from transduce.kernels import has_native
print(platform.python_version(), torch.__version__, "yes" if has_native(torch.zeros(1)) else "no")
"""

Way = Literal["done", "failed", "not to be had"]


@final
@dataclass(frozen=True)
class Pair:
    """What an interpreter and a torch came to: ``said`` is why it ended early, or how the tests closed.

    ``name`` is as they were asked for, ``python`` and ``torch`` are what they say of themselves. ``seconds`` are of the
    steps that succeeded.
    """

    name: str
    python: str
    torch: str
    way: Way
    said: str
    kernels: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


class StepError(Exception):
    """A command failed; its message is the last thing that it said."""


@final
@dataclass(frozen=True)
class Environment:
    """A folder with an interpreter and all that is installed for it; what its commands print is in ``log``."""

    folder: Path
    variables: Mapping[str, str]
    log: Path

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """What a command of the environment's prints, in its own folder or another.

        Raises:
            StepError: It failed.
        """
        ran = subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            cwd=cwd or self.folder,
            env=os.environ | self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        with self.log.open("a", encoding="utf-8") as file:
            print("$", *command, file=file)
            file.write(ran.stdout)
        if ran.returncode != 0:
            raise StepError(last_words(ran.stdout) or f"{command[0]}: exit status {ran.returncode}")
        return ran.stdout


@final
@dataclass(frozen=True)
class Sources:
    """Where everything comes from and goes to, as the options say."""

    out: Path
    wheel: Path | None
    wheels: Path | None
    libraries: Path | None

    def environment(self, name: str) -> Environment:
        """The one of a pair, which need not be there yet."""
        variables = {"PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        if self.libraries is not None:
            variables["LD_LIBRARY_PATH"] = str(self.libraries.resolve())
        if self.wheels is not None:
            variables["PIP_FIND_LINKS"] = str(self.wheels.resolve())
        return Environment(self.out / name, variables, self.out / f"{name}.log")


def main() -> None:
    """Parse, try every pair, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--python", action="append", required=True, metavar="NAME", help="an interpreter; may be repeated"
    )
    parser.add_argument("--torch", action="append", required=True, metavar="VERSION", help="a version; may be repeated")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PYTHON:TORCH", help="these pairs alone, as in the table"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/versions"), help="results, logs and environments")
    parser.add_argument("--wheel", type=Path, help="the package's wheel, for every interpreter")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels that need not be fetched")
    parser.add_argument("--libraries", type=Path, help="a folder with CUDA's libraries: torch comes without them")
    parser.add_argument("--remove", action="store_true", help="remove an environment when its pair is done")
    given = parser.parse_args()
    sources = Sources(given.out.resolve(), given.wheel, given.wheels, given.libraries)
    sources.out.mkdir(parents=True, exist_ok=True)
    results = []
    for name in given.python:
        interpreter, version = find_python(name)
        for torch in given.torch:
            if given.only and f"{version}:{torch}" not in given.only:
                continue
            file = sources.out / f"{version}-{torch}.json"
            pair = Pair(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None
            if pair is None or pair.way != "done":
                pair = _try(interpreter, pair or Pair(file.stem, version, torch, "not to be had", ""), sources)
                file.write_text(json.dumps(asdict(pair), indent=1) + "\n", encoding="utf-8")
                if given.remove:
                    shutil.rmtree(sources.environment(file.stem).folder, ignore_errors=True)
            results.append(pair)
            print(row(pair), file=sys.stderr, flush=True)
    print("\n".join([f"{date.today()}, {processor()}", "", *table(results)]))
    sys.exit(any(result.way == "failed" for result in results))


def find_python(name: str) -> tuple[Path | None, str]:
    """An interpreter by its name or path, and its version (3.11); None where it is not there."""
    found = next((which for each in (name, f"python{name}") if (which := shutil.which(each))), None)
    if found is not None:
        ask = [found, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        ran = subprocess.run(ask, capture_output=True, text=True, check=False)
        if ran.returncode == 0:  # pyenv, for one, has commands for interpreters that it will not run
            return Path(found), ran.stdout.strip()
    return None, re.sub(r"^.*python", "", name)


def _try(interpreter: Path | None, before: Pair, sources: Sources) -> Pair:
    """Go on with a pair from the step that it came to ``before``, where its environment is still there."""
    if interpreter is None:
        return replace(before, said="no such interpreter")
    environment = sources.environment(before.name)
    seconds = dict(before.seconds) if environment.folder.is_dir() else {}
    pair, step = replace(before, seconds=seconds, said=""), ""
    try:
        for step in STEPS:
            if step in seconds:
                continue
            start = time.monotonic()
            if step == "install":
                _install(environment, interpreter, before.name.partition("-")[2], sources)
                python, torch, kernels = environment.run("python", "-c", _ASK_WHAT_RAN).split()[-3:]
                pair = replace(pair, python=python, torch=torch, kernels=kernels)
            else:
                pair = replace(pair, said=_take(step, environment))
            seconds[step] = round(time.monotonic() - start, 1)
    except StepError as error:
        way: Way = "not to be had" if "No matching distribution found for torch" in str(error) else "failed"
        return replace(pair, way=way, said=f"{step}: {error}")
    return replace(pair, way="done")


def _install(environment: Environment, interpreter: Path, torch: str, sources: Sources) -> None:
    """torch, then the package's wheel, with the versions that continuous integration has, torch's own left out."""
    shutil.rmtree(environment.folder, ignore_errors=True)
    made = subprocess.run([interpreter, "-m", "venv", environment.folder], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise StepError(last_words(made.stdout + made.stderr))
    constraints = environment.folder / "constraints.txt"
    constraints.write_text(loosen((ROOT / "constraints.txt").read_text(encoding="utf-8")), encoding="utf-8")

    def pip(*arguments: str) -> None:
        environment.run("python", "-m", "pip", "install", "--no-compile", "-c", str(constraints), *arguments)

    alone = sources.libraries is not None
    pip("packaging")
    pip(*(("--no-deps",) if alone else ()), f"torch=={torch}")
    pip("--no-deps", str(sources.wheel.resolve() if sources.wheel else _build(environment)))
    asked = environment.run("python", "-c", _ASK_REQUIREMENTS, "torch", "transduce").split("\n")
    pip(*_FOR_TESTS, *(without_cuda(asked) if alone else filter(None, asked)))


def _build(environment: Environment) -> Path:
    """The package's wheel, by this interpreter, with this processor's kernels."""
    place = environment.folder / "wheel"
    building = replace(environment, variables={**environment.variables, "TRANSDUCE_KERNELS": "own"})
    building.run("python", "-m", "pip", "wheel", "--no-deps", "-w", str(place), str(ROOT))
    return next(place.glob("*.whl"))


def _take(step: str, environment: Environment) -> str:
    """One of the steps behind the installation; what it printed."""
    (environment.folder / "copy.toml").write_text(_RUN, encoding="utf-8")
    lines, out = environment.folder / "lines.txt", environment.folder / "out.txt"
    model = "runs/copy"
    match step:
        case "doctor" | "train":
            return environment.run("transduce", step, "copy.toml")
        case "translate":
            lines.write_text("3 1 4 1 5\n9 2 6\n", encoding="utf-8")
            printed = environment.run("transduce", step, model, "--input", str(lines), "--output", str(out))
            if len(out.read_text(encoding="utf-8").splitlines()) != 2:
                raise StepError("two lines in, and not two lines out")
            return printed
        case "evaluate":
            return environment.run("transduce", step, model, "--metric", "exact")
        case "export":
            return environment.run("transduce", step, model, "--to", "safetensors", "--out", "exported")
        case "tests":
            pytest = "-m", "pytest", "-p", "no:cacheprovider"
            return last_words(environment.run("python", *pytest, *_TESTED, cwd=ROOT))
        case _:
            raise AssertionError(step)


def loosen(constraints: str) -> str:
    """Constraints without what the pairs are to differ in."""
    return "\n".join(line for line in constraints.splitlines() if not line.startswith("torch==")) + "\n"


def without_cuda(requirements: Iterable[str]) -> list[str]:
    """The requirements without CUDA's libraries and without torch itself, which is there."""
    return [
        each for each in requirements if each and not re.match(r"cuda-|nvidia-|triton|torch(?![\w-])", each.lower())
    ]


def last_words(printed: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith("[notice]")]
    return lines[-1] if lines else ""


def table(results: Sequence[Pair]) -> list[str]:
    """What the pairs came to, as Markdown."""
    head = f"| Python | torch | C++ kernels | {' | '.join(STEPS[1:])} |"
    return [head, "|" + "---|" * (3 + len(STEPS[1:])), *map(row, results)]


def row(pair: Pair) -> str:
    """A pair's line of the table: each command that ran, and why the first one that did not failed."""
    told = pair.said.strip("= ").replace("|", "\\|")
    cells = [pair.python, pair.torch, pair.kernels]
    steps = STEPS[1:]
    if pair.way == "done":
        cells += ["ok"] * (len(steps) - 1) + [re.sub(r" in [\d.]+s.*", "", told)]
    else:
        reached = [step for step in steps if step in pair.seconds]
        cells += ["ok"] * len(reached) + [f"{pair.way}: {told}"] + [""] * (len(steps) - len(reached) - 1)
    return f"| {' | '.join(cells)} |"


def processor() -> str:
    """This machine's processor, as Linux calls it."""
    told = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", told.read_text(encoding="utf-8"), re.M) if told.is_file() else None
    return f"{found[1] if found else 'an unknown processor'}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
