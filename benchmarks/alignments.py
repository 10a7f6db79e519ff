"""What models look at as they write the same sentences: their alignment matrices side by side (docs/rivals.md).

    python -m benchmarks.alignments MODEL MODEL --pair SOURCE TARGET [--pair ...] [--name NAME]

A matrix for each pair and model, whichever architecture it has, the models of a pair side by side, three a row: how
each word of the target weighs those of the source, averaged over the heads of the layer that alignments are read from,
the last but one where there are more. Targets are given, so that all models write the same. Draws
docs/figures/NAME.png; needs the extra ``plot``.
"""

import argparse
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.drawing import AMOUNT, FOLDER, figure
from transduce import load
from transduce.config import BadInputError
from transduce.inference import AttentionMaps

Array = NDArray[np.float64]

END: Final = "</s>"
# Pixels: of a word in a matrix, of a letter beside it, and of a title.
_WORD: Final = 34
_LETTER: Final = 11
_TITLE: Final = 80
_ABREAST: Final = 3  # matrices a row, which a page can show


def weigh_words(maps: AttentionMaps) -> Array:
    """Weights (words of the target, words of the source), the end symbol last on both sides; each row sums to 1.

    A word's row is the mean of its tokens' rows, its column the sum of their columns.

    Raises:
        BadInputError: The model has no attention between them.
    """
    weights = maps.of("cross")
    tokens = weights[max(len(weights) - 2, 0)].mean(axis=0, dtype=np.float64)
    source, target = (np.equal.outer(each, np.unique(each)) for each in (maps.source_words, maps.target_words))
    words: Array = (target / target.sum(axis=0)).T @ tokens @ source
    return words


def name_weights(maps: AttentionMaps) -> str:
    """Which of a model's weights these are."""
    layers, heads, *_ = maps.of("cross").shape
    layer = "" if layers == 1 else f"layer {max(layers - 1, 1)} of {layers}, "
    return f"{layer}{'one head' if heads == 1 else f'mean of {heads} heads'}"


def draw_alignments(
    models: Sequence[Path], pairs: Sequence[tuple[str, str]], name: str, folder: Path = FOLDER
) -> list[list[Array]]:
    """The matrices of each pair, those of each model, as they are drawn into ``folder/NAME.png``."""
    found: list[list[AttentionMaps]] = [[] for _ in pairs]
    for model in models:
        translator = load(model, "float32")
        for row, pair in zip(found, pairs, strict=True):
            row.append(translator.attend(*pair))
    drawn = [[weigh_words(maps) for maps in row] for row in found]
    sources, targets = ([[*side.split(), END] for side in sides] for sides in zip(*pairs, strict=True))
    # On each side of a matrix, room for its longest word; those above it are turned.
    beside = _LETTER * (2 + max(len(word) for words in targets for word in words))
    above = _LETTER * max(len(word) for words in sources for word in words)
    columns, rows = min(len(models), _ABREAST), -(-len(models) // _ABREAST)
    width = columns * (_WORD * max(map(len, sources)) + beside)
    height = rows * sum(_WORD * len(words) + above + _TITLE for words in targets)
    with figure(name, width, height, folder) as canvas:
        heights = [len(words) for words in targets for _ in range(rows)]
        panels = canvas.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
        for number, matrices in enumerate(drawn):
            places = panels[number * rows : (number + 1) * rows].flat
            for axes, matrix, model, maps in zip_longest(places, matrices, models, found[number]):
                if matrix is None:
                    axes.set_axis_off()
                    continue
                _draw(axes, matrix, sources[number], targets[number])
                axes.set_title(f"{name_model(model)}\n{name_weights(maps)}")
    return drawn


def _draw(axes: Axes, matrix: Array, source: Sequence[str], target: Sequence[str]) -> None:
    axes.imshow(matrix, cmap=AMOUNT, vmin=0, vmax=1)
    axes.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(True)


def name_model(path: Path) -> str:
    """What a run or a model directory is called; a run's best model is called as the run."""
    return path.parent.name if path.name == "best" else path.name


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    parser.add_argument("--pair", nargs=2, action="append", required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--name", default="alignments", help="of the picture in docs/figures")
    chosen = parser.parse_args(arguments)
    try:
        draw_alignments(chosen.models, [(source, target) for source, target in chosen.pair], chosen.name)
    except BadInputError as error:
        parser.error(str(error))
    print(FOLDER / f"{chosen.name}.png")


if __name__ == "__main__":
    main()
