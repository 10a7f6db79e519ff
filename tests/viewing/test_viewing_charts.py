"""Charts and their scales, from plain numbers."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.viewing.charts import Chart, Series, draw_chart, thin
from transduce.viewing.scales import brief, make_scale

NAN, INFINITE = float("nan"), float("inf")


def chart(*series, **more):
    named = [Series(name, points, style) for style, (name, points) in enumerate(series)]
    return Chart("Loss", "nats", named, "{:.2f}".format, **more)


def drawing(figure):
    """The SVG: its circles as (step, x, y), and its lines."""
    tree = ElementTree.fromstring(re.search(r"<svg.*</svg>", figure, re.S)[0])
    points = [each for each in tree.iter("circle") if each.get("data-step")]
    lines = [each.get("d") for each in tree.iter("path") if each.get("class") == "line"]
    return [(int(each.get("data-step")), float(each.get("cx")), float(each.get("cy"))) for each in points], lines


def rows(figure):
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", figure)]


def test_points_lie_where_they_belong():
    figure = draw_chart(chart(("train", [(0, 0.0), (50, 1.0), (100, 2.0)])), last=100)
    (points, (line,)) = drawing(figure)
    assert points == [(0, 50.0, 186.0), (50, 218.0, 98.0), (100, 386.0, 10.0)]
    assert line == "M50.0 186.0L218.0 98.0L386.0 10.0"


def test_every_value_stands_in_a_table_and_at_its_point():
    figure = draw_chart(chart(("train", [(5, 3.0), (10, 2.0)]), ("dev", [(10, 2.5)])), last=10)
    assert rows(figure) == [["step", "train", "dev"], ["5", "3.00", ""], ["10", "2.00", "2.50"]]
    assert re.findall("<title>(.*?)</title>", figure) == [
        "train, step 5: 3.00",
        "train, step 10: 2.00",
        "dev, step 10: 2.50",
    ]
    assert re.search('aria-label="(Loss.*?)"', figure)[1] == (
        "Loss, nats, over optimizer steps. train: 3.00 at step 5 to 2.00 at step 10; dev: 2.50 at step 10"
    )
    assert "step 10: train 2.00; dev 2.50" in figure


def test_a_single_point_is_a_chart_and_none_is_nothing():
    assert len(drawing(draw_chart(chart(("train", [(1, 3.0)])), last=1))[0]) == 1
    assert draw_chart(chart(("train", []), ("dev", [])), last=1) == ""


def test_what_is_no_number_leaves_a_gap():
    figure = draw_chart(chart(("train", [(1, 1.0), (2, NAN), (3, 3.0), (4, 2.0), (5, INFINITE)])), last=5)
    points, (line,) = drawing(figure)
    assert [step for step, _, _ in points] == [1, 3, 4]
    assert re.findall("[ML]", line) == ["M", "M", "L"]
    assert "Values that are infinite or NaN leave a gap." in figure
    assert ["2", "nan"] in rows(figure)
    nothing = draw_chart(chart(("train", [(1, NAN)])), last=1)
    assert "<svg" not in nothing
    assert ["1", "nan"] in rows(nothing)


def test_the_best_is_pointed_out():
    figure = draw_chart(chart(("dev", [(0, 0.0), (100, 2.0)]), best=(100, 2.0)), last=100)
    assert '<circle class="best" cx="386.0" cy="10.0" r="6"/>' in figure


def test_names_are_text():
    figure = draw_chart(chart(("<b>&", [(1, 1.0)]), ("dev", [(1, 2.0)])), last=1)
    assert "<b>" not in figure
    assert "&lt;b&gt;&amp;" in figure


def test_of_many_points_no_leap_is_lost():
    values = [(step, float(step % 7)) for step in range(5000)]
    values[1234], values[4321] = (1234, 99.0), (4321, NAN)
    few = thin(values)
    assert len(few) < 200
    assert few[0] == values[0]
    assert few[-1] == values[-1]
    assert {1234, 4321} <= {step for step, _ in few}
    assert few == sorted(few)
    figure = draw_chart(chart(("train", values)), last=5000)
    assert f"{len(few):,} of 5,000 points: of each stretch of steps the lowest and the highest." in figure


def test_few_points_stay_as_they_are():
    values = [(step, 0.5) for step in range(160)]
    assert thin(values) == values


@pytest.mark.parametrize(
    ("values", "settings", "ticks"),
    [
        ([3.3, 100.0], {}, [0, 20, 40, 60, 80, 100]),
        ([31.0, 38.0], {}, [30, 32, 34, 36, 38]),
        ([6900.0, 7500.0], {"from_zero": True}, [0, 2000, 4000, 6000, 8000]),
        ([0.0, 2.0], {"whole": True}, [0, 1, 2]),
        ([0.0, 0.0], {"from_zero": True, "whole": True}, [0, 1]),
        ([4.0], {}, [2, 3, 4, 5, 6]),
        ([1.5, 8.4], {"logarithmic": True}, [1, 2, 5, 10]),
        ([0.3, 40.0], {"logarithmic": True}, [0.2, 1, 10, 50]),
        ([1.0, 3.0], {"logarithmic": True}, [1, 1.5, 2, 2.5, 3]),  # they differ too little
        ([0.0, 30.0], {"logarithmic": True, "from_zero": True}, [0, 10, 20, 30]),
    ],
)
def test_scales_have_round_numbers(values, settings, ticks):
    assert make_scale(values, **settings).ticks == pytest.approx(ticks)


@given(
    st.lists(st.floats(-1e100, 1e100), min_size=1),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_value_lies_on_its_scale(values, from_zero, logarithmic, whole):
    scale = make_scale(values, from_zero=from_zero, logarithmic=logarithmic, whole=whole)
    assert 2 <= len(scale.ticks) <= 12
    assert all(-1e-6 <= scale.place(value) <= 1 + 1e-6 for value in values)


def test_a_logarithmic_scale_has_equal_factors_at_equal_distances():
    scale = make_scale([1.0, 100.0], logarithmic=True)
    assert scale.place(10.0) == pytest.approx(0.5)
    assert scale.place(math.sqrt(10)) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0005, "0.0005"), (12.0, "12"), (3500.0, "3.5k"), (2e6, "2M"), (-1e9, "-1G"), (1e-5, "1e-05")],
)
def test_numbers_where_there_is_little_room(value, shown):
    assert brief(value) == shown
