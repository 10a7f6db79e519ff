"""What several processes tell each other, and how they meet and end."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from pydantic import ValidationError
from torch.distributed import HashStore  # type: ignore[attr-defined]

from transduce.config import BadInputError, TrainConfig, TransduceError
from transduce.training import Watch, Work, join_processes, pair_work
from transduce.training.processes import name_meeting
from transduce.training.work import join_work

pytest_plugins = ["together"]

MEETING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def test_without_a_launcher_a_process_is_alone():
    for environment in ({}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}):
        with join_processes(1, environment) as processes:
            assert (processes.rank, processes.number, processes.alone, processes.first) == (0, 1, True, True)
            assert processes.sum([3, 0.5]) == [3, 0.5]
            assert processes.lead("nothing", lambda: "words") == "words"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "two"}, r"WORLD_SIZE = 'two' .* no whole number from 1 on: start with torchrun"),
        ({"WORLD_SIZE": "0"}, r"WORLD_SIZE = '0' .* from 1 on"),
        ({"WORLD_SIZE": "2"}, r"RANK = '' in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, r"RANK = 2 .* beyond WORLD_SIZE = 2"),
        ({"WORLD_SIZE": "2", "RANK": "1"}, r"MASTER_ADDR is missing .* torchrun --nproc-per-node"),
        ({"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "-1", **MEETING}, r"LOCAL_RANK = '-1'"),
    ],
)
def test_an_environment_that_cannot_be_teaches(environment, message):
    with pytest.raises(BadInputError, match=message), join_processes(1, environment):
        pass


def test_a_torch_without_gloo_is_named(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_gloo_available", lambda: False)
    environment = {"WORLD_SIZE": "2", "RANK": "1", **MEETING}
    with pytest.raises(TransduceError, match="built without gloo"), join_processes(1, environment):
        pass


def test_a_machine_with_fewer_gpus_than_processes_is_told(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    environment = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "2", **MEETING}
    with pytest.raises(BadInputError, match=r"has 2 GPUs, .*--nproc-per-node 2"), join_processes(1, environment):
        pass
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    with pytest.raises(TransduceError, match="not nccl"), join_processes(1, environment):
        pass


def test_a_meeting_has_its_own_name_whatever_an_earlier_one_left_behind():
    """Two starts use one store, as under a launcher that starts processes again; in the second, two are late."""
    store, limit = HashStore(), timedelta(seconds=20)
    names = []
    for delay in (0.0, 0.1):

        def meet(rank, delay=delay):
            time.sleep(delay if rank else 0)
            return name_meeting(store, rank, 3, limit)

        with ThreadPoolExecutor(3) as threads:
            (name,) = set(threads.map(meet, range(3)))
        names.append(name)
    assert names[0] != names[1]


def test_who_does_not_come_is_named():
    with pytest.raises(TransduceError, match="of 3 processes, these did not come: 1, 2"):
        name_meeting(HashStore(), 0, 3, timedelta(seconds=0.05))


def _talk():
    with join_processes(1) as processes:
        assert processes.sum([1, 10.0**processes.rank]) == [3, 111]
        assert processes.agree(float(processes.rank + 7)) == 7
        assert processes.lead("speaking", lambda: "Grüße" * processes.number) == "Grüße" * 3
        assert processes.lead("being silent", str) == ""
        own = pair_work(2 + processes.rank, 5)
        assert join_work(own, processes) == pair_work(2, 5) + pair_work(3, 5) + pair_work(4, 5) + Work()


def test_three_processes_add_up_and_follow_the_first(tmp_path, run_together):
    run_together(3, tmp_path, _talk)


def _fail():
    def work():
        raise BadInputError("no such file")

    with join_processes(1) as processes:
        try:
            processes.lead("preparing the data", work)
        except TransduceError as error:
            sys.stdout.write(f"{type(error).__name__} {error}\n")


def test_where_the_first_fails_the_others_say_so(tmp_path, start_together):
    started = start_together(2, tmp_path, _fail)
    assert started.join() == [0, 0]
    assert started.said(0) == "BadInputError no such file\n"
    assert started.said(1) == (
        "TransduceError process 1 of 2 ends, as preparing the data failed on the first one: its own message says why\n"
    )


def _wait():
    with join_processes(1) as processes, processes.lost("adding up"):
        processes.sum([1])
        sys.stdout.write("met\n")
        if processes.first:
            processes.sum([1])
        time.sleep(60)


def _met(started):
    while not all(path.exists() and "met" in path.read_text() for path in started.logs):
        assert all(process.is_alive() for process in started.processes)
        time.sleep(0.01)


def test_a_process_that_is_killed_ends_the_others_at_once(tmp_path, start_together):
    started = start_together(2, tmp_path, _wait)
    _met(started)
    started.processes[1].kill()
    started.processes[0].join(20)
    assert started.join() == [1, -signal.SIGKILL]
    assert "in sum" in started.said(0)  # where it stood
    assert "process 0 of 2 has lost the others while adding up" in started.said(0)


def _hang():
    with join_processes(1) as processes, Watch(1.0, str(processes)) as watch:
        processes.sum([1])
        sys.stdout.write("met\n")
        watch.beat("step 7")
        processes.sum([1]) if processes.first else _stand_still()


def _stand_still():
    time.sleep(60)


def test_a_process_that_hangs_ends_all_with_their_stack_traces(tmp_path, start_together):
    started = start_together(2, tmp_path, _hang)
    assert started.join(30) == [1, 1]
    assert "process 0 of 2: step 7 takes longer than 1 s" in started.said(0) or "has lost" in started.said(0)
    assert "process 1 of 2: step 7 takes longer than 1 s" in started.said(1)
    assert "in sum" in started.said(0)
    assert "in _stand_still" in started.said(1)


def _lead_slowly(seconds, *, falls_silent):
    # A message may take 3 s: 2 x 0.025 minutes.
    with join_processes(0.025) as processes, processes.lost("training"):
        processes.sum([1])
        sys.stdout.write("met\n")

        def work():
            if falls_silent:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(seconds)
            return "done"

        sys.stdout.write(processes.lead("measuring dev", work) + "\n")


def test_the_others_wait_for_the_first_for_longer_than_a_message_may_take(tmp_path, start_together):
    started = start_together(2, tmp_path, partial(_lead_slowly, 4, falls_silent=False))
    assert started.join(30) == [0, 0]
    assert [started.said(rank) for rank in range(2)] == ["met\ndone\n"] * 2


def test_a_first_process_that_falls_silent_at_its_work_is_given_up(tmp_path, start_together):
    """As one whose machine is switched off, or cut off: nothing ends the connection."""
    started = start_together(2, tmp_path, partial(_lead_slowly, 1, falls_silent=True))
    started.processes[1].join(30)
    assert started.processes[1].exitcode == 1
    started.processes[0].kill()
    assert "process 1 of 2 has lost the others while waiting for the first to finish measuring dev" in started.said(1)


def _stopped():
    with join_processes(1) as processes, Watch(1.0, str(processes)) as watch:
        watch.beat("step 7")
        processes.sum([1])
        sys.stdout.write("met\n")
        if not processes.first:
            os.kill(os.getpid(), signal.SIGSTOP)
        watch.beat("step 8")
        processes.sum([1])


def test_a_process_that_no_longer_runs_at_all_ends_the_others(tmp_path, start_together):
    started = start_together(2, tmp_path, _stopped)
    started.processes[0].join(30)
    assert started.processes[0].exitcode == 1
    started.processes[1].kill()
    assert "step 8 takes longer than 1 s" in started.said(0)


def test_a_watch_that_is_fed_or_rests_ends_nothing():
    ended: list[int] = []
    with Watch(0.5, "process 0 of 2", ended.append) as watch:
        for step in range(30):
            watch.beat(f"step {step}")
        watch.rest()
        time.sleep(0.7)  # neither a step that was done nor the rest is too long
        assert ended == []
    with Watch(None, "process 0 of 1", ended.append) as watch:
        watch.beat("step 1")
        time.sleep(0.01)
    assert ended == []


def test_the_longest_time_that_a_run_file_may_give_is_one_that_can_be_watched():
    longest = 1_000_000
    with Watch(60 * TrainConfig(hang_minutes=longest).hang_minutes, "process 0 of 2") as watch:
        watch.beat("step 1")
    with pytest.raises(ValidationError, match="less than or equal to 1000000"):
        TrainConfig(hang_minutes=longest + 1)


def test_a_watch_that_is_not_fed_ends_the_process(caplog):
    ended: list[int] = []
    with Watch(0.5, "process 0 of 2", ended.append) as watch:
        watch.beat("step 9")
        while not ended:
            time.sleep(0.01)
    assert ended == [1]
    assert "process 0 of 2: step 9 takes longer than 0.5 s" in caplog.text
