"""Marian's translator as a process of its own, which ends with its standard input; it imports nothing of ours.

Its first argument are Marian's options. A line of input is a list of lines to translate and what is otherwise for them,
in JSON; a line of output their translations.
"""

import json
import os
import sys


def main() -> None:
    """Translate until there is no more input."""
    import _pymarian  # noqa: PLC0415 - where it is missing, the message is this process's last one

    # What Marian itself says goes elsewhere.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    translator = _pymarian.Translator(sys.argv[1])
    for line in sys.stdin:
        lines, settings = json.loads(line)
        answers.write(json.dumps(translator.translate(lines, **settings)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
