"""What a transaction costs: `observe` beside the same method without its transaction.

    python benchmarks/transaction.py [--learners cope reservoir finetune] [--rounds 10]

MLP 2 x 400, batches of 10 samples of 784 bytes, one thread. Every second batch is learnt without a transaction (no
lock, no number of threads, nothing that could be undone), in turns in one process, so that a busy machine slows both;
the mean of the fastest quarter of each is compared.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from everlearn.learners import find

BATCH, SAMPLES = 10, 2000


def samples() -> tuple[torch.Tensor, list[int]]:
    """Bytes in ten classes, and their labels."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(10, (SAMPLES,), generator=generator)
    centres = torch.rand(10, 784, generator=generator) < 0.2
    x = centres[y] * torch.randint(60, 256, (SAMPLES, 784), generator=generator)
    return x.to(torch.uint8), y.tolist()


def seconds(name: str, rounds: int) -> tuple[float, float]:
    """The time of a batch with and without a transaction."""
    model: Any = find(name)("mlp", seed=0, device="cpu")
    methods = type(model).observe, type(model).observe.__wrapped__
    x, y = samples()
    times: tuple[list[float], list[float]] = [], []
    for turn in range(rounds + 1):  # the first one warms up
        for start in range(0, SAMPLES, BATCH):
            which = (turn + start // BATCH) % 2
            batch = x[start : start + BATCH], y[start : start + BATCH]
            begun = time.perf_counter()
            methods[which](model, *batch)
            if turn:
                times[which].append(time.perf_counter() - begun)
    fastest = [sorted(part)[: len(part) // 4] for part in times]
    return sum(fastest[0]) / len(fastest[0]), sum(fastest[1]) / len(fastest[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", nargs="+", default=["cope", "reservoir", "finetune"])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'learner':12s} {'with':>9s} {'without':>9s} {'cost':>7s}")
    for name in options.learners:
        with_one, without = seconds(name, options.rounds)
        print(
            f"{name:12s} {with_one * 1e6:6.0f} us {without * 1e6:6.0f} us {100 * (with_one / without - 1):5.1f} %"
        )


if __name__ == "__main__":
    main()
