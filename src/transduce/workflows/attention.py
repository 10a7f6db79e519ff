"""What a model attends to, as a page: weights of sentences, and what it writes without each of its heads."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from transduce.bundle import load_bundle
from transduce.config import BadInputError, Precision
from transduce.config.attention import AttentionHead
from transduce.inference import Translator, load
from transduce.models import heads_of, mute
from transduce.viewing import ViewedSentence


def view_sentences(
    model: Path,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    muting: bool = False,
    precision: Precision = "auto",
    device: str | None = None,
) -> list[ViewedSentence]:
    """Each text's attention weights, with a target of one's own or with what the model writes.

    With ``muting``, the texts are translated once more for each attention head, without it.

    Raises:
        BadInputError: There are more texts than targets, or fewer; or one cannot be looked at.
    """
    if targets is not None and len(targets) != len(texts):
        raise BadInputError(f"{len(texts)} texts and {len(targets)} targets: give one target for each text")
    translator = load(model, precision, device)
    written = [each.text for each in translator.translate(texts)]
    viewed = [
        ViewedSentence(translator.attend(text, target), own)
        for text, target, own in zip(texts, written if targets is None else targets, written, strict=True)
    ]
    if not muting:
        return viewed
    others = dict(_translate_muted(model, texts, precision, device))
    return [
        replace(each, muted={head: outputs[index] for head, outputs in others.items()})
        for index, each in enumerate(viewed)
    ]


def _translate_muted(
    path: Path, texts: Sequence[str], precision: Precision, device: str | None
) -> Iterator[tuple[AttentionHead, list[str]]]:
    bundle = load_bundle(path)
    for head in heads_of(bundle.model):
        model = copy.deepcopy(bundle.model)
        mute(model, [head])
        place = None if device is None else torch.device(device)
        translator = Translator(replace(bundle, model=model), precision, place, consume=True)
        yield head, [each.text for each in translator.translate(texts, first_number=None)]
