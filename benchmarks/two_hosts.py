"""A training on two hosts, one of which is cut off in the middle of a step and comes back, beside one that never was.

    python -m benchmarks.two_hosts [--cut SECONDS] [--folder DIR]

Makes two network namespaces, each with its own address, on a switch (a bridge in a third one), and has each run
deploy/node.sh, which is torchrun. When a checkpoint is written, the port of the second host is taken down, as if its
cable were pulled, for so many seconds, and until both hosts have noticed. Compares the last checkpoint and metrics of
both trainings byte by byte, prints a Markdown table, and writes it to benchmarks/results/two-hosts.md. Needs Linux,
root and iproute2. The hosts share a disk, as those of a cluster do.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import torch

from benchmarks.made_up_model import make_up_sentences
from benchmarks.peers.machine import describe_machine, describe_versions

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = Path(__file__).parent / "results" / "two-hosts.md"
LAST_STEP: Final = 240
CUT_BEHIND: Final = 60  # the checkpoint of this step
HANG_MINUTES: Final = 0.2
_PATIENCE: Final = 600.0  # seconds that anything may take
_RUN: Final = f"""
[data]
train = {{ source = "train.src", target = "train.trg" }}
dev = {{ source = "dev.src", target = "dev.trg" }}

[tokenizer]
vocab_size = 500

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 32
d_ff = 64
heads = 2

[train]
batch_tokens = 512
max_steps = {LAST_STEP}
warmup_steps = 60
log_every = 20
checkpoint_every = 20
validate_every = {LAST_STEP}
keep_checkpoints = 50
precision = "float32"
hang_minutes = {HANG_MINUTES}
"""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@final
@dataclass(frozen=True)
class Host:
    """A network namespace, its address and the port of the switch that its cable leads to."""

    name: str
    address: str
    port: str


@final
@dataclass(frozen=True)
class Network:
    """Two hosts on a switch."""

    switch: str
    hosts: tuple[Host, Host]

    def set_cable(self, host: Host, state: str) -> None:
        """``up`` or ``down``; the other host notices nothing but silence."""
        _run("ip", "-netns", self.switch, "link", "set", host.port, state)


def why_not() -> str | None:
    """Why this system cannot make two hosts, if it cannot."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "wants Linux and iproute2"
    try:
        with make_network():
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return f"wants the right to make network namespaces: {getattr(error, 'stderr', error)}"


@contextmanager
def make_network() -> Iterator[Network]:
    """Namespaces of names that nobody else has; they are gone afterwards."""
    own = f"transduce-{os.getpid()}"
    hosts = tuple(Host(f"{own}-{number}", f"10.77.0.{number}", f"port{number}") for number in (1, 2))
    switch = f"{own}-switch"
    with ExitStack() as after:
        for name in (switch, *(host.name for host in hosts)):
            _run("ip", "netns", "add", name)
            after.callback(_run, "ip", "netns", "delete", name)
        _run("ip", "-netns", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-netns", switch, "link", "set", "bridge", "up")
        for host in hosts:
            cable = ("type", "veth", "peer", "name", host.port, "netns", switch)
            _run("ip", "link", "add", "cable", "netns", host.name, *cable)
            _run("ip", "-netns", switch, "link", "set", host.port, "master", "bridge", "up")
            _run("ip", "-netns", host.name, "address", "add", f"{host.address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _run("ip", "-netns", host.name, "link", "set", device, "up")
        yield Network(switch, (hosts[0], hosts[1]))


@final
@dataclass(frozen=True)
class Session:
    """A training that both hosts are at: their node.sh, and what each says."""

    nodes: tuple[subprocess.Popen[bytes], ...]
    logs: tuple[Path, ...]

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for something, while all are at work.

        Raises:
            RuntimeError: One has ended, or it takes too long.
        """
        deadline = time.monotonic() + _PATIENCE
        while not happened():
            if any(node.poll() for node in self.nodes) or time.monotonic() > deadline:
                raise RuntimeError(f"waiting for {what} in vain:\n\n" + "\n\n".join(map(_tail, self.logs)))
            time.sleep(0.01)

    def said(self, pattern: str) -> list[list[str]]:
        """What each host has said of it, in order."""
        return [re.findall(pattern, log.read_text(encoding="utf-8", errors="replace")) for log in self.logs]


def _tail(log: Path) -> str:
    return f"{log}:\n" + "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])


@contextmanager
def start(network: Network, run_file: Path, out: Path) -> Iterator[Session]:
    """Have both hosts train; whatever is still at work at the end is stopped."""
    logs = tuple(out.with_name(f"{out.name}-{host.name.rsplit('-')[-1]}.log") for host in network.hosts)
    nodes = []
    for host, log in zip(network.hosts, logs, strict=True):
        given = {
            "FIRST": network.hosts[0].address,
            "NODES": "2",
            "PROCESSES": "1",
            "PAUSE": "2",
            "PYTHON": sys.executable,
            "GLOO_SOCKET_IFNAME": "cable",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT / "src"),  # this checkout's own code, whatever is installed
            # Both namespaces have this machine's name: it tells them apart no more than the loopback would.
            "PET_LOCAL_ADDR": host.address,
            "PET_RDZV_CONF": f"is_host={int(host is network.hosts[0])}",
        }
        command = ["ip", "netns", "exec", host.name, str(ROOT / "deploy" / "node.sh"), str(run_file), "--out", str(out)]
        with log.open("wb") as stream:
            nodes.append(subprocess.Popen(command, env=os.environ | given, stdout=stream, stderr=stream, cwd=ROOT))
    session = Session(tuple(nodes), logs)
    try:
        yield session
    finally:
        for node in nodes:
            if node.poll() is None:
                node.terminate()
        for node in nodes:
            node.wait(60)


@final
@dataclass(frozen=True)
class Outcome:
    """What became of a training, in seconds from its beginning where nothing else is said."""

    ended: float
    noticed: float = 0.0  # after the cut, by both hosts
    cut: float = 0.0  # for so long
    again: float = 0.0  # after the end of the cut: training again
    stood_at: int = 0  # the step in the middle of which it was cut off
    went_on_from: int = 0  # the checkpoint's
    begun_again: int = 0  # torchrun itself, by node.sh, of both hosts


def train(network: Network, run_file: Path, out: Path, cut: float | None) -> Outcome:
    """Train on both hosts, with the second one cut off for so many seconds, or not."""
    began = time.monotonic()
    with start(network, run_file, out) as session:
        fields: dict[str, float] = {} if cut is None else _cut(network, session, out, cut)
        session.wait_until(lambda: all(node.poll() == 0 for node in session.nodes), "the end")
        ended = time.monotonic() - began
        if cut is None:
            return Outcome(ended)
        stood = max(int(step) for said in session.said(r"step (\d+) takes longer than") for step in said)
        (went_on,) = {int(step) for said in session.said(r"going on from step (\d+)") for step in said}
        again = sum(map(len, session.said("beginning again")))
        return Outcome(ended, **fields, stood_at=stood, went_on_from=went_on, begun_again=again)


def _cut(network: Network, session: Session, out: Path, seconds: float) -> dict[str, float]:
    second = network.hosts[1]
    session.wait_until((out / "checkpoints" / f"step-{CUT_BEHIND}").exists, f"the checkpoint of step {CUT_BEHIND}")
    network.set_cable(second, "down")
    began = time.monotonic()
    session.wait_until(lambda: all(session.said("it hangs here|has lost the others")), "both to notice")
    noticed = time.monotonic() - began
    time.sleep(max(0.0, seconds - noticed))
    network.set_cable(second, "up")
    mended = time.monotonic()
    session.wait_until(lambda: any(session.said("going on from step")), "training to go on")
    return {"noticed": noticed, "cut": mended - began, "again": time.monotonic() - mended}


def find_differences(one: Path, other: Path) -> list[str]:
    """The files of two trainings' last checkpoint, and lines of metrics, that are not the same."""
    last = Path("checkpoints") / f"step-{LAST_STEP}"
    names = [last / f"{name}.safetensors" for name in ("model", "optimizer")]
    different = [str(name) for name in names if (one / name).read_bytes() != (other / name).read_bytes()]
    return different + (["metrics.jsonl"] if _metrics(one) != _metrics(other) else [])


def _metrics(out: Path) -> list[dict[str, float]]:
    """Without what clocks say."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]


def write_run(folder: Path) -> Path:
    """A run file and its corpora: invented sentences, and what becomes of them, each word spelled backwards."""
    sentences = make_up_sentences(400, 6, vocabulary=97)
    for name, part in (("train", sentences[:370]), ("dev", sentences[370:])):
        reversed_ = (" ".join(word[::-1] for word in sentence.split()) for sentence in part)
        (folder / f"{name}.src").write_text("\n".join(part) + "\n", encoding="utf-8")
        (folder / f"{name}.trg").write_text("\n".join(reversed_) + "\n", encoding="utf-8")
    (folder / "two-hosts.toml").write_text(_RUN, encoding="utf-8")
    return folder / "two-hosts.toml"


def show(whole: Outcome, cut: Outcome) -> list[str]:
    """A table of what happened, in seconds."""
    return [
        "| | never cut off | cut off |",
        "|---|---|---|",
        f"| the second host is out of reach for | | {cut.cut:.0f} s |",
        f"| both hosts have ended their processes after | | {cut.noticed:.0f} s |",
        f"| in the middle of step | | {cut.stood_at} |",
        f"| training goes on, after the cable is back, in | | {cut.again:.0f} s |",
        f"| from step | | {cut.went_on_from} |",
        f"| torchrun itself was begun again | | {cut.begun_again} times |",
        f"| {LAST_STEP} steps, with all starts | {whole.ended:.0f} s | {cut.ended:.0f} s |",
    ]


def measure(folder: Path, cuts: Sequence[float]) -> list[str]:
    """Tables, one for each cut.

    Raises:
        RuntimeError: A training that was cut off ended otherwise than the one that never was.
    """
    run_file, lines = write_run(folder), []
    with make_network() as network:
        whole = train(network, run_file, folder / "whole", None)
        for number, seconds in enumerate(cuts):
            out = folder / f"cut-{number}"
            outcome = train(network, run_file, out, seconds)
            if different := find_differences(folder / "whole", out):
                raise RuntimeError(f"not the same as without the cut: {', '.join(different)}")
            lines += ["", *show(whole, outcome)]
            print(*lines, sep="\n", flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cut", type=float, nargs="+", default=[30.0], help="seconds, of one training each")
    parser.add_argument("--folder", type=Path, help="an empty one, which stays")
    options = parser.parse_args()
    if (why := why_not()) is not None:
        parser.error(why)
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        lines = measure(folder, options.cut)
    cpu = torch.device("cpu")
    same = "Model, optimizer and metrics of the last step are the same, bit for bit."
    lines = [f"{describe_machine(cpu)}; {describe_versions(cpu)}. {same}", *lines]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
