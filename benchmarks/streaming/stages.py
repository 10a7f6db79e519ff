"""Does what ``transduce translate`` does for one line, and prints when each part of it was done, by the system's clock.

python -m benchmarks.streaming.stages MODEL TEXT
"""

import json
import sys
import time
from pathlib import Path


def main(model: Path, text: str) -> None:
    """Print the parts' names with their ends, as JSON."""
    done: dict[str, float] = {}

    def mark(part: str) -> None:
        done[part] = time.monotonic()

    mark("Python")
    import torch  # noqa: PLC0415 - what it takes to import is the question

    mark("import of torch")
    import transduce.cli.main  # noqa: F401, PLC0415
    from transduce.bundle import load_bundle  # noqa: PLC0415
    from transduce.inference import Translator  # noqa: PLC0415
    from transduce.kernels import resolve_format  # noqa: PLC0415
    from transduce.models import can_run_natively  # noqa: PLC0415
    from transduce.workflows import requests, translate  # noqa: F401, PLC0415

    mark("import of transduce")
    bundle = load_bundle(model)
    mark("reading the model")
    resolve_format("auto", native=can_run_natively(bundle.model), device=torch.device("cpu"))
    mark("choosing the number format")
    translator = Translator(bundle)
    mark("layout")
    translator.translate([text], first_number=None)
    mark("first line")
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
