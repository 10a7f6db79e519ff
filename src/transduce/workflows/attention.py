"""What a model attends to, as a page: weights of sentences, and what it writes without each of its heads."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transduce.bundle import load_bundle
from transduce.config import BadInputError, Precision
from transduce.inference import Translator
from transduce.inference.arguments import read_device
from transduce.models import heads_of
from transduce.viewing import ViewedSentence
from transduce.workflows.muting import without_each


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

    With ``muting``, the texts are translated once more for each attention head of a Transformer, without it.

    Raises:
        BadInputError: There are more texts than targets, or fewer; or one cannot be looked at.
    """
    if targets is not None and len(targets) != len(texts):
        raise BadInputError(f"{len(texts)} texts and {len(targets)} targets: give one target for each text")
    bundle, place = load_bundle(model), read_device(device)
    heads = heads_of(bundle.model)
    if muting and not heads:
        raise BadInputError(f"{model}: the model has no attention heads that can be muted: leave --mute out")
    translator = Translator(bundle, precision, place)
    written = [each.text for each in translator.translate(texts)]
    viewed = [
        ViewedSentence(translator.attend(text, target), own)
        for text, target, own in zip(texts, written if targets is None else targets, written, strict=True)
    ]
    if all(kind is None for each in viewed for kind in (each.maps.encoder, each.maps.decoder, each.maps.cross)):
        raise BadInputError(f"{model}: the model has no attention to show")
    if not muting:
        return viewed
    others = {
        head: [each.text for each in without.translate(texts, first_number=None)]
        for head, without in without_each(bundle, heads, precision, place)
    }
    return [
        replace(each, muted={head: outputs[index] for head, outputs in others.items()})
        for index, each in enumerate(viewed)
    ]
