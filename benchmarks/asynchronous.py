"""What asynchronous evaluation costs the learner: its speed with a worker that evaluates, beside its speed alone.

    python benchmarks/asynchronous.py [--data-dir DIR] [--every 500] [--turns 7]

CoPE on split-mnist, one thread each for learner and worker, so two cores are needed; random images of the
same size where MNIST is not at hand. Both kinds of run take turns in one process, so that a busy machine slows
both; the ratios are of medians. The start of the worker and the wait for its last answers are not counted. On
a machine whose cores have other work, the time that the learner itself spends on its core is the better measure.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
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


def speeds(source: Stream, evaluator: Evaluator) -> tuple[float, float]:
    """How many samples CoPE learns in a second, and in a second of its own process's time on a core."""
    start = time.process_time()
    result = run(CoPE("mlp", device="cpu", seed=0), source, evaluator, samples=SAMPLES)
    return result.samples_per_second, result.samples / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--every", type=int, default=500, help="batches from one evaluation to the next")
    parser.add_argument("--turns", type=int, default=7)
    flags = parser.parse_args()
    source, name = mnist_or_random(flags.data_dir)
    watchers = (Evaluator(tests=()), Evaluator(every=flags.every, asynchronous=True))
    turns = [[speeds(source, evaluator) for evaluator in watchers] for _ in range(flags.turns)]
    # [turns, alone or watched, by the wall or by the core]
    (alone, alone_on_core), (watched, watched_on_core) = np.median(np.array(turns), axis=0).tolist()
    print(
        f"CoPE on {name}, {len(os.sched_getaffinity(0))} cores, evaluated every {flags.every} batches meanwhile: "
        f"{watched:,.0f} of {alone:,.0f} samples/s, {watched / alone:.3f} of the speed without evaluation "
        f"({watched_on_core / alone_on_core:.3f} by the learner's own time on its core)"
    )


if __name__ == "__main__":
    main()
