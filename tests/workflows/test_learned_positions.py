"""What a model with learned positions can read and write ends with them, and whoever goes beyond is told where."""

import re

import pytest
import torch

from transduce.bundle import Bundle
from transduce.cli import main
from transduce.config import BadInputError, GenerationConfig, preset, read_run
from transduce.inference import Translator
from transduce.models import build
from transduce.text import TokenizerPair, learn_bpe
from transduce.workflows.prepare import prepare
from transduce.workflows.run_directory import RunDirectory
from transduce.workflows.train import train_run

pytest_plugins = ["tiny_run"]

POSITIONS = 13
LEARNED = ['model.positions="learned"', f"model.max_positions={POSITIONS}", f"data.max_length={POSITIONS}"]


@pytest.fixture
def bundle():
    """A new model, which has learned no end yet."""
    torch.manual_seed(3)
    tokenizer = learn_bpe(["bamo dulu fepi gozu kari"] * 3, 300)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 14, "d_ff": 22, "heads": 2}
    config = preset(
        "base", {**sizes, "vocab_size": tokenizer.vocab_size, "positions": "learned", "max_positions": POSITIONS}
    )
    return Bundle(build(config).eval(), TokenizerPair.of(tokenizer), GenerationConfig(max_extra_length=97))


@pytest.fixture
def translator(bundle):
    return Translator(bundle, "float32")


def letters(bundle, symbols):
    """A text of so many symbols, end symbol included."""
    text = "q" * symbols
    ids = bundle.tokenizers.source.encode([text])[0]
    return bundle.tokenizers.source.decode([ids[: symbols - 1]])[0]


def test_the_longest_source_is_read_and_a_longer_one_refused_by_its_number(translator, bundle):
    longest, longer = letters(bundle, POSITIONS), letters(bundle, POSITIONS + 1)
    assert len(bundle.tokenizers.source.encode([longer])[0]) == POSITIONS
    assert len(translator.translate([longest, "", "bamo"])) == 3
    message = f"text 7: {POSITIONS + 1} symbols with the end symbol, but the model has learned {POSITIONS} positions"
    with pytest.raises(BadInputError, match=re.escape(message)):
        translator.translate(["bamo", longest, longer], first_number=5)


def test_white_space_alone_is_never_too_long(translator):
    assert translator.translate([" " * 997, "\t" * 997, "bamo"])[:2] == translator.translate(["", ""])


def test_paragraphs_may_be_longer_than_their_sentences(translator):
    pytest.importorskip("sentencex")
    text = " ".join(["Bamo dulu qqq."] * 5)
    with pytest.raises(BadInputError, match="text 1: "):
        translator.translate([text])
    assert len(translator.translate([text], paragraphs=True)) == 1
    with pytest.raises(BadInputError, match=r"'Qqqqqqqqqqqqqqqqqq\.': "):  # it is the sixth sentence, but no sixth text
        translator.translate([f"{text} Qqqqqqqqqqqqqqqqqq."], paragraphs=True)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_end_where_the_positions_do(translator, bundle, beam_size, caplog):
    """The begin symbol takes the first position, and the end symbol is never read."""
    found = translator.translate(["bamo", letters(bundle, POSITIONS)], beam_size=beam_size)
    lengths = [len(each.tokens) + 1 for each in found]
    assert max(lengths) == POSITIONS
    assert [each.at_limit for each in found] == [length == POSITIONS for length in lengths]
    assert "length limit" in caplog.text


def test_scoring_refuses_what_is_too_long_on_either_side(translator, bundle):
    longest, longer = letters(bundle, POSITIONS), letters(bundle, POSITIONS + 1)
    assert translator.score([longest], [longest])[0] < 0
    for source, target, side in ((longer, "ti", "source"), ("bamo", longer, "target")):
        with pytest.raises(BadInputError, match=f"{side} 2: 14 symbols"):
            translator.score(["bamo", source], ["ti", target])


def long_dev(tiny_run_file, tmp_path):
    """The tiny run with a dev set whose third source is 17 unknown letters long."""
    text = tiny_run_file.read_text().replace('"train', f'"{tiny_run_file.parent}/train')
    (tmp_path / "run.toml").write_text(text)
    (tmp_path / "dev.src").write_text(f"bamo\ndulu\n{'q' * 17}\n")
    (tmp_path / "dev.trg").write_text("ti\nsor\nnal\n")
    return tmp_path / "run.toml"


def test_a_dev_line_beyond_them_is_refused_where_it_stands(tiny_run_file, tmp_path, capsys):
    path = long_dev(tiny_run_file, tmp_path)
    settings = [part for setting in LEARNED for part in ("--set", setting)]
    assert main._run(["prepare", str(path), "--out", str(tmp_path / "run"), *settings]) == 2
    message = "line 3: 19 symbols with the end symbol are more than the learned positions (model.max_positions = 13)"
    assert message in capsys.readouterr().err


def test_a_dev_line_is_refused_too_where_it_was_prepared_for_another_model(tiny_run_file, tmp_path):
    path, run = long_dev(tiny_run_file, tmp_path), RunDirectory(tmp_path / "run")
    prepare(read_run(path, LEARNED[2:]), run)
    with pytest.raises(BadInputError, match=r"line 3: .* more than the learned positions"):
        prepare(read_run(path, LEARNED), run)
    assert prepare(read_run(path, [*LEARNED[:1], "model.max_positions=19", LEARNED[2]]), run).dev


def test_bpe_dropout_leaves_lines_whole_that_would_outgrow_them(tiny_run_file, tmp_path):
    """Without merges, words are letters: at 99%, most lines are longer than 13 symbols."""
    settings = [*LEARNED, "tokenizer.bpe_dropout=0.99", "train.max_steps=3", "train.batch_tokens=2000"]
    assert train_run(read_run(tiny_run_file, settings), RunDirectory(tmp_path / "run"), resume=False).step == 3
