"""Where the time of one batch goes: `observe` of CoPE, part by part, in microseconds.

    python benchmarks/breakdown.py [--network mlp | slim-resnet18] [--batches 1000]

One core, random images of the right size, ten classes, a full memory, 10 new samples and 10 replayed. Each part is
the median over batches of the time that the core was at work on it; the rest is what these leave of the whole's.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from step import SHAPES, observing_with

from everlearn import CoPE
from everlearn.core import learner as core
from everlearn.core import validation
from everlearn.losses import ppp_loss

WARM_UP = {"mlp": 300, "slim-resnet18": 20}
FULL = 3000  # samples that fill the memory beforehand

Times = dict[str, list[float]]


def timed(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    """The same function, which records the time of each call."""

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        begun = time.process_time()
        result = function(*args, **kwargs)
        times.append(time.process_time() - begun)
        return result

    return watched


def watch(learner: Any) -> Times:
    """Record the time of every part of a learner that has already observed batches. No part contains another."""
    places: list[tuple[str, Any, str]] = [
        ("validation", validation, "check_batch"),
        ("draw the replay", learner.memory, "draw"),
        ("admit to the memory", learner.memory, "admit"),
        ("gather the replay", learner.memory, "recall"),
        ("bytes to numbers", core, "as_input"),
        ("forward", learner.sgd, "forward"),
        ("gradient of the PPP-loss", ppp_loss, "gradient"),
        ("backward and SGD", None, ""),
        ("move the prototypes", learner.prototype_memory, "move"),
        ("write to the memory", learner.memory, "write"),
        ("whole", learner, "observe"),
    ]
    times: Times = {name: [] for name, *_ in places}
    for name, owner, method in places:
        if owner is not None:
            setattr(owner, method, timed(getattr(owner, method), times[name]))
    forward = learner.sgd.forward

    def timed_forward(x: torch.Tensor) -> Any:
        result = forward(x)
        result.descend = timed(result.descend, times["backward and SGD"])
        return result

    learner.sgd.forward = timed_forward
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=SHAPES, default="mlp")
    parser.add_argument("--batches", type=int, default=1000)
    options = parser.parse_args()
    if options.batches < 1:
        parser.error(f"--batches must be at least 1, not {options.batches}")
    torch.set_num_threads(1)
    shape = SHAPES[options.network]
    learner = CoPE(options.network, device="cpu", seed=0)
    step = observing_with(learner, options.network, 10)
    step()
    rows = learner.memory.admit(torch.randint(0, len(learner.classes), (FULL,)).numpy())
    learner.memory.write(torch.randint(0, 256, (FULL, *shape), dtype=torch.uint8), torch.from_numpy(rows))
    for _ in range(WARM_UP[options.network]):
        step()
    times = watch(learner)
    for _ in range(options.batches):
        step()
    medians = {name: statistics.median(parts) for name, parts in times.items()}
    whole = medians.pop("whole")
    medians["the rest"] = whole - sum(medians.values())
    print(f"{options.network}, one core, torch {torch.__version__}, median of {options.batches} batches")
    for name, median in [*medians.items(), ("whole", whole)]:
        print(f"{name:24s} {1e6 * median:9,.0f} µs {100 * median / whole:6.1f} %")


if __name__ == "__main__":
    main()
