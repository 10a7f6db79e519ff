"""A program with a life of its own that uses ``transduce`` as a library: what ``test_workflows_host.py`` runs.

    python host.py MODEL RUN.toml OUT

Prints, as JSON, what of the process changed, and how many pages the system cleared for memory that is asked for anew.
"""

import faulthandler
import gc
import json
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import torch


def in_a_new_thread(look):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(look()))
    thread.start()
    thread.join()
    return seen[0]


def look():
    """What belongs to the program, by name; each as something that can be compared."""
    numpy_state = np.random.get_state()
    return {
        "threads": torch.get_num_threads(),
        "threads of a new thread": in_a_new_thread(torch.get_num_threads),
        "threads between operations": torch.get_num_interop_threads(),
        "torch's generator": torch.get_rng_state().tolist(),
        "numpy's generator": [str(part) for part in numpy_state],
        "python's generator": random.getstate(),
        "environment": dict(os.environ),
        "signals": {int(each): str(signal.getsignal(each)) for each in signal.valid_signals()},
        "logging": [str(logging.root.handlers), logging.root.level, logging.root.manager.disable],
        "our log": [(x := logging.getLogger("transduce")).level, str(x.handlers), x.propagate],
        "warnings": [str(each) for each in warnings.filters],
        "faulthandler": faulthandler.is_enabled(),
        "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": str(Path.cwd()),
        "hooks": [str(sys.excepthook), str(threading.excepthook), sys.getrecursionlimit(), sys.getswitchinterval()],
        "types": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "torch": [
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.backends.mkldnn.enabled,
        ],
    }


def fill():
    torch.ones(12_000_000)


def cleared_pages():
    """While the same 48 MB are asked for, filled and given back nine times."""
    import resource

    fill()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(9):
        fill()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def translate(model):
    from transduce import load
    from transduce.evaluation import make_scorer, paired_bootstrap

    translator = load(model)
    sources = [" ".join(["bamo", "dulu", "fepi"][: 1 + number % 3]) for number in range(64)]
    outputs = [each.text for each in translator.translate(sources, first_number=None)]
    translator.translate(sources[:2], sampling=True, seed=3, return_alignment=True)
    translator.score(sources, outputs)
    paired_bootstrap({"bleu": make_scorer("bleu")}, outputs, sources, outputs, samples=20, seed=7)


def train(run_file, out):
    from transduce.config import read_run
    from transduce.workflows.doctor import examine
    from transduce.workflows.run_directory import RunDirectory
    from transduce.workflows.train import train_run

    changes = ["train.max_steps=4", "train.validate_every=2", "train.checkpoint_every=2"]
    config, run = read_run(run_file, changes), RunDirectory(out)
    list(examine(config, run))
    train_run(config, run, resume=False)


def bring_in_what_training_stands_on():
    """As they are loaded, they set filters of warnings, name a folder in the environment and draw a number."""
    import rich.style  # noqa: F401
    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401


def changes(use):
    """What a use changes."""
    before = look()
    use()
    after = look()
    return {name: [before[name], after[name]] for name in before if before[name] != after[name]}


def main(model, run_file, out):
    torch.set_num_threads(3)
    torch.manual_seed(5)
    logging.basicConfig(level=logging.ERROR)
    found = {"translating": changes(lambda: translate(model))}
    bring_in_what_training_stands_on()
    pages = cleared_pages()
    found["training"] = changes(lambda: train(run_file, out))
    found["pages"] = [pages, cleared_pages()]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
