"""Kinds of kernels: a kind that is only tried is made of the sources that ask for its instructions (setup.py)."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "transduce" / "kernels"
MACROS = {"native_avxvnni": "__AVXVNNI__", "native_amx": "__AMX_"}


def _constant(name):
    for statement in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
            return ast.literal_eval(statement.value)
    raise LookupError(name)


def _with_headers(path):
    text = path.read_text()
    return text + "".join(_with_headers(FOLDER / name) for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE))


@pytest.mark.parametrize("kind", MACROS)
def test_no_other_source_asks_for_the_instructions_of_a_kind(kind):
    asking = {path.stem for path in FOLDER.glob("*.cpp") if MACROS[kind] in _with_headers(path)}
    assert asking == set(_constant("_ONLY_IN")[kind])


@pytest.mark.parametrize(("name", "ending"), [("_SOURCES", "cpp"), ("_HEADERS", "h")])
def test_every_file_is_known(name, ending):
    assert set(_constant(name)) == {path.stem for path in FOLDER.glob(f"*.{ending}")}
