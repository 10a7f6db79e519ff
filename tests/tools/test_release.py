"""What is refused before anything is published."""

import sys
import tomllib
from pathlib import Path

import pytest

from tools.release import KINDS, ReleaseError, _output, check_committed, check_sdist, check_version, check_wheel

TRACKED = [
    "LICENSE",
    "src/transduce/__init__.py",
    "src/transduce/py.typed",
    "src/transduce/kernels/native.cpp",
    "src/transduce/viewing/assets/page.css",
    "tests/test_x.py",
]
DESCRIBED = [
    f"transduce-0.1.0.dist-info/{name}" for name in ("licenses/LICENSE", "entry_points.txt", "METADATA", "RECORD")
]
WHEEL = [
    "transduce/__init__.py",
    "transduce/py.typed",
    "transduce/viewing/assets/page.css",
    *(f"transduce/kernels/{kind}.abi3.so" for kind in KINDS),
    *DESCRIBED,
]
SDIST = ["LICENSE", "README.md", "pyproject.toml", "setup.py", "PKG-INFO", *TRACKED[1:5]]


def test_the_version_is_the_changelog_s():
    project = {"project": {"version": "0.3.1"}}
    assert check_version(project, "# Changelog\n\n## 0.3.1 (2027-01-05)\n\n- New.\n\n## 0.3.0\n") == "0.3.1"
    for text, named in (("## Unreleased\n\n## 0.3.1\n", "Unreleased"), ("## 0.3.10\n", "0.3.10"), ("", "nothing")):
        with pytest.raises(ReleaseError, match=f"has version 0.3.1, .* about {named}:"):
            check_version(project, text)


def test_the_version_to_be_cited_is_the_package_s():
    root = Path(__file__).parents[2]
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")


def test_nothing_is_uncommitted():
    check_committed("")
    with pytest.raises(ReleaseError, match=r"2 files are not committed, src/a\.py among them"):
        check_committed(" M src/a.py\n?? new.py\n")


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("transduce/__init__.py", r"lacks 1 files, transduce/__init__\.py"),
        ("transduce/py.typed", r"py\.typed"),
        ("transduce/viewing/assets/page.css", r"assets/page\.css"),
        ("transduce/kernels/native_avx2.abi3.so", r"native_avx2\.abi3\.so"),
        ("transduce-0.1.0.dist-info/licenses/LICENSE", "lacks licenses/LICENSE"),
    ],
)
def test_a_wheel_is_whole(without, message):
    check_wheel(WHEEL, TRACKED, KINDS)
    with pytest.raises(ReleaseError, match=message):
        check_wheel([name for name in WHEEL if name != without], TRACKED, KINDS)


@pytest.mark.parametrize("more", ["tests/test_x.py", "transduce/kernels/native.cpp", "transduce/old.py"])
def test_a_wheel_has_nothing_else(more):
    with pytest.raises(ReleaseError, match=f"1 files that belong to no package, {more}"):
        check_wheel([*WHEEL, more], TRACKED, KINDS)


def test_a_wheel_without_kernels_has_none():
    check_wheel([name for name in WHEEL if not name.endswith(".so")], TRACKED, ())
    with pytest.raises(ReleaseError, match=f"{len(KINDS)} files that belong to no package"):
        check_wheel(WHEEL, TRACKED, ())


def test_an_sdist_has_all_that_it_is_built_of():
    check_sdist(SDIST, TRACKED)
    with pytest.raises(ReleaseError, match=r"lacks 1 files, src/transduce/kernels/native\.cpp among them"):
        check_sdist([name for name in SDIST if not name.endswith(".cpp")], TRACKED)


def test_every_kind_of_kernels_is_looked_for():
    text = (Path(__file__).parents[2] / "setup.py").read_text()
    assert all(f'"{kind}"' in text for kind in KINDS)
    assert text.count('    "native_') == 2 * len(KINDS)
    assert tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["license-files"]


def test_programs_beside_the_interpreter_are_found(tmp_path, monkeypatch):
    """As with ``.venv/bin/python -m tools.release``, where nobody has activated the environment."""
    program = tmp_path / "a-patchelf"
    program.write_text("#!/bin/sh\necho found $1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert _output(["a-patchelf", "here"]) == "found here\n"


def test_folders_of_a_wheel_are_no_files():
    check_wheel(["transduce/", "transduce/kernels/", *WHEEL], TRACKED, KINDS)
