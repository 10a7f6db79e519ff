from itertools import combinations

import pytest

from transduce.config import PRESETS, PUBLISHED, TABLE3, VARIATIONS, scale_preset, scale_steps

# By hand: tiny has 4 layers for base's 6, d_model 128 for 512, d_ff 256 for 2048, 4 heads for 8, of width 32 for 64.
SCALED = {
    "base": {},
    "table3-a-h1": {"heads": 1, "d_k": 128, "d_v": 128},  # half a head is one
    "table3-a-h4": {"heads": 2, "d_k": 64, "d_v": 64},
    "table3-a-h16": {"heads": 8, "d_k": 16, "d_v": 16},
    "table3-a-h32": {"heads": 16, "d_k": 8, "d_v": 8},
    "table3-b-dk16": {"d_k": 8},
    "table3-b-dk32": {"d_k": 16},
    "table3-c-n2": {"encoder_layers": 1, "decoder_layers": 1},  # 4/3
    "table3-c-n4": {"encoder_layers": 3, "decoder_layers": 3},  # 8/3
    "table3-c-n8": {"encoder_layers": 5, "decoder_layers": 5},  # 16/3
    "table3-c-d256": {"d_model": 64, "d_k": 16, "d_v": 16},
    "table3-c-d1024": {"d_model": 256, "d_k": 64, "d_v": 64},
    "table3-c-ff1024": {"d_ff": 128},
    "table3-c-ff4096": {"d_ff": 512},
    "table3-d-drop0.0": {"dropout": 0.0, "embedding_dropout": 0.0},
    "table3-d-drop0.2": {"dropout": 0.2, "embedding_dropout": 0.2},
    "table3-d-ls0.0": {"label_smoothing": 0.0},
    "table3-d-ls0.2": {"label_smoothing": 0.2},
    "table3-e": {"positions": "learned"},
    "big": {"d_model": 256, "d_ff": 512, "heads": 8, "dropout": 0.3, "embedding_dropout": 0.3},
    # Half the heads, a quarter of the keys, as of d_model; the heads together are an eighth as wide, as is d_ff.
    "aop1": {
        **{"feed_forward": "parameter_attention", "parameter_heads": 4, "parameter_keys": 384},
        **{"parameter_d_k": 16, "parameter_d_v": 16},
    },
    "aop2": {
        **{"feed_forward": "parameter_attention", "parameter_heads": 8, "parameter_keys": 128},
        **{"parameter_d_k": 16, "parameter_d_v": 16},
    },
}


@pytest.mark.parametrize("name", SCALED)
def test_a_row_changes_tiny_as_it_changes_base(name):
    assert scale_preset(name).model_dump() == {**PRESETS["tiny"].model_dump(), **SCALED[name]}


def test_scaled_to_base_itself_every_row_is_its_preset():
    assert all(scale_preset(row.preset, "base") == PRESETS[row.preset] for row in VARIATIONS)


def test_no_two_rows_become_one():
    scaled = [scale_preset(row.preset) for row in VARIATIONS]
    assert all(one != other for one, other in combinations(scaled, 2))


def test_the_table_has_every_row_once_base_first():
    assert [row.preset for row in VARIATIONS] == list(SCALED)
    names = [row.preset for row in TABLE3]
    assert names == list(SCALED)[:-2]
    assert set(names) == {"base", "big", *(name for name in PUBLISHED if name.startswith("table3"))}


def test_only_big_is_trained_longer():
    assert [scale_steps(row.preset, 700) for row in TABLE3] == [700] * 19 + [2100]


def test_the_figures_say_what_the_text_of_the_paper_says():
    rows = {row.preset: row for row in TABLE3}
    heads = [row.bleu for row in TABLE3 if row.part in ("base", "(A)")]
    # Section 6.2: one head is 0.9 BLEU worse than the best, and too many are worse too.
    assert max(heads) - rows["table3-a-h1"].bleu == pytest.approx(0.9)
    assert rows["table3-a-h32"].bleu < rows["table3-a-h16"].bleu
    # Section 5.4: label smoothing hurts perplexity, but improves BLEU.
    assert rows["table3-d-ls0.0"].perplexity < rows["base"].perplexity < rows["table3-d-ls0.2"].perplexity
    assert rows["table3-d-ls0.0"].bleu < rows["base"].bleu
    assert max(TABLE3, key=lambda row: row.bleu) == min(TABLE3, key=lambda row: row.perplexity) == rows["big"]
    assert {part: sum(row.part == part for row in TABLE3) for part in ("(A)", "(B)", "(C)", "(D)", "(E)")} == {
        "(A)": 4, "(B)": 2, "(C)": 7, "(D)": 4, "(E)": 1,
    }  # fmt: skip


def test_attention_over_parameters_is_beside_base_as_its_text_says():
    base, first, second = TABLE3[0], VARIATIONS[-2], VARIATIONS[-1]
    assert first.bleu < base.bleu < second.bleu
    assert second.perplexity < first.perplexity == base.perplexity
