"""Folders as ``transformers`` writes them: tiny MarianMT models of random weights with two SentencePiece models."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from tests.two_spm import SIDES, pieces_of
from transduce.interop.marianmt import NAMES
from transduce.interop.renumbering import Renumbering
from transduce.models import Tokens, Transformer

CODE: Final = ">>fra<<"
# Not the models' own defaults: nothing is found by chance.
SETTINGS: Final[dict[str, Any]] = {
    "encoder_layers": 2,
    "decoder_layers": 3,
    "d_model": 20,
    "encoder_ffn_dim": 28,
    "decoder_ffn_dim": 28,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 5,
    "activation_function": "swish",
    "scale_embedding": True,
    "max_position_embeddings": 128,
    "dropout": 0.1,
}


def vocabulary(spm: Path, sides: tuple[str, ...] = SIDES, left_out: tuple[str, ...] = ()) -> dict[str, int]:
    """As OPUS-MT has it: the end and the unknown symbol first, the padding last, and no room for ours."""
    pieces = dict.fromkeys(piece for side in sides for piece in pieces_of(spm / f"{side}.spm"))
    names = ["</s>", "<unk>", *(each for each in pieces if each not in left_out), CODE, "<pad>"]
    return {name: index for index, name in enumerate(names)}


def write(
    folder: Path,
    spm: Path,
    *,
    own: bool = False,
    left_out: tuple[str, ...] = (),
    generation: dict[str, Any] | None = None,
    bias: bool = True,
    **changes: Any,
) -> Any:
    """Make a random model, write it, and give it back; ``own`` gives each side a vocabulary of its own."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is missing: pip install 'transduce[interop]'"
    )
    folder.mkdir(parents=True, exist_ok=True)
    sides = [SIDES[:1], SIDES[1:]] if own else [SIDES]
    ids = [vocabulary(spm, each, left_out) for each in sides]
    for name, each in zip(("vocab.json", "target_vocab.json"), ids, strict=False):
        (folder / name).write_text(json.dumps(each))
    for side in SIDES:
        shutil.copy(spm / f"{side}.spm", folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "separate_vocabs": own, "model_max_length": 128})
    )
    size, pad = len(ids[-1]), ids[-1]["<pad>"]
    config = transformers.MarianConfig(
        **{
            **SETTINGS,
            "vocab_size": len(ids[0]),
            "decoder_vocab_size": size,
            "share_encoder_decoder_embeddings": not own,
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
            **changes,
        }
    )
    torch.manual_seed(5)
    model = transformers.MarianMTModel(config).eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" in name:
            continue
        torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    if bias:
        model.final_logits_bias.normal_()
    model.generation_config = transformers.GenerationConfig(
        **{
            "num_beams": 6,
            "max_length": 40,
            "bad_words_ids": [[pad]],
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
            **(generation or {}),
        }
    )
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def put_back(ours: Transformer, numbers: Renumbering, theirs: Any) -> None:
    """Give the library's model the weights of ours, whose begin symbol is its padding."""
    for name, parameter in ours.named_parameters():
        if name == "embedding.weight":
            theirs.model.shared.weight.copy_(numbers.restore(parameter))
        elif name == "output_bias":
            theirs.final_logits_bias.copy_(numbers.restore(parameter))
        else:
            theirs.get_parameter(NAMES.find(name)).copy_(parameter)


def train(ours: Transformer, rows: list[list[int]], steps: int) -> None:
    """Teach it to copy, for a while, behind the padding symbol: random models write one thing without end."""
    for name, parameter in ours.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.xavier_uniform_(parameter)
        else:
            torch.nn.init.constant_(parameter, float("norm.weight" in name))
    optimizer = torch.optim.Adam(ours.parameters(), lr=5e-3)
    draws = torch.Generator().manual_seed(1)
    for _ in range(steps):
        chosen = [rows[i] for i in torch.randint(len(rows), (24,), generator=draws)]
        longest = max(map(len, chosen)) + 1
        labels = torch.tensor([[*row, 2, *[0] * (longest - len(row) - 1)] for row in chosen])
        lengths = torch.tensor([len(row) + 1 for row in chosen])
        begun = torch.nn.functional.pad(labels[:, :-1], (1, 0))
        sums = ours(Tokens(labels, lengths), Tokens(begun, lengths), labels)
        (sums.objective / int(lengths.sum())).backward()
        optimizer.step()
        optimizer.zero_grad()
