import os
import signal
import time

from tests.command import converse

pytest_plugins = ["tiny_run"]


def test_an_interrupt_ends_a_wait_for_input_with_one_line(trained_run, tmp_path):
    process, given, said = converse(["translate", str(trained_run)], tmp_path)
    with given, said:
        given.write(b"bamo\n")
        assert said.readline() == b"ti\n"
        time.sleep(0.2)  # it waits for the next line now
        os.kill(process.pid, signal.SIGINT)
        process.join(20)
    assert (process.exitcode, (tmp_path / "stderr").read_bytes()) == (130, b"error: interrupted\n")
