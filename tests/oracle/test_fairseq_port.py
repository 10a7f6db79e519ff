"""A checkpoint in fairseq's layout against its port in ``transformers`` with the same weights."""

import pytest
import torch

from tests.interop.test_interop_fairseq import SOURCE, TARGET, check, write
from tests.plain_transformer import D_FF, D_MODEL, DECODER_LAYERS, ENCODER_LAYERS, HEADS, SOURCES, TARGETS


def test_as_its_port_in_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the oracle is missing: pip install 'transduce[dev]'")
    torch.manual_seed(1)
    config = transformers.FSMTConfig(
        langs=["de", "en"],
        src_vocab_size=SOURCES,
        tgt_vocab_size=TARGETS,
        d_model=D_MODEL,
        encoder_layers=ENCODER_LAYERS,
        decoder_layers=DECODER_LAYERS,
        encoder_ffn_dim=D_FF,
        decoder_ffn_dim=D_FF,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    port = transformers.FSMTForConditionalGeneration(config).eval()
    for name, parameter in port.named_parameters():
        if "embed_positions" not in name:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    stored = {name.removeprefix("model."): each for name, each in port.state_dict().items()}
    path = write(tmp_path, {name: each for name, each in stored.items() if "embed_positions" not in name})
    with torch.no_grad():
        expected = port(torch.tensor([SOURCE]), decoder_input_ids=torch.tensor([TARGET]), use_cache=False).logits[0]
    bundle = check(path, expected)
    assert (bundle.config.dropout, bundle.config.sinusoid_start) == (0.3, 2)
    assert (bundle.generation.beam_size, bundle.generation.length_penalty_kind) == (5, "marian")
