"""Kernels on random shapes and search in threads, as they are and built with compilers' sanitizers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sanitizers import shapes, threads

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
TESTS = "-m", "pytest", "-p", "no:cacheprovider"
KINDS = {"address": ("asan", "ubsan"), "thread": ("tsan",)}
# One allocation of torch's that nobody frees is not the kernels'; one that is too large fails as it does elsewhere,
# which some tests want; and what is wrong ends the process.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:exitcode=99",
    "TSAN_OPTIONS": f"halt_on_error=1:exitcode=99:report_signal_unsafe=0:suppressions={HERE / 'thread.supp'}",
}


def test_random_shapes(way):
    if way == "plain":
        pytest.skip("there are no kernels")
    shapes.run(44, 7)


@pytest.mark.usefixtures("built")
def test_threads_share_a_model_beyond_its_table_of_positions():
    threads.run(8, 48)


@pytest.fixture(scope="module", params=KINDS)
def instrumented(request, tmp_path_factory):
    """How to run Python with a copy of the package whose kernels are built with a sanitizer."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    libraries = [] if compiler is None else [_runtime(compiler, name) for name in (*KINDS[request.param], "stdc++")]
    if not libraries or not all(each.is_absolute() for each in libraries):
        pytest.skip("no compiler with sanitizers")
    copy = tmp_path_factory.mktemp(request.param) / "copy"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    more = ",undefined" if request.param == "address" else ""
    flags = f"-fsanitize={request.param}{more} -g1 -fno-omit-frame-pointer"
    # Without vectors of the compiler's own making, which ThreadSanitizer does not look at.
    build = {**os.environ, "TRANSDUCE_CXXFLAGS": f"{flags} -O1", "LDFLAGS": flags}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=copy, env=build, check=True, capture_output=True)
    assert list((copy / "src/transduce/kernels").glob("*.so"))
    environment = {
        **os.environ,
        **OPTIONS,
        "LD_PRELOAD": " ".join(map(str, libraries)),
        "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{ROOT / 'tests'}",
    }

    def run(*arguments, threads="1"):
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT,
            env={**environment, "OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=False,
        )

    return request.param, run


def _runtime(compiler, name):
    found = subprocess.run([compiler, f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


# What a sanitizer is there to find: a kernel that is told of more rows than there are, in threads or not.
OVERFLOW = """
import ctypes, sys, torch
from transduce.kernels import interface, native
library = native._library()
x, y = torch.ones(8, 16), torch.ones(8, 16)
chance = interface.Chance(None, 65536, 1.0)
library.drop_float32(x.data_ptr(), y.data_ptr(), 1 << 20, 16, ctypes.byref(chance))
"""
RACE = """
import torch
from concurrent.futures import ThreadPoolExecutor
from transduce.kernels import interface, native
library, x, y = native._library(), torch.ones(64, 1024), torch.ones(64, 1024)
chance = interface.Chance(None, 65536, 1.0)
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda _: library.drop_float32(x.data_ptr(), y.data_ptr(), 64, 1024, chance), range(400)))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_the_sanitizer_would_find_something(instrumented):
    kind, run = instrumented
    found = run("-c", OVERFLOW if kind == "address" else RACE)
    assert found.returncode == 99, found.stderr
    assert "AddressSanitizer" in found.stderr or "data race" in found.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_clean_under_sanitizers(instrumented):
    kind, run = instrumented
    if kind == "address":
        jobs = [(HERE / "shapes.py", 10_000, 1), (*TESTS, "tests/kernels", "tests/models")]
    else:
        jobs = [(HERE / "threads.py", 8, 2000)]
    for job in jobs:
        found = run(*job)
        sys.stdout.write(found.stdout[-400:])
        assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
