import math

import numpy as np
import pytest

from benchmarks.drawing import FOLDER
from benchmarks.figures import FIGURES, penalty, smoothed_target
from benchmarks.page import DOCS


def test_the_smoothed_target_by_hand():
    expected = np.array([[0.02, 0.02, 0.92, 0.02, 0.02], [0.92, 0.02, 0.02, 0.02, 0.02]])
    np.testing.assert_allclose(smoothed_target([2, 0], 5, 0.1), expected, atol=1e-6)


def test_the_penalty_is_least_where_the_model_says_what_the_target_says():
    probabilities = np.linspace(0.01, 0.99, 99)
    np.testing.assert_allclose(penalty(probabilities, 7, 0.0), -np.log(probabilities), rtol=1e-4)
    smoothing, symbols = 0.35, 7
    losses = penalty(probabilities, symbols, smoothing)
    assert probabilities[losses.argmin()] == pytest.approx(1 - smoothing + smoothing / symbols)
    spread = smoothing / symbols  # what the target gives to each of the others
    at_the_least = -0.7 * math.log(0.7) - 6 * spread * math.log(spread)
    assert losses.min() == pytest.approx(at_the_least, rel=1e-5)


def test_every_figure_is_there_and_is_shown_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    drawn = {path.name for path in FOLDER.glob("*.png")}
    assert {f"{name}.png" for name in FIGURES} <= drawn
    assert [name for name in sorted(drawn) if f"{name})" not in pages] == []
