import signal
import subprocess
import sys
import time

# A shell's background jobs ignore interrupts, and what they start inherits that.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from transduce.cli.main import run
run()
"""


def test_an_interrupt_ends_a_wait_for_input_with_one_line(trained_run):
    command = [sys.executable, "-c", PROGRAM, "translate", str(trained_run)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"bamo\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ti\n"
    time.sleep(0.2)  # it waits for the next line now
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, b"error: interrupted\n")


pytest_plugins = ["tiny_run"]
