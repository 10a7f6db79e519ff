"""A model as a folder of ``transformers``' MarianMTModel."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from transduce.bundle import Bundle, save_tensors
from transduce.config import BadInputError, GenerationConfig, TransformerConfig
from transduce.config.files import check_vacant
from transduce.config.model import Activation
from transduce.interop.dimension_order import sines_first
from transduce.interop.json_files import write_json
from transduce.interop.marianmt import BIAS, CONFIG, EPSILON, NAMES, SHARED, SOURCE, TARGET, WEIGHTS
from transduce.interop.marianmt_generation import GENERATION, warn_of_left_out
from transduce.interop.marianmt_sentencepiece import as_numbered_here, find_pieces
from transduce.interop.renumbering import Renumbering
from transduce.models import Transformer
from transduce.text import TokenizerPair
from transduce.text.tokenizer import BEGIN, END, PAD, UNKNOWN

_log = logging.getLogger(__name__)

# What it can say of each setting, and what other values mean.
_SAYABLE: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "norm": (("post",), "norms before the sub-layers"),
    "final_norm": ((False,), "a norm behind the last layer"),
    "embedding_norm": ((False,), "a norm of embeddings"),
    "residual": ((True,), "a stack without residual connections"),
    "positions": (("sinusoidal",), "other positions than sinusoids"),
    "position_combination": (("add",), "positions beside the embeddings"),
    "positions_at_every_layer": ((False,), "positions that come in at every layer"),
    "sinusoid_range": (("open",), "wavelengths up to 10000 2 pi"),
    "sinusoid_start": ((0,), "positions that begin elsewhere"),
    "compatibility": (("scaled_dot_product",), "other scores than scaled products"),
    "attention_window": ((None,), "local self-attention"),
    "decoder_self_attention": (("multi_head",), "average attention"),
    "feed_forward": (("mlp",), "other feed-forward networks than two linear maps"),
    "feed_forward_bias": ((True,), "maps without bias"),
    "source_end": ((True,), "sources without an end symbol"),
}
ACTIVATIONS: Final[dict[Activation, str]] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "silu": "swish",
}
# It keeps a table of positions, of so many rows where ours has no end.
_POSITIONS: Final = 1024
LONGEST: Final = 512  # of an output, where ours follows the input's length
_AS_HERE: Final = Renumbering.of(4, pad=0, begin=1, end=2, unknown=3)


def export_marianmt(bundle: Bundle, path: Path) -> None:
    """Write a folder that ``MarianMTModel`` and ``AutoTokenizer`` load: weights, configuration, tokenizer, search.

    The tokenizer is MarianTokenizer where ours are of SentencePiece models, with OPUS-MT's numbers of symbols where the
    model came with them; else it is ours.

    All is ours to the last bit, but for the order of the model's dimensions where sines and cosines stand by turns:
    Marian's sines come first, so every matrix's are permuted. Its norms add 1e-5 to the variance, whatever ours add.

    Raises:
        BadInputError: Marian has no such model, or ``path`` is not empty.
    """
    model = bundle.model
    if not isinstance(model, Transformer):
        raise BadInputError(
            f"MarianMT has no model of architecture {bundle.config.architecture!r}: only our own engine runs it"
        )
    _check(model.config)
    check_vacant(path)
    path.mkdir(parents=True, exist_ok=True)
    weights = {name: each.detach() for name, each in sines_first(model.state_dict(), model.config).items()}
    pieces = find_pieces(bundle.tokenizers, weights)
    if pieces is None:
        source, target = as_numbered_here(bundle.tokenizers)
        write_tokenizers(bundle.tokenizers, path)
    else:
        source, target = pieces.source, pieces.target
        pieces.write(bundle.tokenizers, path)
    save_tensors(dict(_weights(model, weights, source, target)), path / WEIGHTS[0])
    write_json(path / CONFIG, _configuration(model.config, source, target))
    write_json(path / GENERATION, generation_settings(bundle.generation, numbers=target))


def _check(config: TransformerConfig) -> None:
    unsayable = [
        f"{name} = {getattr(config, name)!r} ({meaning})"
        for name, (values, meaning) in _SAYABLE.items()
        if getattr(config, name) not in values
    ]
    if {config.d_k, config.d_v} != {config.d_model // config.heads} or config.d_model % config.heads:
        unsayable.append(f"d_k = {config.d_k}, d_v = {config.d_v} (heads that are not d_model / heads wide)")
    if config.norm_epsilon > EPSILON:
        unsayable.append(f"norm_epsilon = {config.norm_epsilon} (more than {EPSILON})")
    if unsayable:
        raise BadInputError(
            f"MarianMT cannot express {' nor '.join(unsayable)}: --to ctranslate2 and --to onnx say more models"
        )
    if config.norm_epsilon != EPSILON:
        _log.warning(
            f"norm_epsilon = {config.norm_epsilon}: MarianMT's norms add {EPSILON} to the variance, so logits differ a "
            f"little; the comparison says by how much"
        )


def _weights(
    model: Transformer, weights: Mapping[str, Tensor], source: Renumbering, target: Renumbering
) -> Iterator[tuple[str, Tensor]]:
    """Ours under its names, with its numbers of symbols."""
    config = model.config
    numbered = {"embedding.weight": target, "source_embedding.weight": source, "projection.weight": target}
    for name, stored in weights.items():
        if name == "output_bias":
            continue
        permuted = numbered[name].restore(stored) if name in numbered else stored
        if name == "embedding.weight" and model.source_embedding is None:
            yield f"{SHARED}.weight", permuted
            if model.projection is None:
                continue
            # Where not all is one matrix, none is taken for another.
            yield f"{SOURCE}.weight", permuted.clone()
            yield f"{TARGET}.weight", permuted.clone()
        else:
            yield NAMES.find(name), permuted
        if not config.attention_bias and "attention." in name:
            yield NAMES.find(name.replace(".weight", ".bias")), permuted.new_zeros(len(permuted))
    bias = weights.get("output_bias")
    yield BIAS, (torch.zeros(target.size) if bias is None else target.restore(bias)).unsqueeze(0)


def _configuration(config: TransformerConfig, source: Renumbering, target: Renumbering) -> dict[str, Any]:
    own = config.source_vocab_size
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        "share_encoder_decoder_embeddings": own is None,
        "tie_word_embeddings": config.tied_projection,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "d_model": config.d_model,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "activation_function": ACTIVATIONS[config.activation],
        "scale_embedding": config.scale_embedding,
        "max_position_embeddings": _POSITIONS,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        **_special(target),
        "dtype": "float32",
    }


def _special(numbers: Renumbering) -> dict[str, int]:
    pad, begin, end, _ = numbers.rows[:4]
    return {
        "pad_token_id": pad,
        "decoder_start_token_id": begin,
        "eos_token_id": end,
        "forced_eos_token_id": end,
    }


def generation_settings(
    ours: GenerationConfig, positions: int = _POSITIONS, numbers: Renumbering = _AS_HERE
) -> dict[str, Any]:
    """Our search as ``generation_config.json`` says it, whose outputs have no more symbols than ``positions``.

    GNMT's penalty it has not, and the nearest is that of the same alpha. What else it has not is named.
    """
    warn_of_left_out(ours, ("coverage_penalty", "diversity", "replace_unknown"), "transformers'")
    if ours.length_penalty_kind == "gnmt" and ours.length_penalty:
        _log.warning("length_penalty_kind = 'gnmt': the folder says 'marian', which transformers' search has")
    said: dict[str, Any] = {
        "num_beams": ours.beam_size,
        "max_length": min(positions, LONGEST if ours.max_length is None else ours.max_length + 2),
        "min_length": ours.min_length + 1 if ours.min_length else 0,
        "length_penalty": 0.0 if ours.length_penalty_kind == "none" else ours.length_penalty,
        "early_stopping": True if ours.stopping == "full_beam" else "never",
        "no_repeat_ngram_size": ours.no_repeat_ngram or 0,
        "do_sample": ours.sampling,
        "bad_words_ids": [[each] for each in sorted({*numbers.rows[:2], numbers.rows[3]})],
        **_special(numbers),
    }
    if ours.sampling:
        said |= {"temperature": ours.temperature, "top_k": ours.top_k or 0, "top_p": ours.top_p or 1.0}
    return said


def write_tokenizers(tokenizers: TokenizerPair, path: Path) -> None:
    """Ours, and the source's once more as ``AutoTokenizer`` reads it: with the end symbol behind each text."""
    tokenizers.save(path)
    stored = json.loads(tokenizers.source.to_json())
    end, text = {"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    before = stored["post_processor"]
    ending = {
        "type": "TemplateProcessing",
        "single": [text, end],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 0}}, end],
        "special_tokens": {END: {"id": END, "ids": [tokenizers.special.end], "tokens": [END]}},
    }
    stored["post_processor"] = ending if before is None else {"type": "Sequence", "processors": [before, ending]}
    write_json(path / "tokenizer.json", stored)
    names = {"pad_token": PAD, "bos_token": BEGIN, "eos_token": END, "unk_token": UNKNOWN}
    write_json(
        path / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names},
    )
