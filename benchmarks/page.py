"""Pages of docs/ that carry what a script printed, between two comments that readers do not see."""

import datetime
import re
from pathlib import Path
from typing import Final

import torch

from benchmarks.peers.machine import describe_machine

DOCS: Final = Path(__file__).parents[1] / "docs"


def insert(page: str, name: str, lines: list[str]) -> None:
    """Put the lines between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` of a page of docs/, and print them.

    Raises:
        ValueError: The page has no such place, or several.
    """
    print("\n".join(lines), end="\n\n")
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    path = DOCS / page
    place = re.compile(f"{re.escape(first)}.*?{re.escape(last)}", re.DOTALL)
    text, found = place.subn(lambda _: "\n".join([first, "", *lines, "", last]), path.read_text(encoding="utf-8"))
    if found != 1:
        raise ValueError(f"{path}: {found} places for {name!r}: have one line {first!r} and one {last!r} below it")
    path.write_text(text, encoding="utf-8")


def circumstances() -> str:
    """On what processor and when figures were made."""
    machine, threads = describe_machine(torch.device("cpu")), torch.get_num_threads()
    return f"{machine}, threads: {threads}, torch {torch.__version__}, {datetime.date.today()}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]
