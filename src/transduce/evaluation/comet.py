"""COMET (Rei et al. 2020, 2022): a trained model that reads source, output and reference, by its own library."""

import hashlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transduce.config import BadInputError, TransduceError
from transduce.evaluation.line_mean import LineMean

if TYPE_CHECKING:
    from comet.models import CometModel

_HOW: Final = (
    "comet's own command fetches one, with the encoder that it needs: comet-score -s SOURCE -t OUTPUT -r REFERENCE "
    "--model Unbabel/wmt22-comet-da --model_storage_path DIR; then --comet-model is the model.ckpt below DIR"
)
_DIGITS: Final = 12


def make_comet_scorer(checkpoint: Path | None, sources: Sequence[str]) -> LineMean:
    """The mean of COMET's values, by a model that lies on this machine: nothing is downloaded.

    The values are on the model's own scale, higher is better; most models' are about 0 to 1. Line i of what is scored
    belongs to ``sources[i]``. The file is read as comet reads it, so it must be from somebody trusted.

    Raises:
        TransduceError: The extra ``comet`` is not installed.
        BadInputError: There is no such checkpoint, or comet cannot load it.
    """
    model, identity = _load(checkpoint)

    def values(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
        rows = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": source, "mt": output, "ref": reference} for source, output, reference in rows]
        with _quiet():
            # One accelerator where there is one, else the processor; a test set is soon read by this process alone.
            predicted = model.predict(samples, gpus=1, num_workers=0, progress_bar=False)
        return [float(value) for value in predicted["scores"]]

    return LineMean("comet", values, {**identity, "version": version("unbabel-comet")})


def _load(checkpoint: Path | None) -> tuple["CometModel", dict[str, str]]:
    """A model, and what its signature says of it."""
    with _quiet():
        try:
            from comet import load_from_checkpoint  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise TransduceError(
                f"the metric comet needs its library, and all that it needs: pip install 'transduce[comet]' ({error})"
            ) from error
        if checkpoint is None:
            raise BadInputError(f"the metric comet needs a model, --comet-model PATH: {_HOW}")
        if not checkpoint.is_file():
            raise BadInputError(f"{checkpoint}: no such COMET checkpoint: {_HOW}")
        try:
            return load_from_checkpoint(str(checkpoint), local_files_only=True), _identity(checkpoint)
        except Exception as error:  # comet raises that very class, and those of all that it is made of
            raise BadInputError(f"{checkpoint}: comet cannot load it: {str(error).rstrip('.')}: {_HOW}") from error


def _identity(checkpoint: Path) -> dict[str, str]:
    """The model's name, and the digest that tells models of one name apart."""
    with checkpoint.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    # A downloaded model lies in models--OWNER--NAME/snapshots/COMMIT/checkpoints.
    published = [part for part in checkpoint.parts if part.startswith("models--")]
    name = published[-1].removeprefix("models--") if published else checkpoint.resolve().parent.parent.name
    return {"model": name.replace("--", "/"), "sha256": digest[:_DIGITS]}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what comet and the libraries under it say to themselves; comet sets up everybody's log where nobody has."""
    nowhere = logging.NullHandler()
    before = logging.root.manager.disable
    logging.root.addHandler(nowhere)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        logging.root.removeHandler(nowhere)
