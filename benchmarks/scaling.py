"""What a batch costs as the stream goes on, as classes grow and as the memory grows: each as a ratio.

    python benchmarks/scaling.py

One core, CoPE, MLP 2 x 400 on random images of MNIST's size. The two sides of a ratio are timed in turns.
"""

from __future__ import annotations

import statistics

import torch
from step import observing_with, seconds

from everlearn import CoPE

PIXELS = 784


def taught(classes: int, memory_size: int, samples: int) -> CoPE:
    """A learner that has seen so many classes, with its memory filled by so many samples."""
    learner = CoPE("mlp", memory_size=memory_size, device="cpu", seed=0)
    for start in range(0, classes, 10):
        learner.observe(
            torch.randint(0, 256, (10, PIXELS), dtype=torch.uint8), list(range(start, start + 10))
        )
    for _ in range(0, samples, 1000):
        x = torch.randint(0, 256, (1000, PIXELS), dtype=torch.uint8)
        rows = learner.memory.admit(torch.randint(0, classes, (1000,)).numpy())
        learner.memory.write(x, torch.from_numpy(rows))
    return learner


def ratio(name: str, slow: CoPE, fast: CoPE, bound: float) -> None:
    """How much more a batch costs one learner than the other."""
    steps = [observing_with(learner, "mlp", 10) for learner in (slow, fast)]
    for step in steps:
        seconds(step, 50)
    turns = [[seconds(step, 20) for step in steps] for _ in range(40)]
    quotient = statistics.median(turn[0] / turn[1] for turn in turns)
    print(f"{name:45s} {quotient:5.2f}  (at most {bound})", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    ratio("1,000 classes against 10", taught(1000, 20_000, 50_000), taught(10, 20_000, 50_000), 1.5)
    ratio("memory of 100,000 against 1,000", taught(10, 100_000, 200_000), taught(10, 1000, 200_000), 1.2)
    late = taught(10, 2000, 2000)
    step = observing_with(late, "mlp", 10)
    seconds(step, 3000)
    ratio("after 30,000 samples against the start", late, taught(10, 2000, 2000), 1.1)


if __name__ == "__main__":
    main()
