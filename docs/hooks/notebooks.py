"""Notebooks as pages: their text, their code, and what of their output is kept in them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def to_markdown(notebook: str) -> str:
    """A notebook's cells, in their order; pictures stay within the page."""
    parts = [part for cell in json.loads(notebook)["cells"] for part in _cell(cell)]
    return "\n\n".join(parts) + "\n"


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        shown = output.get("data", {})
        if "image/png" in shown:
            yield f"![what the cell draws](data:image/png;base64,{''.join(shown['image/png']).replace(chr(10), '')})"
        elif text := "".join(output.get("text", shown.get("text/plain", ""))).rstrip():
            yield f"```text\n{text}\n```"
