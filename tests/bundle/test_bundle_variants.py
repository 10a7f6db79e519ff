"""Every kind of model survives its directory."""

import torch

from transduce.bundle import Bundle, load_bundle, save_bundle
from transduce.config import GenerationConfig, preset
from transduce.models import Tokens, build
from transduce.text import TokenizerPair, learn_bpe

pytest_plugins = ["model_variants"]

SIZES = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 28, "d_ff": 44, "heads": 4}


@torch.no_grad()
def test_what_is_loaded_is_what_was_saved(variant, tmp_path):
    torch.manual_seed(3)
    tokenizer = learn_bpe(["the cat sat on the mat"] * 3, 277)
    model = build(preset("base", {**SIZES, **variant, "vocab_size": tokenizer.vocab_size})).eval()
    save_bundle(Bundle(model, TokenizerPair.of(tokenizer), GenerationConfig()), tmp_path / "model")
    loaded = load_bundle(tmp_path / "model").model
    assert loaded.config == model.config
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys() == dict(model.named_parameters()).keys()  # nothing is saved that follows
    assert all(after[name].equal(tensor) for name, tensor in before.items())
    tokens = Tokens(torch.tensor([[5, 7, 11, 2], [13, 2, 0, 0]]), torch.tensor([4, 2]))
    assert loaded(tokens, tokens, tokens.ids).objective.equal(model(tokens, tokens, tokens.ids).objective)
