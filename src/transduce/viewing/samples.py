"""How the outputs for some sentences changed in the course of a training, as tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, Final, final

from transduce.viewing.page import escape

_MOST: Final = 40  # outputs of a sentence that are shown
_WORDS: Final = re.compile(r"[^\s\u2e80-\uffff]+|.", re.DOTALL)  # where no spaces part words, a character is one
_LONGEST: Final = 500  # words and spaces of outputs in which changes are looked for: it takes the square of them


@final
@dataclass(frozen=True)
class _Sentence:
    """A sentence of dev, and what was written for it at which step: by the model, and by means of checkpoints."""

    source: str
    reference: str
    outputs: dict[str, list[tuple[int, str]]] = field(default_factory=dict)


def draw_samples(lines: Iterable[Mapping[str, Any]]) -> str:
    """A table for each sentence of the ``samples`` of metrics; nothing where there are none."""
    sentences = _gather(lines)
    return "".join(_draw(number, each, is_open=number == 1) for number, each in enumerate(sentences, 1))


def _gather(lines: Iterable[Mapping[str, Any]]) -> list[_Sentence]:
    found: dict[tuple[str, str], _Sentence] = {}
    for line in lines:
        samples = line.get("samples")
        for each in samples if isinstance(samples, list) else ():
            match each:
                case {"source": str(source), "reference": str(reference), "output": str(output)}:
                    sentence = found.setdefault((source, reference), _Sentence(source, reference))
                    writer = f"mean of {line['average']} checkpoints" if "average" in line else "the model"
                    sentence.outputs.setdefault(writer, []).append((line["step"], output))
                case _:
                    pass  # not as we write it
    return [*found.values()]


def _draw(number: int, sentence: _Sentence, *, is_open: bool) -> str:
    groups = "".join(_group(writer, outputs, len(sentence.outputs) > 1) for writer, outputs in sentence.outputs.items())
    source = escape(sentence.source)
    return (
        f'<details class="sample"{" open" if is_open else ""}><summary dir="auto">{number}. {source}</summary>'
        f'<table><caption class="hidden">Outputs for sentence {number}, by step</caption>'
        '<thead><tr><th scope="col">step</th><th scope="col">output</th></tr></thead>'
        f'<tbody class="reference"><tr><th scope="row">reference</th><td dir="auto">{escape(sentence.reference)}</td>'
        f"</tr></tbody>{groups}</table></details>"
    )


def _group(writer: str, outputs: Sequence[tuple[int, str]], named: bool) -> str:
    """What one of the models wrote, the same in a row only once."""
    rows, before = [], None
    runs = [[*run] for _, run in groupby(outputs, key=lambda each: each[1])]
    few = [runs[round(index * (len(runs) - 1) / (_MOST - 1))] for index in range(_MOST)]  # evenly spread
    shown = few if len(runs) > _MOST else runs
    for run in shown:
        (first, output), last = run[0], run[-1][0]
        steps = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        rows.append(f'<tr><th scope="row">{steps}</th><td dir="auto">{_mark(before, output)}</td></tr>')
        before = output
    title = f'<tr><th scope="rowgroup" colspan="2">{escape(writer)}</th></tr>' if named else ""
    if len(shown) < len(runs):
        rows.append(f'<tr><td colspan="2" class="faint">{len(shown)} of {len(runs):,} different outputs</td></tr>')
    return f"<tbody>{title}{''.join(rows)}</tbody>"


def _mark(before: str | None, output: str) -> str:
    """An output, with what is new in it since the one before."""
    if not output.strip():
        return '<span class="faint">(empty)</span>'
    old, new = _WORDS.findall(before or ""), _WORDS.findall(output)
    if before is None or max(len(old), len(new)) > _LONGEST:
        return escape(output)
    parts = []
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        text = escape("".join(new[start:end]))
        parts.append(f"<ins>{text}</ins>" if kind in ("insert", "replace") and text.strip() else text)
    return "".join(parts)
