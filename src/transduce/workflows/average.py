"""One model from the newest checkpoints of a run."""

from pathlib import Path

from transduce.bundle import Bundle, save_bundle
from transduce.config import BadInputError, read_run, with_vocabularies
from transduce.config.files import check_vacant
from transduce.models import build
from transduce.text import TokenizerPair
from transduce.training import average_weights, list_checkpoints, list_regular, read_weights
from transduce.workflows.run_directory import RunDirectory, check_run


def average(run: RunDirectory, last: int, out: Path) -> list[int]:
    """Write the mean of the ``last`` newest checkpoints as a new model directory; return their steps.

    One alone may be a checkpoint that a signal asked for; in a mean these are not, which would depend on when it came.

    Raises:
        BadInputError: It is no run directory, or has fewer checkpoints; or something stands at ``out``.
    """
    check_run(run)
    if last < 1:
        raise BadInputError(
            f"--last {last}: must be at least 1: the model is the mean of so many of the newest checkpoints"
        )
    checkpoints = list_checkpoints(run.checkpoints)
    if last > 1:
        checkpoints = list_regular(run.checkpoints) or checkpoints
    if not checkpoints:
        raise BadInputError(f"{run.root}: has no checkpoints yet: train writes them every train.checkpoint_every steps")
    if last > len(checkpoints):
        steps = ", ".join(f"{step:,}" for step, _ in checkpoints)
        raise BadInputError(
            f"--last {last}: {run.root} has {len(checkpoints)} checkpoints (steps {steps}): ask for {len(checkpoints)} "
            f"or fewer; train.keep_checkpoints says how many a training keeps"
        )
    check_vacant(out)
    config, tokenizers = read_run(run.config), TokenizerPair.load(run.root)
    model = build(with_vocabularies(config.model, tokenizers.sizes(shared=config.tokenizer.shared)))
    model.load_state_dict(average_weights(read_weights(path) for _, path in checkpoints[-last:]))
    save_bundle(Bundle(model, tokenizers, config.generation), out)
    return [step for step, _ in checkpoints[-last:]]
