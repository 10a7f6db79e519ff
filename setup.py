"""The optional C++ kernels; all else about the package stands in pyproject.toml."""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import chain
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_LOW_PRECISION: Final = ["-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16", "-mprefer-vector-width=512"]
# One library for each kind of processor that torch tells apart: what is installed here may run elsewhere.
_KINDS: Final = {
    "native_avx2": ["-march=x86-64-v3"],
    "native_avxvnni": ["-march=x86-64-v3", "-mavxvnni"],
    "native_avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
    "native_avx512vnni": [*_LOW_PRECISION],
    "native_amx": [*_LOW_PRECISION, "-mamx-tile", "-mamx-bf16", "-mamx-int8"],
}
# What Linux calls the instructions that each kind needs.
_AVX2: Final = {"avx2", "fma", "f16c"}
_AVX512: Final = {*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl"}
_AVX512VNNI: Final = {*_AVX512, "avx512_vnni", "avx512_bf16"}
_NEEDS: Final = {
    "native_avx2": _AVX2,
    "native_avxvnni": {*_AVX2, "avx_vnni"},
    "native_avx512": _AVX512,
    "native_avx512vnni": _AVX512VNNI,
    "native_amx": {*_AVX512VNNI, "amx_tile", "amx_bf16", "amx_int8"},
}
_FOLDER: Final = "src/transduce/kernels"
_SOURCES: Final = (
    "additive",
    "attention",
    "interface",
    "linear_maps",
    "native",
    "products",
    "ranking",
    "recurrence",
    "rounds",
    "searching",
    "sublayers",
    "tiled_maps",
    "transformer",
)
_HEADERS: Final = (
    "activation",
    "additive",
    "attending",
    "averaging",
    "dropping",
    "guard",
    "helpers",
    "maps",
    "numbers",
    "panels",
    "products",
    "ranking",
    "reading",
    "recurrence",
    "sixteen",
    "stack",
    "structures",
    "sublayers",
    "system",
    "tiles",
    "training",
    "vectors",
    "weights",
    "words",
)
_FLAGS: Final = [
    "-O3",
    "-std=c++17",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-Wno-psabi",  # vectors cross no border of a library
    "-g0",  # debug information, which Python's own flags ask for, is eight times the size and a fifth of the time
]
# Of a kind that is not made to be used.
_TRIAL: Final = "-O0"
# Of kinds that know one instruction more than the kind before: the sources that ask for it, by which such a kind is
# tried, as the others are the same twice (tests/kernels/test_kinds.py).
_ONLY_IN: Final = {"native_avxvnni": ("products",), "native_amx": ("products", "tiled_maps")}
# Sources to which precompiled headers cost more than they spare.
_FEW: Final = 6
# Behind all others, so that they can take something back: a sanitizer wants less optimization.
_MORE: Final = os.environ.get("TRANSDUCE_CXXFLAGS", "").split()


def extension(name: str, flags: list[str]) -> Extension:
    """Left out where no compiler is found, or it does not know a flag."""
    sources = _ONLY_IN.get(name, _SOURCES) if _TRIAL in flags else _SOURCES
    # OpenMP's symbols come from the library that torch has loaded: a second pool of threads would wait for the first.
    return Extension(
        f"transduce.kernels.{name}",
        [f"{_FOLDER}/{source}.cpp" for source in sources],
        depends=[f"{_FOLDER}/{name}.h" for name in _HEADERS],
        extra_compile_args=[*_FLAGS, *flags, "-fopenmp", "-pthread", *_MORE],
        # Its own functions, whatever other libraries have under the same names.
        extra_link_args=["-pthread", "-Wl,-Bsymbolic-functions"],
        py_limited_api=True,  # nothing of Python is called, so that one library serves every version of it
        optional=True,
    )


def able_kinds() -> list[str]:
    """Those that this processor can run, the one that it takes last."""
    processor = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = set(processor.partition("flags")[2].partition("\n")[0].split())
    return [kind for kind in _KINDS if _NEEDS[kind] <= flags]


def chosen_kinds() -> dict[str, list[str]]:
    """What ``TRANSDUCE_KERNELS`` says, by the flags for each: all kinds, where it says nothing.

    ``own`` is this processor's kind alone, which takes a third of the time; ``check`` is all kinds, those it cannot run
    without optimization: that they compile is all that can be seen of them here, in a third of the time, too, and they
    are not kept.
    """
    if not (sys.platform == "linux" and platform.machine() == "x86_64"):
        return {}
    able = able_kinds()
    match os.environ.get("TRANSDUCE_KERNELS", "all"):
        case "all":
            return _KINDS
        case "own":
            return {kind: _KINDS[kind] for kind in able[-1:]}
        case "check":
            return {kind: flags if kind in able else [*flags, _TRIAL] for kind, flags in _KINDS.items()}
        case "none":
            return {}
        case other:
            sys.exit(f"TRANSDUCE_KERNELS={other}: all (kinds of processors), own (this one's), check or none")


class EachInItsPlace(build_ext):
    """All kinds are made of the same sources: with objects in places of their own, they can be built at once.

    What shows no more than that it compiles is left out of what is installed: on a processor that can run it, it would
    be taken for the real one, and be many times as slow.
    """

    def finalize_options(self) -> None:
        """As many compilers at a time as were asked for, or as there are processors."""
        super().finalize_options()
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.compilers = ThreadPoolExecutor(self.parallel or processors)
        self.parallel = len(_KINDS)  # each of which has its sources compiled by those

    def build_extensions(self) -> None:
        """All kinds, of which those to be used are kept; a trial fails where its kind does not compile."""
        super().build_extensions()
        for ext in [ext for ext in self.extensions if _TRIAL in kinds[ext.name.rpartition(".")[2]]]:
            library = Path(self.get_ext_fullpath(ext.name))
            if not library.exists():
                sys.exit(f"{ext.name} does not compile: its errors stand above (pip shows them with -v)")
            library.unlink()
            self.extensions.remove(ext)

    def build_extension(self, ext: Extension) -> None:
        """One kind, whose sources are compiled beside each other."""
        apart = copy(self)
        apart.build_temp = f"{self.build_temp}/{ext.name}"
        apart.compiler = copy(self.compiler)

        def compile_all(sources: list[str], extra_postargs: list[str], **settings: Any) -> list[str]:  # noqa: ANN401
            flags = extra_postargs
            if len(sources) >= _FEW:
                flags = flags + self.compilers.submit(self.precompile, flags, Path(apart.build_temp)).result()
            each = self.compilers.map(
                lambda source: self.compiler.compile([source], extra_postargs=flags, **settings), sources
            )
            return list(chain.from_iterable(each))

        apart.compiler.compile = compile_all
        build_ext.build_extension(apart, ext)

    def precompile(self, flags: list[str], folder: Path) -> list[str]:
        """The system's headers that sources share, a third of their time; other compilers read them each time.

        Returns:
            What makes GCC take them.
        """
        name = Path(self.compiler.compiler_so_cxx[0]).name
        if "g++" not in name or "clang" in name:
            return []
        folder.mkdir(parents=True, exist_ok=True)
        header = folder / "system.h"
        copyfile(f"{_FOLDER}/system.h", header)
        command = [*self.compiler.compiler_so_cxx, *flags, "-x", "c++-header", str(header)]
        self.spawn([*command, "-o", f"{header}.gch"])
        return ["-include", str(header)]


kinds = chosen_kinds()
setup(
    ext_modules=[extension(*kind) for kind in kinds.items()],
    cmdclass={"build_ext": EachInItsPlace},
    # A wheel with kernels is for this kind of machine and every Python from 3.11 on; one without is for all machines.
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if kinds else {},
)
