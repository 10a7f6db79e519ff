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
    import torch  # noqa: F401, PLC0415 - what it takes to import is the question

    mark("import of torch")
    import transduce.cli.main  # noqa: F401, PLC0415
    from transduce.inference import load  # noqa: PLC0415
    from transduce.workflows import requests, translate  # noqa: F401, PLC0415

    mark("import of transduce")
    translator = load(model, "int8")
    mark("reading and packing")
    translator.translate([text], first_number=None)
    mark("first line")
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
