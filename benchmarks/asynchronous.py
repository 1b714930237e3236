"""What asynchronous evaluation costs the learner: its speed with a worker that evaluates, beside its speed alone.

    python benchmarks/asynchronous.py [--data-dir DIR] [--every 100] [--turns 7]

CoPE on split-mnist, one thread each for learner and worker, so two cores are needed; random images of the
same size where MNIST is not at hand. Both kinds of run take turns in one process, so that a busy machine slows
both; the ratio is of medians. The start of the worker and the wait for its last answers are not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics

import torch

from everlearn import CoPE, Evaluator, as_stream, run, stream
from everlearn.streams.base import Stream
from everlearn.streams.datasets import DataError

SAMPLES = 20_000


def mnist_or_random(data_dir: str | None) -> tuple[Stream, str]:
    """Split-MNIST where it can be had, else random bytes of its size, with as many held out."""
    try:
        return stream("split-mnist", data_dir=data_dir), "split-mnist"
    except DataError:
        x = torch.randint(0, 256, (SAMPLES, 784), dtype=torch.uint8)
        y = torch.randint(0, 10, (SAMPLES,))
        return as_stream((x, y), tests=(x[:10_000], y[:10_000])), "random images of MNIST's size"


def samples_per_second(source: Stream, evaluator: Evaluator) -> float:
    """How fast CoPE learns while this evaluator watches."""
    return run(CoPE("mlp", device="cpu", seed=0), source, evaluator, samples=SAMPLES).samples_per_second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--every", type=int, default=100, help="batches from one evaluation to the next")
    parser.add_argument("--turns", type=int, default=7)
    flags = parser.parse_args()
    source, name = mnist_or_random(flags.data_dir)
    watchers = {
        "alone": Evaluator(transitions=False),
        "watched": Evaluator(every=flags.every, asynchronous=True),
    }
    speeds: dict[str, list[float]] = {kind: [] for kind in watchers}
    for _ in range(flags.turns):
        for kind, evaluator in watchers.items():
            speeds[kind].append(samples_per_second(source, evaluator))
    alone, watched = (statistics.median(speeds[kind]) for kind in ("alone", "watched"))
    print(
        f"{name}, {len(os.sched_getaffinity(0))} cores, evaluated every {flags.every} batches: "
        f"{watched:,.0f} of {alone:,.0f} samples/s, {watched / alone:.3f} of the speed without evaluation"
    )


if __name__ == "__main__":
    main()
