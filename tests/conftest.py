"""Shapes and types are checked as the tests run: every annotation of the rooms that know tensors is enforced."""

import gc
import os

# Test processes share two cores: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # where a test asks for two, they sleep while they wait

import pytest
from hypothesis import settings

from tests import typechecks

# Until all tests are collected: nothing goes before, and to look for it takes a seventh of that time.
gc.disable()

typechecks.install(["transduce.kernels", "transduce.layers", "transduce.models", "transduce.search"])

pytest_plugins = ["ways"]

# How long an example takes says more about the machine than about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


# Files of minutes: begun last, one process would run them while the others have nothing left.
LONGEST = (
    "test_without_cuda.py",
    "test_serving_lifecycle.py",
    "test_workflows_flops.py",
    "test_training_loop.py",
    "test_recipes.py",
    "test_lab_jobs.py",
    "test_cli_determinism.py",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_collection_finish():
    """What is there now stays to the end: the garbage collector, which every training calls, need not look at it."""
    import torch._dynamo  # noqa: F401 - what the first optimizer would import

    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 50, 100)  # tensors go when nothing refers to them, and what is left over is small


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    typechecks.begin()
