"""Where a run keeps what it makes."""

from dataclasses import dataclass
from pathlib import Path

from transduce.config import RunConfig
from transduce.data import corpus_paths


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run, by their promised names."""

    root: Path

    @property
    def config(self) -> Path:
        """The run as resolved."""
        return self.root / "run.toml"

    @property
    def train_store(self) -> Path:
        """The tokenized training pairs."""
        return self.root / "store" / "train.arrow"

    @property
    def dev_store(self) -> Path:
        """The tokenized dev pairs."""
        return self.root / "store" / "dev.arrow"

    @property
    def report(self) -> Path:
        """What the preparation kept and dropped."""
        return self.root / "store" / "report.txt"

    @property
    def checkpoints(self) -> Path:
        """The folder of ``step-N`` folders."""
        return self.root / "checkpoints"

    @property
    def has_checkpoints(self) -> bool:
        """Whether a training has begun here."""
        return any(self.checkpoints.glob("step-*"))

    @property
    def tensorboard(self) -> Path:
        """The same measurements for TensorBoard, where asked for."""
        return self.root / "tensorboard"

    @property
    def metrics(self) -> Path:
        """One JSON object a line for each measurement."""
        return self.root / "metrics.jsonl"


def default_out(run_file: Path) -> Path:
    """``runs/NAME``, NAME being the run file's; a run directory's own ``run.toml`` means that directory."""
    if run_file.name == "run.toml" and (run_file.parent / "store").is_dir():
        return run_file.parent
    return Path("runs") / run_file.stem


def corpus_files(config: RunConfig) -> list[Path]:
    """Every text file that the run reads, training first, source before target."""
    data = config.data
    return [path for corpus in (*data.train, data.dev) for path in corpus_paths(corpus, data.folder)]
