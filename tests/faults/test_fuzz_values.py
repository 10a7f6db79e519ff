"""Files of which hypothesis exchanges a value, and settings that it makes up: a clear error each, or a result."""

import json
import shutil

import pytest
from families import FAMILIES, make_run  # type: ignore[import-not-found] # beside this test
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transduce.config import RunConfig, TransduceError, read_run

# What JSON can say; long texts and deep nesting are the business of damaged files.
NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-3, 300) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=7,
)
KEYS = sorted(
    f"{section}.{key}"
    for section, field in RunConfig.model_fields.items()
    for key in getattr(field.annotation, "model_fields", ())
)
JSON_FILES = {"model": "*.json", "bpe": "*.json", "wordpiece": "*.json", "words": "*.json", "characters": "*.json"}
OFTEN = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def exchange(tree, draw):
    """The tree with one of its values, at any depth, replaced, or gone."""
    if not isinstance(tree, dict | list) or not tree or draw(st.integers(0, 3)) == 0:
        return draw(VALUES)
    keys = sorted(tree) if isinstance(tree, dict) else range(len(tree))
    key = draw(st.sampled_from(keys))
    changed = tree.copy()
    if draw(st.integers(0, 9)) == 0:
        del changed[key]
    else:
        changed[key] = exchange(tree[key], draw)
    return changed


def check(use):
    """It ends in a result or in an error of ours, of one line for each thing that is wrong."""
    try:
        use()
    except TransduceError as error:
        assert len(str(error).splitlines()) == len(error.args), error


@pytest.fixture(scope="module", params=JSON_FILES)
def whole(request, tmp_path_factory):
    """A folder of whole files of a kind, what uses it, and the files of which values are exchanged."""
    folder = tmp_path_factory.mktemp(request.param)
    family = FAMILIES[request.param]
    family.make(folder)
    return folder, family.use, sorted(path.name for path in folder.glob(JSON_FILES[request.param]))


@OFTEN
@given(data=st.data())
def test_an_exchanged_value(whole, data, tmp_path):
    folder, use, names = whole
    name = data.draw(st.sampled_from(names))
    copied = tmp_path / "copied"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(folder, copied)
    tree = exchange(json.loads((folder / name).read_bytes()), data.draw)
    (copied / name).write_text(json.dumps(tree), encoding="utf-8", errors="surrogatepass")
    check(lambda: use(copied))


@OFTEN
@given(changes=st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3))
def test_made_up_settings(changes, tmp_path):
    make_run(tmp_path)
    given_ = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
    check(lambda: read_run(tmp_path / "run.toml", given_))
