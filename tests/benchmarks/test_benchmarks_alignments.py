import matplotlib.image
import numpy as np
import pytest
import torch

from benchmarks.alignments import draw_alignments, main, name_model, name_weights, weigh_words
from transduce.bundle import Bundle, save_bundle
from transduce.config import GenerationConfig, RecurrentConfig, preset
from transduce.inference import AttentionMaps
from transduce.models import build
from transduce.text import TokenizerPair, learn_bpe

PAIRS = [("tak om runda", "sel brintu"), ("runda tak", "brintu sel om")]


@pytest.fixture(scope="module")
def aligned_models(tmp_path_factory):
    """A recurrent model and a Transformer, untrained, with vocabularies of their own; and one without attention."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(3)
    texts = [text for pair in PAIRS for text in pair]
    recurrent = {"embedding_size": 5, "hidden_size": 7, "attention_size": 11}
    made = {}
    for name, merges in (("recurrent", 270), ("transformer", 263), ("none", 263)):
        tokenizer = learn_bpe(texts, merges)
        size = {"vocab_size": tokenizer.vocab_size}
        if name == "transformer":
            config = preset("base", {"d_model": 12, "d_ff": 17, "heads": 3, "decoder_layers": 2, **size})
        else:
            attention = {"attention": "none"} if name == "none" else {}
            chosen = {key: value for key, value in recurrent.items() if not attention or key != "attention_size"}
            config = RecurrentConfig.model_validate(chosen | attention | size)
        made[name] = folder / name / "best"
        made[name].parent.mkdir()
        save_bundle(Bundle(build(config).eval(), TokenizerPair.of(tokenizer), GenerationConfig()), made[name])
    return made


def test_words_are_weighed_by_hand():
    """Two source words of two tokens and one; the target's first word has two tokens; ends are words of their own."""
    first = np.array([[0.5, 0.1, 0.2, 0.2], [0.1, 0.3, 0.4, 0.2], [0.0, 0.0, 1.0, 0.0]], np.float32)
    maps = AttentionMaps(
        source=("a", "b", "c", "</s>"),
        target=("x", "y", "</s>"),
        read=("<s>", "x", "y"),
        source_words=(0, 0, 1, 2),
        target_words=(0, 0, 1),
        encoder=None,
        decoder=None,
        # The layer before the last one of two, the mean of two heads, of which the second is even.
        cross=np.stack([np.stack([first, np.full_like(first, 0.25)]), np.zeros((2, 3, 4), np.float32)]),
    )
    even = [0.5, 0.25, 0.25]
    expected = [[(own + rest) / 2 for own, rest in zip(row, even, strict=True)] for row in ([0.5, 0.3, 0.2], [0, 1, 0])]
    np.testing.assert_allclose(weigh_words(maps), expected, atol=1e-6)
    assert name_weights(maps) == "layer 1 of 2, mean of 2 heads"


def test_matrices_of_both_models_are_drawn_side_by_side(aligned_models, tmp_path):
    models = [aligned_models["recurrent"], aligned_models["transformer"]]
    drawn = draw_alignments(models, PAIRS, "found", tmp_path)
    assert [[words.shape for words in row] for row in drawn] == [[(3, 4), (3, 4)], [(4, 3), (4, 3)]]
    for words in (words for row in drawn for words in row):
        np.testing.assert_allclose(words.sum(axis=1), 1, atol=1e-5)
    assert not np.allclose(drawn[0][0], drawn[0][1])
    picture = matplotlib.image.imread(tmp_path / "found.png")
    assert picture.shape[1] == 2 * (4 * 34 + 11 * (2 + len("brintu")))  # two matrices of four words
    assert name_model(models[0]) == "recurrent"


def test_more_than_three_models_take_more_rows(aligned_models, tmp_path):
    heights = {}
    for models in (3, 4):
        draw_alignments([aligned_models["transformer"]] * models, PAIRS[:1], "found", tmp_path)
        picture = matplotlib.image.imread(tmp_path / "found.png")
        heights[models] = picture.shape[0]
        assert picture.shape[1] == 3 * (4 * 34 + 11 * (2 + len("brintu")))
    assert heights[4] == 2 * heights[3]


def test_a_model_without_attention_is_named(aligned_models, capsys):
    with pytest.raises(SystemExit):
        main([str(aligned_models["none"]), "--pair", *PAIRS[0]])
    assert "the model has no cross attention; it has none at all" in capsys.readouterr().err
