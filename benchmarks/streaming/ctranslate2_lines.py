"""What ``transduce translate`` does line by line, by CTranslate2 in int8 and our tokenizer: python -m … EXPORTED.

Beam and length penalty are the command's for a model that says nothing else; a line is translated once it is read.
"""

import sys
from pathlib import Path

from benchmarks.decoders.exported import ExportedModel

_EXTRA = 50  # symbols that an output may be longer than its source


def main(exported: Path) -> None:
    """Answer standard input's lines, until it ends."""
    model = ExportedModel(exported, "int8", workers=1, threads=0)
    for line in sys.stdin:
        (source,) = model.tokenizers.source.encode([line.rstrip("\n")])
        (found,) = model.search([source], 4, len(source) + _EXTRA, 1)
        print(*model.tokenizers.target.decode([found.ids]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
