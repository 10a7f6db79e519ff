"""Verdicts by hand on made-up figures of a few rows."""

import math

import pytest

from transduce.lab.measurement import Measurement
from transduce.lab.table3 import make_lines
from transduce.lab.table3_conclusions import CONCLUSIONS, judge, to_markdown


def trainings(*figures):
    return [
        Measurement(
            seed=seed,
            steps=30,
            target_tokens=7,
            seconds=90.0,
            parameters=2_340_000,
            perplexity=math.exp(loss),
            bleu=bleu,
            signature="tok:13a",
            precision="float32",
            machine="abacus",
            versions={},
        )
        for seed, (loss, bleu) in enumerate(figures, 1)
    ]


def judged(runs):
    return {
        (each.conclusion.preset, each.conclusion.measure): each
        for each in judge(make_lines(10, lambda n: runs.get(n, [])))
    }


def test_a_difference_is_held_against_the_95_percent_interval_of_all_rows_together():
    runs = {
        "base": trainings((1.0, 20.0), (1.0, 22.0)),
        "table3-a-h1": trainings((1.0, 10.0), (1.0, 18.0)),
        "table3-a-h32": trainings((1.0, 19.0)),
        "table3-e": trainings((1.0, 24.0)),
        "aop2": trainings((1.0, -3.0)),
    }
    found = judged(runs)
    # Two degrees of freedom, of which t is 4.303, squares 1 + 1 and 16 + 16: a variance of 17.
    assert found["table3-a-h1", "bleu"].ours.interval == pytest.approx(4.303 * math.sqrt(17 * (1 / 2 + 1 / 2)))
    assert found["table3-a-h32", "bleu"].ours.interval == pytest.approx(4.303 * math.sqrt(17 * (1 + 1 / 2)))
    assert {preset: found[preset, "bleu"].ours.mean for preset in list(runs)[1:]} == {
        **{"table3-a-h1": -7, "table3-a-h32": -2, "table3-e": 3, "aop2": -24},
    }
    verdicts = {preset: found[preset, "bleu"].verdict for preset in list(runs)[1:]}
    # 17.7 and 21.7; the paper has aop2 above base, and noise does not make learned positions alike.
    assert verdicts == {
        **{"table3-a-h1": "undecided", "table3-a-h32": "undecided", "table3-e": "undecided", "aop2": "does not"},
    }


def test_with_less_noise_the_same_differences_are_decided():
    runs = {
        "base": trainings((1.0, 20.0), (1.1, 20.2)),
        "table3-a-h1": trainings((1.0, 13.0), (1.0, 13.0)),
        "table3-e": trainings((1.0, 23.0)),
        "table3-c-n2": trainings((2.0, 20.0)),
        "table3-c-n8": trainings((math.inf, 0.0)),
    }
    found = judged(runs)
    assert found["table3-a-h1", "bleu"].verdict == "holds"
    assert found["table3-e", "bleu"].verdict == "does not"
    assert found["table3-c-n2", "loss"].verdict == "holds"
    assert found["table3-c-n8", "loss"].verdict == "does not"  # more layers diverged, where the paper has less loss


@pytest.mark.parametrize(
    ("learned", "verdict"), [(20.3, "holds"), (20.6, "undecided"), (21.2, "undecided"), (21.6, "does not")]
)
def test_a_row_is_alike_where_its_whole_interval_is_within_what_one_head_costs_in_the_paper(learned, verdict):
    """The interval is 0.53: two degrees of freedom, squares 0.02 and 0."""
    runs = {
        "base": trainings((1.0, 20.0), (1.0, 20.2)),
        "table3-a-h1": trainings((1.0, 13.0), (1.0, 13.0)),
        "table3-e": trainings((1.0, learned)),
    }
    found = judged(runs)["table3-e", "bleu"]
    assert found.ours.interval == pytest.approx(0.53, abs=0.005)
    assert found.verdict == verdict


def test_what_is_not_known_is_said():
    found = judged({"base": trainings((1.0, 20.0)), "aop1": trainings((1.0, 19.0))})
    assert (found["aop1", "bleu"].verdict, found["aop1", "bleu"].ours.interval) == ("one seed", None)
    assert (found["aop2", "bleu"].verdict, found["aop2", "bleu"].ours) == ("not run", None)
    assert {each.verdict for each in judged({"aop1": trainings((1.0, 19.0))}).values()} == {"not run"}


def test_the_paper_s_own_table_says_what_is_claimed_of_it():
    """Worse is more loss or less BLEU; every claim is about worse or better, or that there is no difference."""
    found = judge(make_lines(10, lambda _: []))
    for each in found:
        better = each.paper < 0 if each.conclusion.measure == "loss" else each.paper > 0
        removed = each.conclusion.preset in {"table3-c-d1024", "table3-c-ff4096", "table3-c-n8", "big", "aop2"}
        if each.conclusion.alike:
            assert abs(each.paper) < 0.2
        elif each.conclusion.claim.startswith("label smoothing hurts"):
            assert better  # base smooths, the row does not
        else:
            assert better == removed
    assert len(to_markdown(found).splitlines()) == len(CONCLUSIONS) + 2
