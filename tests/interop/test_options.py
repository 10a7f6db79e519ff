"""An option of another library is of the type that it should be, or is named with what belongs there."""

from pathlib import Path

import pytest
import torch

from transduce.config import BadInputError
from transduce.interop.options import Options, same

PLACE = Path("model.yml")


def deep():
    nested = []
    for _ in range(10**5):
        nested = [nested]
    return nested


STRANGE = {
    "text": "many",
    "nothing": [],
    "list": [7],
    "table": {"a": 1},
    "huge": 10**5000,
    "infinite": float("inf"),
    "nan": float("nan"),
    "deep": deep(),
    "tensor": torch.ones(3, 5),
    "number": 7.5,
}
KINDS = {
    "integer": "a whole number",
    "size": "a whole number from 1 to 1,048,576",
    "number": "a number",
    "rate": "a rate",
    "flag": "true or false",
    "text": "text",
    "texts": "a list of symbols",
}


@pytest.mark.parametrize(
    ("kind", "what"), [(kind, what) for kind in KINDS for what in STRANGE if what not in (kind, "nothing")]
)
def test_what_is_of_another_type_is_named_on_one_line(kind, what):
    options = Options.of({what: STRANGE[what]}, PLACE)
    with pytest.raises(BadInputError, match=rf"model\.yml: {what} = .*: {KINDS[kind]}.* belongs here") as refused:
        getattr(options, kind)(what)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_is_named(kind):
    for given in ({}, {"x": None}):
        with pytest.raises(BadInputError, match=r"model\.yml: x is missing: .* belongs there"):
            getattr(Options.of(given, PLACE), kind)("x")


def test_what_is_of_its_type():
    options = Options.of(
        {"i": -7, "n": 3, "r": 0.25, "s": [0.5, 0.1], "yes": True, "no": 0, "t": "a", "l": ["a", "b"]}, PLACE
    )
    assert (options.integer("i"), options.integer("i", least=-7, most=-7), options.size("n")) == (-7, -7, 3)
    assert (options.number("n"), options.number("r", least=0), options.rate("r"), options.rate("s")) == (
        3,
        0.25,
        0.25,
        0.5,
    )
    assert (options.flag("yes"), options.flag("no"), options.text("t"), options.texts("l")) == (
        True,
        False,
        "a",
        ["a", "b"],
    )
    assert (options.integer("x", 5), options.flag("x", default=True), options.text("x", "y")) == (5, True, "y")
    assert options.choice("t", {"a": 11, "b": 13}) == 11


def test_bounds_are_said():
    options = Options.of({"x": 5}, PLACE)
    with pytest.raises(BadInputError, match="x = 5: a whole number from 7 belongs here"):
        options.integer("x", least=7)
    with pytest.raises(BadInputError, match="x = 5: a number up to 3 belongs here"):
        options.number("x", most=3)
    with pytest.raises(BadInputError, match="x = True: a whole number"):
        Options.of({"x": True}, PLACE).integer("x")


def test_words_that_ours_has_not():
    options = Options.of({"x": "c", "y": ["a"]}, PLACE)
    for name, default, shown in (("x", None, "'c'"), ("y", None, r"\['a'\]"), ("z", "recurrent", "'recurrent'")):
        with pytest.raises(BadInputError, match=rf"{name} = {shown}: no model of ours has it, only 'a' or 'b'"):
            options.choice(name, {"a": 1, "b": 2}, default)


@pytest.mark.parametrize("value", [True, "ring", [3], {"a": 1}, torch.zeros(3)])
def test_what_no_model_of_ours_has(value):
    options = Options.of({"x": value}, PLACE)
    with pytest.raises(BadInputError, match=r"model\.yml: x = .*: no model of ours has it"):
        options.check({"x": (False, "default")})
    with pytest.raises(BadInputError, match=r"model\.yml: x = .*: no model of ours has it"):
        options.check_unset(["x"])


def test_what_says_nothing_is_no_matter():
    options = Options.of({"a": None, "b": False, "c": 0, "d": "", "e": []}, PLACE)
    options.check_unset("abcdef")
    options.check({"a": (7,), "b": (False,), "c": (0,), "e": ([],), "f": (3,)})


def test_sections_are_part_of_the_name():
    options = Options.of({"model": {"heads": "five", "encoder": {"layers": 3, "heads": None}}}, PLACE)
    encoder = options.section("model").section("encoder", around=True)
    assert (encoder.integer("layers"), encoder.key("layers"), encoder.key("x")) == (
        3,
        *["model.encoder." + n for n in ("layers", "x")],
    )
    with pytest.raises(BadInputError, match=r"model\.yml: model\.heads = 'five'"):
        encoder.integer("heads")
    with pytest.raises(BadInputError, match=r"model\.yml: the section model\.decoder is missing"):
        options.section("model").section("decoder")
    assert options.section("model").section("decoder", optional=True).names == []
    with pytest.raises(BadInputError, match=r"model\.heads = 'five': a section"):
        options.section("model").section("heads")
    with pytest.raises(BadInputError, match=r"model\.encoder = .*: unknown, of heads, layers"):
        options.section("model").check_known(["heads", "layers"])


def test_what_both_sides_have():
    assert same(PLACE, {"a.x": 3, "b.x": 3}) == 3
    with pytest.raises(BadInputError, match=r"model\.yml: a\.x = 3, b\.x = 5: ours has one for both"):
        same(PLACE, {"a.x": 3, "b.x": 5})
