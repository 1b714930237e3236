"""Every learner's speed and peak memory, each in a process of its own, beside a bare cross-entropy step.

    python benchmarks/compare.py [--batches 600] [--out runs]

One core of the CPU and, where there is one, a GPU; 10 new samples a batch, random images of MNIST's size, the
settings of Split-MNIST. Prints a table and draws `benchmark.png`.
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
from step import bare_step, observing_with

from everlearn import learners
from everlearn.experiments.settings import benchmark_settings

BARE = "bare cross-entropy"
WARM_UP = 200


def measure(name: str, device: str, batches: int) -> dict[str, float]:
    """Samples per second and peak memory in MB of one contender, in this process."""
    torch.set_num_threads(1)
    if name == BARE:
        step = bare_step("mlp")
    else:
        settings = benchmark_settings(name, "split-mnist", imbalanced=False)
        step = observing_with(learners.find(name)(device=device, **settings), "mlp", 10)
    for _ in range(WARM_UP):
        step()
    begun = now(device)
    for _ in range(batches):
        step()
    rate = 10 * batches / (now(device) - begun)
    if device == "cuda":
        return {"rate": rate, "peak": torch.cuda.max_memory_allocated() / 1e6}
    return {"rate": rate, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def apart(name: str, device: str, batches: int) -> dict[str, float] | None:
    """The same in a process of its own; None where it can't run without being told of tasks."""
    words = [sys.executable, __file__, "--only", name, "--device", device, "--batches", str(batches)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        print(f"{name} on {device}: skipped, {done.stderr.strip().splitlines()[-1]}")
        return None
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def draw(rates: dict[str, float], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.4 * len(rates) + 1.2), layout="constrained")
    ax = figure.subplots()
    bars = ax.barh(
        list(rates), list(rates.values()), color=["#8c959f" if name == BARE else "#0b6fb8" for name in rates]
    )
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
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.device, options.batches)))
        return
    rates: dict[str, float] = {}
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        print(f"{device}: {'learner':20s} {'samples/s':>10s} {'peak MB':>8s}")
        for name in [*([BARE] if device == "cpu" else []), *learners.registry()]:
            measured = apart(name, device, options.batches)
            if measured is not None:
                print(f"{'':5s}{name:20s} {measured['rate']:10,.0f} {measured['peak']:8,.0f}", flush=True)
                if device == "cpu":
                    rates[name] = measured["rate"]
    draw(rates, options.out / "benchmark.png")
    print(f"picture: {options.out / 'benchmark.png'}")


if __name__ == "__main__":
    main()
