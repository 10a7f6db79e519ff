"""Training on one CUDA device beside its peers: tokens a second, use of the matrix units, memory, and a loss curve.

    python -m benchmarks.gpu_training [--data DIR] [--sizes base,big] [--compile] [--quick --device cpu]

Batches of at most 25,000 tokens a side, as in section 5.1: of train.en.gz and train.de.gz of DIR, or random ones of
mixed lengths. Prints a Markdown table and writes it to gpu_training.md of benchmarks/results, with gpu_training.json.
The use counts the operations that the formulas take for the tokens that there are (no padding, nothing computed twice,
the projection included), over the rate that one large product reaches in the same process. --quick shows, on a
processor too, that all of it works, and writes nothing unless --out says where. Ours runs as shipped, without CUDA
graphs, and by PyTorch's own kernels alone.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import torch

from benchmarks.peers.batches import Corpus, mixed_corpus, real_corpus
from benchmarks.peers.contestant import RATE, Contestant, TrainStep, make_contestants
from benchmarks.peers.loss_curves import compare_curves
from benchmarks.peers.machine import describe_machine, describe_versions
from benchmarks.peers.report import show_curves
from benchmarks.peers.sizes import describe, make_config, parse_sizes
from transduce.data import Batch
from transduce.kernels import resolve_precision
from transduce.models import Transformer
from transduce.training import step_work
from transduce.workflows.flops import count_training

RESULTS: Final = Path(__file__).parent / "results"
WARM_UP: Final = 5  # steps
PRODUCTS: Final = 20
WIDTH: Final = {"cpu": 1024, "cuda": 8192}  # of products large enough for the device's best rate
FLOAT32: Final = Contestant("ours", "transduce", "float32")
QUICK: Final = {"sizes": ["tiny"], "rounds": 1, "steps": 2, "curve": 4, "batch_tokens": 256, "vocabulary": 1000}
LENGTHS: Final = ("source_lengths", "target_lengths")
HEAD: Final = (
    "| model | | precision | target tokens a second | source tokens a second | TFLOP/s | use | peak memory, GiB |",
    "|---|---|---|---|---|---|---|---|",
)


@final
@dataclass(frozen=True)
class Speed:
    """What one contestant does in a second; ``memory`` is the most that it held, in bytes (0: nobody counted)."""

    size: str
    contestant: Contestant
    target_tokens: float
    source_tokens: float
    flops: float
    memory: int

    def show(self, peak: float) -> str:
        """A row of the table; ``peak`` is the large product's rate."""
        precision = self.contestant.precision + ("" if self.contestant.comparable else " (trains otherwise)")
        tokens = f"{self.target_tokens:,.0f} | {self.source_tokens:,.0f}"
        use = f"{self.flops / 1e12:,.2f} | {self.flops / peak:.1%}"
        return f"| {self.size} | {self.contestant.name} | {precision} | {tokens} | {use} | {self.memory / 2**30:.2f} |"


def main() -> None:
    options = parse()
    device, corpus = torch.device(options.device), read_corpus(options)
    peak = measure_peak(device)
    lines = ["# Training on one device beside its peers", "", describe_setting(options, corpus, peak), "", *HEAD]
    print(*lines, sep="\n", flush=True)
    speeds = []
    for size in options.sizes:
        for speed in measure(size, corpus, device, options):
            speeds.append(speed)
            lines.append(speed.show(peak))
            print(lines[-1], flush=True)
    pair = speeds[0].contestant, FLOAT32
    config = make_config(options.sizes[0], corpus.vocab_size, dropout=0.0)
    (curve,) = compare_curves(config, device, corpus, pair, options.curve)
    shown = show_curves(f"{options.sizes[0]}; {corpus.name}", [curve])
    print("", *shown, sep="\n")
    if options.out:
        record = {"setting": lines[2], "large_product_flops": peak, "curve": asdict(curve)}
        write(options.out, [*lines, "", *shown], {**record, "speeds": [asdict(speed) for speed in speeds]})


def measure(size: str, corpus: Corpus, device: torch.device, options: argparse.Namespace) -> Iterator[Speed]:
    """Ours as shipped and otherwise, then every peer whose products are in bfloat16, one after the other."""
    config, batches = make_config(size, corpus.vocab_size), corpus.take(WARM_UP, options.steps)
    flops = count_training(config, step_work(batches))
    source, target = (sum(int(getattr(batch, name).sum()) for batch in batches) for name in LENGTHS)
    torch.manual_seed(1)
    resident = 0  # bytes of our weights and optimizer, which stay while the peers train
    for number, (contestant, step) in enumerate(
        make_contestants(Transformer(config).to(device), compiled=options.compile)
    ):
        ours = contestant.family == "ours"
        if number and (contestant.precision == "float32" or (ours and device.type == "cpu")):
            continue
        gc.collect()  # whatever is left of the one before
        # What will be measured goes through twice: a shape is launched, then recorded, then replayed.
        run(step, [*corpus.take(0, WARM_UP), *batches, *batches])
        reset_memory(device)
        seconds = statistics.median(run(step, batches) for _ in range(options.rounds))
        held, most = read_memory(device)
        memory = most if ours else most - resident
        yield Speed(size, contestant, target / seconds, source / seconds, flops / seconds, memory)
        resident = resident if number else held


def run(step: TrainStep, batches: Sequence[Batch]) -> float:
    """Train on these batches and return the seconds that it took."""
    synchronize()
    start = time.perf_counter()
    for batch in batches:
        step(batch, RATE)
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    """Wait until the device has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure_peak(device: torch.device) -> float:
    """Operations a second of large square products, one behind the other, in the format that training has here."""
    width, dtype = WIDTH[device.type], resolve_precision("auto", device)
    left, right = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))
    product = left @ right
    synchronize()
    start = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(left, right, out=product)
    synchronize()
    return PRODUCTS * 2 * width**3 / (time.perf_counter() - start)


def reset_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def read_memory(device: torch.device) -> tuple[int, int]:
    """Bytes of tensors now, and at most since the reset; 0 where nobody counts."""
    if device.type != "cuda":
        return 0, 0
    return torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)


def read_corpus(options: argparse.Namespace) -> Corpus:
    if options.data:
        return real_corpus(options.data, options.batch_tokens, options.vocabulary)
    # Enough that no batch comes twice in a round: a pair has 27 tokens or so.
    pairs = (WARM_UP + options.steps) * options.batch_tokens // 20
    return mixed_corpus(pairs, options.batch_tokens, options.vocabulary)


def describe_setting(options: argparse.Namespace, corpus: Corpus, peak: float) -> str:
    device = torch.device(options.device)
    models = "; ".join(f"{size}: {describe(make_config(size, corpus.vocab_size))}" for size in options.sizes)
    return (
        f"{describe_machine(device)}; {describe_versions(device)}. {corpus.describe()}. {models}. Medians of "
        f"{options.rounds} rounds of {options.steps} steps. The use is a share of the {peak / 1e12:,.1f} TFLOP/s that "
        f"{WIDTH[device.type]:,}-wide square products in {resolve_precision('auto', device)} reached. What CUDA graphs "
        f"hold on to is not in the memory."
    )


def write(folder: Path, lines: list[str], record: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu_training.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "gpu_training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sizes", type=parse_sizes, default=["base", "big"])
    parser.add_argument("--vocabulary", type=int, default=37_000)
    parser.add_argument("--batch-tokens", type=int, default=25_000, help="budget of a batch for each side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="of each contestant in each round")
    parser.add_argument("--curve", type=int, default=100, metavar="STEPS", help="of ours, and of ours in float32")
    parser.add_argument("--compile", action="store_true", help="the peers by torch.compile, too")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_known_args()[0].quick
    # What is given goes before what --quick means.
    parser.set_defaults(**QUICK if quick else {"out": RESULTS})
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here: --quick --device cpu shows that the rest works")
    return options


if __name__ == "__main__":
    main()
