"""A model that has learned its positions reads and writes no more of them, and says so."""

import pytest
import torch

from transduce.bundle import Bundle, save_bundle
from transduce.cli import main
from transduce.config import BadInputError, GenerationConfig, TransformerConfig
from transduce.inference import Translator
from transduce.models import build
from transduce.text import TokenizerPair, learn_tokenizer

KNOWN = 7  # six words and the end symbol
GOOD, LONG = "a b a b a b", "a b a b a b a"


@pytest.fixture(scope="module")
def bundle():
    torch.manual_seed(3)
    tokenizer = learn_tokenizer("words", ["a b"], 11)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 10, "d_ff": 13, "heads": 5}
    config = TransformerConfig(**sizes, positions="learned", max_positions=KNOWN, vocab_size=tokenizer.vocab_size)
    model = build(config)
    a, b = tokenizer.encode(["a b"])[0]
    with torch.no_grad():  # one of the two always scores above the end symbol: an output never ends by itself
        model.embedding.weight[b] = -model.embedding.weight[a]
        model.embedding.weight[tokenizer.special.end] = 0
    return Bundle(model, TokenizerPair.of(tokenizer), GenerationConfig(beam_size=1))


@pytest.fixture(scope="module")
def limited(bundle):
    return Translator(bundle, "float32")


def test_a_text_too_long_is_named(limited):
    assert len(limited.translate([GOOD], first_number=None)) == 1
    with pytest.raises(BadInputError, match=r"^text 42: 8 symbols .* learned 7 positions .*: split it"):
        limited.translate([GOOD, LONG], first_number=41)


@pytest.mark.parametrize(("source", "target", "named"), [(GOOD, LONG, "target"), (LONG, GOOD, "source")])
def test_the_side_of_a_pair_that_is_too_long_is_named(limited, source, target, named):
    assert len(limited.score([GOOD], [GOOD])) == 1
    with pytest.raises(BadInputError, match=f"^{named} 42: 8 symbols .* learned 7 positions .*: leave the pair out"):
        limited.score([GOOD, source], [GOOD, target], first_number=41)


def test_score_names_the_line_of_the_file(bundle, tmp_path, capsys, monkeypatch):
    """The verb reads so many lines at a time; the number is the file's."""
    monkeypatch.setattr("transduce.cli.score._LINES_AT_A_TIME", 3)
    save_bundle(bundle, tmp_path / "model")
    (tmp_path / "source").write_text(f"{GOOD}\n" * 5)
    (tmp_path / "target").write_text(f"{GOOD}\n" * 4 + f"{LONG}\n")
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert main._run(["score", str(tmp_path / "model"), *files]) == 1
    shown = capsys.readouterr()
    assert [line == "nan" for line in shown.out.splitlines()] == [False] * 4 + [True]
    assert shown.err.startswith("warning: target 5: 8 symbols")
    assert shown.err.splitlines()[1] == "error: 1 of 5 lines have no score (nan stands for each): line 5"


def test_an_output_cut_at_the_last_position_is_named_with_the_reason(limited, caplog):
    (output,) = limited.translate([GOOD])
    assert (len(output.tokens), output.at_limit) == (KNOWN - 1, True)
    assert "beyond the 7 positions that this model has learned" in caplog.messages[0]
