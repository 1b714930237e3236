"""What an evaluation costs: CoPE on all of MNIST's test set, beside the bare forward pass of its network.

    python benchmarks/evaluation.py [--data-dir DIR] [--turns 15]

One core; random images of the same size where MNIST is not at hand, since the arithmetic does not depend on
them. Both take turns in one process, so that a busy machine slows both; times are medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from everlearn import CoPE, Evaluator, stream
from everlearn.networks import as_input
from everlearn.streams.base import Tests
from everlearn.streams.datasets import DataError


def mnist_or_random(data_dir: str | None) -> tuple[Tests, str]:
    """The held-out samples of split-mnist's five tasks where they can be had, else as many random bytes."""
    try:
        return stream("split-mnist", data_dir=data_dir).tests, "MNIST's test set"
    except DataError:
        x = torch.randint(0, 256, (5, 2000, 784), dtype=torch.uint8)
        return tuple((x[t], torch.arange(2000) % 2 + 2 * t) for t in range(5)), "10,000 random images"


def taught(tests: Tests) -> CoPE:
    """CoPE once it has seen every class."""
    learner = CoPE("mlp", device="cpu", seed=0)
    for x, y in tests:
        for start in range(0, 100, 10):
            learner.observe(x[start : start + 10], y[start : start + 10])
    return learner


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--turns", type=int, default=15)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    tests, name = mnist_or_random(flags.data_dir)
    learner = taught(tests)
    network = learner.snapshot()._frozen.network
    assert network is not None
    everything = torch.cat([x for x, _ in tests])

    @torch.no_grad()
    def forward() -> None:
        for part in everything.split(1000):
            network(as_input(part))

    ways = {"evaluation": lambda: Evaluator().evaluate(learner, tests), "forward": forward}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(flags.turns):
        for way, function in ways.items():
            times[way].append(seconds(function))
    whole, bare = (statistics.median(times[way]) for way in ("evaluation", "forward"))
    print(
        f"CoPE on {name} ({len(everything):,} x {everything[0].numel()}), one core: "
        f"{whole:.3f} s, {whole / bare:.2f} times its network's forward pass"
    )


if __name__ == "__main__":
    main()
