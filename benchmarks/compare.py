"""What every learner costs, ours and other libraries', each in its own process, beside a bare cross-entropy step.

    python benchmarks/compare.py [--batches 600] [--learners cope mir] [--out runs] [--peers-python PATH]

One core of the CPU and, where there is one, a GPU; 10 new samples a batch, random images of MNIST's size, the
settings of Split-MNIST, five tasks. Prints samples per second, that beside a bare cross-entropy step on 20 images,
the bytes of the operational memory at the end (`footprint()`) and the peak of the whole process; draws
`benchmark.png`. Every process takes turns between its learner and the bare step, so that a busy machine slows both.
On the CPU a second is one that the core was at work for this process; what is slow is stopped after 10 of them.
Peers (benchmarks/peers.py) run in the interpreter that is named, by default this one; one that can't be imported
there is skipped, with a message.
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
from peers import PEERS, in_turns
from step import bare_step, observing_with

from everlearn import learners
from everlearn.experiments.settings import benchmark_settings

WARM_UP = 200

Measured = dict[str, float]


def measure(name: str, device: str, batches: int) -> Measured:
    """What one learner costs, in this process, in turns with a bare step."""
    torch.set_num_threads(1)
    learner = learners.find(name)(device=device, **benchmark_settings(name, "split-mnist", imbalanced=False))
    step = observing_with(learner, "mlp", 10)
    for _ in range(WARM_UP):
        step()
    rate, bare = in_turns([step, bare_step("mlp")], batches, lambda: now(device))
    on_gpu = device == "cuda"
    peak = (
        torch.cuda.max_memory_allocated()
        if on_gpu
        else 1e3 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    )
    held = sum(learner.footprint().values())
    return {"rate": 10 * rate, "bare": 10 * bare, "bytes": held, "peak": peak / 1e6}


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
    """The measurement of a process; None, with the reason printed, if it failed."""
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


def show(name: str, measured: Measured) -> None:
    held = f"{measured['bytes'] / 1e6:9.2f}" if "bytes" in measured else f"{'':9s}"
    rate = measured["rate"]
    print(f"{name:20s} {rate:10,.0f} {relative(measured):8.3f} {held} {measured['peak']:8,.0f}", flush=True)


def relative(measured: Measured) -> float:
    """The rate beside that of the bare step, which took turns with it in one process, on the CPU in any case."""
    return measured["rate"] / measured["bare"]


def draw(ratios: dict[str, float], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.4 * len(ratios) + 1.2), layout="constrained")
    ax = figure.subplots()
    names = sorted(ratios, key=lambda name: -ratios[name])
    colours = ["#d1803a" if name in PEERS else "#0b6fb8" for name in names]
    bars = ax.barh(names, [ratios[name] for name in names], color=colours)
    ax.bar_label(bars, fmt="{:.2g}", padding=4, fontsize=9)
    ax.axvline(1, color="#8c959f", linewidth=1)
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("samples learnt per second, beside a bare cross-entropy step; one core")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--learners", nargs="*", choices=learners.registry(), help="by default all")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--peers-python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batches < 1:
        parser.error(f"--batches must be at least 1, not {options.batches}")
    if options.only:
        print(json.dumps(measure(options.only, options.device, options.batches)))
        return
    chosen = options.learners or list(learners.registry())
    measured: dict[str, Measured] = {}
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        print(f"{device:20s} {'samples/s':>10s} {'of bare':>8s} {'M, MB':>9s} {'peak MB':>8s}")
        for name in chosen:
            if (outcome := apart(name, device, options.batches)) is not None:
                show(name, outcome)
                if device == "cpu":
                    measured[name] = outcome
    for name, (_, ours) in PEERS.items():
        if (outcome := peer_apart(name, options.peers_python, options.batches)) is not None:
            measured[name] = outcome
            show(name, outcome)
            if ours in measured:
                times = relative(measured[ours]) / relative(outcome)
                print(f"{'':20s} {ours} learns {times:.1f} times as fast")
    draw({name: relative(outcome) for name, outcome in measured.items()}, options.out / "benchmark.png")
    print(f"picture: {options.out / 'benchmark.png'}")


if __name__ == "__main__":
    main()
