from transduce.config import PRESETS
from transduce.lab.parameter_counts import Row, compare_table3, fitting_vocabularies


def _by_hand(preset, vocabulary):
    """Section 3, with one matrix for both sides and the output."""
    config = PRESETS[preset]
    d, attention = config.d_model, 2 * config.d_model * config.heads * (config.d_k + config.d_v)
    feed_forward, norm = 2 * d * config.d_ff + config.d_ff + d, 2 * d
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    return config.encoder_layers * (encoder + decoder) + vocabulary * d


def test_the_rows_by_hand():
    facts = compare_table3()
    for row in facts["rows"]:
        for size, key, off in (
            (37_000, "parameters", "millions_off"),
            (facts["fitting_vocabulary"], "fitting_parameters", "fitting_millions_off"),
        ):
            assert row[key] == _by_hand(row["preset"], size)
            assert row[off] == round(row[key] / 1e6) - row["paper_millions"]


def test_they_are_the_papers():
    assert [(row["preset"], row["paper_millions"]) for row in compare_table3()["rows"]] == [
        ("base", 65),
        ("table3-b-dk16", 58),
        ("table3-b-dk32", 60),
        ("table3-c-n2", 36),
        ("table3-c-n4", 50),
        ("table3-c-n8", 80),
        ("table3-c-d256", 28),
        ("table3-c-d1024", 168),
        ("table3-c-ff1024", 53),
        ("table3-c-ff4096", 90),
        ("big", 213),
    ]


def test_the_fitting_vocabularies_are_the_best_of_all():
    """Every size from 30,000 to 50,000, one after another."""
    facts = compare_table3()
    printed = {row["preset"]: row["paper_millions"] for row in facts["rows"]}
    fixed = {preset: _by_hand(preset, 0) for preset in printed}
    matches = {
        size: sum(
            round((fixed[preset] + size * PRESETS[preset].d_model) / 1e6) == count for preset, count in printed.items()
        )
        for size in range(30_000, 50_000)
    }
    most = max(matches.values())
    best = [size for size, count in matches.items() if count == most]
    assert facts["fitting_vocabularies"] == [best[0], best[-1]]
    assert best[0] <= facts["fitting_vocabulary"] <= best[-1]
    assert most == sum(row["fitting_millions_off"] == 0 for row in facts["rows"]) == 10


def test_where_a_row_begins_and_ends_to_match():
    """3 million printed, 1 million fixed, 10 for each symbol: from 2.5 million to just below 3.5."""
    row = Row("a", printed=3, fixed=1_000_000, per_symbol=10)
    assert row.matching == (150_000, 249_999)
    assert [row.off(size) for size in (149_999, 150_000, 249_999, 250_000)] == [-1, 0, 0, 1]


def test_most_rows_decide():
    """Ranges 10 to 29, 20 to 39 and 35 to 54: two overlap from 20 to 29, two from 35 to 39; the first is taken."""
    rows = [Row("a", 1, 500_000 - first * 50_000, 50_000) for first in (10, 20, 35)]
    assert [row.matching for row in rows] == [(10, 29), (20, 39), (35, 54)]
    assert fitting_vocabularies(rows) == (20, 29)
    assert fitting_vocabularies([*rows, rows[2]]) == (35, 39)
