"""The room's names: each is there, and a type checker is told of the same ones."""

import ast
import inspect

from transduce import config


def test_what_a_type_checker_sees_is_what_is_loaded():
    (block, *_) = (each for each in ast.parse(inspect.getsource(config)).body if isinstance(each, ast.If))
    seen = {each.name: line.module for line in block.body for each in line.names}
    assert {name: f"transduce.config.{file}" for name, file in config._HOME.items()} == seen
    assert sorted(config.__all__) == sorted(seen)
    assert all(getattr(config, name) is not None for name in config.__all__)
