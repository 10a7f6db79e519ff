"""Where a run keeps what it makes, and the lock that keeps it to one process."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from transduce.config import BadInputError, RunConfig
from transduce.config.disk import keep_alone
from transduce.config.files import check_name
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
    def best(self) -> Path:
        """The best model on dev, a model directory."""
        return self.root / "best"

    @property
    def has_checkpoints(self) -> bool:
        """Whether a training has begun here, and come to a checkpoint, which may be damaged since."""
        return any(not path.name.endswith(".unfinished") for path in self.checkpoints.glob("step-*"))

    @property
    def tensorboard(self) -> Path:
        """The same measurements for TensorBoard, where asked for."""
        return self.root / "tensorboard"

    @property
    def metrics(self) -> Path:
        """One JSON object a line for each measurement."""
        return self.root / "metrics.jsonl"


def check_folders(run: RunDirectory) -> None:
    """See that nothing but a folder has the name of one that a run makes, and that libraries can write to them.

    Raises:
        BadInputError: A file has, or the run directory's name is no UTF-8.
    """
    check_name(run.root, "give another --out")
    for folder in (run.train_store.parent, run.checkpoints, run.best):
        if folder.exists() and not folder.is_dir():
            raise BadInputError(
                f"{folder}: is a file, and a run makes a folder of that name: move it away, or give another --out"
            )


def check_room(run: RunDirectory) -> None:
    """Let pass a folder that a run may write to: its own, or one that has nothing of the names that a run writes.

    Raises:
        BadInputError: A file stands there, or in the place of one of its folders; or the folder has such a name and is
            no run: a model directory, whose tokenizer would be replaced, or that of a run file that somebody wrote.
    """
    if run.root.exists() and not run.root.is_dir():
        raise BadInputError(f"{run.root}: is a file, a run directory cannot take its place: give another --out")
    check_folders(run)
    tokenizers = sorted(run.root.glob("tokenizer*.json"))
    if run.train_store.parent.is_dir() or (run.config.is_file() and tokenizers):
        return
    model = [path for path in (run.root / "config.json", run.root / "model.safetensors") if path.is_file()]
    if there := [*model, *tokenizers, *([run.config] if run.config.is_file() else [])]:
        what = "a model directory" if model else f"has a {there[0].name} that is of no run"
        raise BadInputError(f"{run.root}: {what}: a run directory would overwrite what is there: give another --out")


def check_run(run: RunDirectory) -> None:
    """Let pass a folder that a run was written to.

    Raises:
        BadInputError: It is none; a model directory, say, which does not know how it was trained.
    """
    if run.root.is_file():
        raise BadInputError(f"{run.root}: is a file, a run directory belongs here: the folder that train --out named")
    if not run.root.exists():
        raise BadInputError(f"{run.root}: no such run directory: give the folder that train --out named")
    if not run.config.is_file():
        what = "a model directory and no run" if (run.root / "config.json").is_file() else "not a run directory"
        above = RunDirectory(run.root.resolve().parent)
        where = f"its run is {above.root}" if above.config.is_file() else "give the folder that train --out named"
        raise BadInputError(f"{run.root}: {what}: {run.config.name} is missing; {where}")


def default_out(run_file: Path) -> Path:
    """``runs/NAME``, NAME being the run file's; a run directory's own ``run.toml`` means that directory."""
    run = RunDirectory(run_file.parent)
    if run_file.name == "run.toml" and (run.train_store.parent.is_dir() or run.checkpoints.is_dir()):
        return run_file.parent
    return Path("runs") / run_file.stem


def corpus_files(config: RunConfig) -> list[Path]:
    """Every text file that a preparation reads whole, training first, source before target."""
    data = config.data
    corpora = (data.dev,) if data.streaming else (*data.train, data.dev)
    return [path for corpus in corpora for path in corpus_paths(corpus, data.folder)]


@contextmanager
def lock(run: RunDirectory) -> Iterator[None]:
    """Keep a run directory to this process, within the context.

    Raises:
        BadInputError: Another process trains or prepares there, or a file of that name stands in the way.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(hold(run.root))
        except BlockingIOError:
            raise BadInputError(
                f"{run.root}: another process trains here at this moment, or prepares: wait until it has ended (a "
                f"signal makes a training write a checkpoint first), or work elsewhere with --out DIR"
            ) from None
        except (FileExistsError, NotADirectoryError) as error:
            raise BadInputError(f"{run.root}: a file of that name stands in the way: give another --out") from error
        except OSError as error:
            raise BadInputError(
                f"{run.root}: cannot be made or written ({error.strerror}): give another --out"
            ) from error
        yield


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep a folder to this block (``keep_alone``).

    It is made if need be, and goes again where nothing was put into it.

    Raises:
        BlockingIOError: Somebody else holds it.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with keep_alone(folder):
            yield
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()
