import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny_partitions import read_folder
from transduce.cli import main
from transduce.config import BadInputError, TransduceError
from transduce.workflows import encoding
from transduce.workflows.cluster import Cluster, read_devices, run_on_cluster

pytest_plugins = ["tiny_partitions", "tiny_run"]


@pytest.fixture(scope="module")
def small_cluster():
    """Two machines that are pretended, with a core each; what tests start is found by Ray itself."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'transduce[distributed]'")
    from ray import cloudpickle
    from ray.cluster_utils import Cluster as Machines

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a module of tests
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    machines = Machines(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000}, connect=False
    )
    machines.add_node(num_cpus=1, object_store_memory=80_000_000)
    yield machines
    machines.shutdown()


@dataclass(frozen=True)
class Squares:
    """Squares numbers; the first worker that comes to ``deadly`` is killed at it, or all are."""

    folder: Path
    deadly: int = 0
    always: bool = False
    refuse: str = ""

    def start(self, device):
        if self.refuse:
            raise BadInputError(self.refuse)
        assert device == "cpu"
        (self.folder / f"started-{os.getpid()}").touch()
        return self._square

    def _square(self, number):
        mark = self.folder / "killed"
        if number == self.deadly and (self.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number, number * number


def squares(cluster, work, *, in_order=False, **options):
    place = Cluster(cluster.address, **options)
    found = list(run_on_cluster(work, iter(range(1, 14)), lambda number: (number, None), place, in_order=in_order))
    return found if in_order else sorted(found)


def test_workers_start_once_and_do_all_tasks_and_those_of_a_worker_that_is_lost(small_cluster, tmp_path):
    found = squares(small_cluster, Squares(tmp_path, deadly=5), in_order=True)
    assert found == [(number, number**2) for number in range(1, 14)]
    assert (tmp_path / "killed").exists()
    # A worker for each core, of which one comes later or has nothing left to do, and one in place of the lost.
    assert len(list(tmp_path.glob("started-*"))) in {2, 3}


def test_a_task_that_kills_every_worker_costs_no_other(small_cluster, tmp_path):
    found = dict(squares(small_cluster, Squares(tmp_path, deadly=3, always=True), workers=1))
    assert found == {number: None if number == 3 else number**2 for number in range(1, 14)}


def test_why_a_worker_cannot_start_is_said(small_cluster, tmp_path):
    with pytest.raises(BadInputError, match="no model there"):
        squares(small_cluster, Squares(tmp_path, refuse="no model there"))
    with pytest.raises(BadInputError, match="no machine of the cluster has more than 1 cores"):
        squares(small_cluster, Squares(tmp_path), threads=7)
    with pytest.raises(BadInputError, match="the cluster has no GPU"):
        squares(small_cluster, Squares(tmp_path), devices=("cuda",))


def test_translations_are_those_of_one_process(random_model, partitions, small_cluster, tmp_path, capsys):
    options = ["--precision", "float32", "--max-extra-length", "3"]
    for name, engine in (("one", ()), ("many", ("--engine", "ray", "--address", small_cluster.address))):
        folder = tmp_path / name
        files = ["--input", str(partitions), "--output", str(folder)]
        assert main._run(["translate", str(random_model), *files, *options, *engine]) == 0, capsys.readouterr().err
    assert read_folder(tmp_path / "many") == read_folder(tmp_path / "one")


def test_a_corpus_is_prepared_as_in_one_process(tiny_run_file, small_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "_LINES_AT_A_TIME", 7)
    settings = ["--set", "data.max_length=5", "--set", "data.duplicates=drop"]
    for name, engine in (("one", ()), ("many", ("--engine", "ray", "--address", small_cluster.address))):
        assert main._run(["prepare", str(tiny_run_file), "--out", str(tmp_path / name), *settings, *engine]) == 0
    one, many = (read_folder(tmp_path / name) for name in ("one", "many"))
    assert one == many
    assert all(f"dropped: {reason}".encode() in one["store/report.txt"] for reason in ("too long", "duplicate"))


def test_kinds_of_workers_by_name():
    assert [read_devices(each) for each in (None, "cpu", "cuda", "cpu,cuda")] == [
        *((), ("cpu",), ("cuda",), ("cuda", "cpu"))
    ]
    with pytest.raises(BadInputError, match="--device tpu"):
        read_devices("tpu")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TransduceError, match=r"pip install 'transduce\[distributed\]'"):
        list(run_on_cluster(Squares(Path()), [2], lambda number: number, Cluster()))
