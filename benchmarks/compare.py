"""What every learner costs, ours and other libraries', each in its own process, beside a bare cross-entropy step.

    python benchmarks/compare.py [--batches 600] [--out runs] [--peers-python PATH]

One core of the CPU and, where there is one, a GPU; 10 new samples a batch, random images of MNIST's size, the
settings of Split-MNIST, five tasks. Prints samples per second, the bytes of the operational memory at the end
(`footprint()`) and the peak of the whole process, and draws `benchmark.png`. On the CPU a second is one that the core
was at work for this process, so that what else runs on the machine does not count; one that is slow is stopped after
20 seconds. Peers (benchmarks/peers.py) run in the interpreter that is named, by default this one; one that is not
installed there is skipped, in words.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from peers import PEERS, batches_per_second
from step import bare_step, observing_with

from everlearn import learners
from everlearn.experiments.settings import benchmark_settings

BARE = "bare cross-entropy"
WARM_UP = 200

Measured = dict[str, float]


def measure(name: str, device: str, batches: int) -> Measured:
    """Samples per second, bytes of the operational memory and peak memory in MB of one contender, in this process."""
    torch.set_num_threads(1)
    learner = None
    if name == BARE:
        step = bare_step("mlp")
    else:
        settings = benchmark_settings(name, "split-mnist", imbalanced=False)
        learner = learners.find(name)(device=device, **settings)
        step = observing_with(learner, "mlp", 10)
    for _ in range(WARM_UP):
        step()
    measured = {"rate": 10 * batches_per_second(step, batches, lambda: now(device))}
    if learner is not None:
        measured["bytes"] = sum(learner.footprint().values())
    peak = torch.cuda.max_memory_allocated() / 1e3 if device == "cuda" else ru_maxrss()
    return measured | {"peak": peak / 1e3}


def ru_maxrss() -> float:
    """The most memory that this process ever held, in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def now(device: str) -> float:
    """Seconds: at work on a core, or on the clock where a GPU does the work."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def apart(name: str, device: str, batches: int) -> Measured | None:
    """The same in a process of its own."""
    words = [sys.executable, __file__, "--only", name, "--device", device, "--batches", str(batches)]
    return answer(f"{name} on {device}", words)


def peer_apart(name: str, python: str, batches: int) -> Measured | None:
    """A peer in a process of its own, of the interpreter where it is installed."""
    script = Path(__file__).with_name("peers.py")
    return answer(name, [python, str(script), name, "--batches", str(batches)])


def answer(name: str, words: list[str]) -> Measured | None:
    """What a process measured; None, and why, where it could not."""
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        print(f"{name}: skipped, {words[0]} can't be run: {error.strerror}")
        return None
    if done.returncode:
        print(f"{name}: skipped, {done.stderr.strip().splitlines()[-1]}")
        return None
    measured: Measured = json.loads(done.stdout)
    return measured


def show(name: str, measured: Measured, bare: float) -> None:
    held = f"{measured['bytes'] / 1e6:9.2f}" if "bytes" in measured else f"{'':9s}"
    rate = measured["rate"]
    print(f"{name:20s} {rate:10,.0f} {rate / bare:8.3f} {held} {measured['peak']:8,.0f}", flush=True)


def draw(rates: dict[str, float], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.4 * len(rates) + 1.2), layout="constrained")
    ax = figure.subplots()
    colours = {BARE: "#8c959f"} | dict.fromkeys(PEERS, "#d1803a")
    bars = ax.barh(list(rates), list(rates.values()), color=[colours.get(name, "#0b6fb8") for name in rates])
    ax.bar_label(bars, fmt="{:,.0f}", padding=4, fontsize=9)
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("samples learnt per second, one core")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.device, options.batches)))
        return
    measured: dict[str, Measured] = {}
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        print(f"{device:20s} {'samples/s':>10s} {'of bare':>8s} {'M, MB':>9s} {'peak MB':>8s}")
        contenders = [*([BARE] if device == "cpu" else []), *learners.registry()]
        for name in contenders:
            if (outcome := apart(name, device, options.batches)) is not None:
                if device == "cpu":
                    measured[name] = outcome
                show(name, outcome, measured[BARE]["rate"])
    for name, (_, ours) in PEERS.items():
        if (outcome := peer_apart(name, options.peers_python, options.batches)) is not None:
            measured[name] = outcome
            show(name, outcome, measured[BARE]["rate"])
            print(f"{'':20s} {ours} is {measured[ours]['rate'] / outcome['rate']:.1f} times as fast")
    rates = {name: outcome["rate"] for name, outcome in measured.items()}
    draw(rates, options.out / "benchmark.png")
    print(f"picture: {options.out / 'benchmark.png'}")


if __name__ == "__main__":
    main()
