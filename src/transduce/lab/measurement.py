"""What a finished training is worth on dev, kept beside it."""

import os
import platform
from pathlib import Path
from typing import Final

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

import transduce
from transduce.bundle import load_bundle, load_weights
from transduce.config import BadInputError, read_run
from transduce.config.disk import write_whole
from transduce.data import corpus_paths
from transduce.inference import Translator
from transduce.training import MODEL, list_checkpoints, read_progress
from transduce.workflows.evaluate import Measures, evaluate, read_examples
from transduce.workflows.run_directory import RunDirectory

_FILE: Final = "measured.json"
_CPU: Final = Path("/proc/cpuinfo")


class Measurement(BaseModel):
    """The model after a training's last step, on dev. Perplexity is per token, the end symbol counted."""

    # A training that diverged has a perplexity of NaN, and a row in the table all the same.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    seed: int
    steps: int
    target_tokens: int  # that it was trained on
    seconds: float  # of training
    parameters: int
    perplexity: float
    bleu: float
    signature: str  # of the BLEU
    precision: str
    machine: str
    versions: dict[str, str]


def measure(run: RunDirectory) -> Measurement:
    """Translate dev with the weights of the newest checkpoint, by beam search, and keep the scores in the run.

    As in Table 3 the weights are those of the last step: neither the best on dev nor a mean.
    """
    config = read_run(run.config)
    _, newest = list_checkpoints(run.checkpoints)[-1]
    bundle = load_bundle(run.root)
    load_weights(bundle.model, newest / MODEL)
    examples = read_examples(*corpus_paths(config.data.dev, config.data.folder))
    translator = Translator(bundle, config.train.precision)
    perplexity, bleu = evaluate(translator, examples, Measures(["perplexity", "bleu"]))
    progress = read_progress(newest)
    measured = Measurement(
        seed=config.train.seed,
        steps=progress.step,
        target_tokens=progress.target_tokens,
        seconds=round(progress.seconds, 1),
        parameters=sum(weight.numel() for weight in bundle.model.parameters()),
        perplexity=perplexity.value,
        bleu=bleu.value,
        signature=bleu.signature,
        precision=progress.fixed["train.precision"],
        machine=_name_machine(),
        versions={"transduce": transduce.__version__, "python": platform.python_version(), "torch": torch.__version__},
    )
    write_whole(run.root / _FILE, measured.model_dump_json(indent=2) + "\n")
    return measured


def read_measurements(folder: Path, name: str) -> list[Measurement]:
    """What the finished trainings ``NAME-seedN`` of a folder were measured to be, by seed.

    Raises:
        BadInputError: A file of them is damaged.
    """
    found = map(_read, folder.glob(f"{name}-seed*/{_FILE}"))
    return sorted(found, key=lambda measured: measured.seed)


def is_measured(run: RunDirectory) -> bool:
    """Whether the training is finished and its measurement kept."""
    return (run.root / _FILE).is_file()


def _read(path: Path) -> Measurement:
    try:
        return Measurement.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BadInputError(f"{path}: damaged ({error.errors()[0]['msg']}): delete it to measure again") from error


def _name_machine() -> str:
    """Processor or graphics card, and how many threads compute."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    lines = _CPU.read_text(encoding="utf-8").splitlines() if _CPU.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} threads of {os.cpu_count()}"
