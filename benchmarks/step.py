"""What a batch costs: each learner's `observe` beside a bare cross-entropy step on the same 20 images.

    python benchmarks/step.py [--network mlp | slim-resnet18] [--learners cope] [--compile]

`--compile` sets the bare step beside itself by `torch.compile`, and tells what compiling cost.
One core, random images of the right size (the arithmetic does not depend on their content), 10 new and
10 replayed. Both are timed in turns in one process, so that a busy machine slows both; the ratio is of medians.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from everlearn import learners
from everlearn.core.learner import Learner
from everlearn.networks import SoftmaxNetwork, trunk

SHAPES = {"mlp": (784,), "slim-resnet18": (3, 32, 32)}
WARM_UP, TURNS = 250, 40


def bare_step(network: str, channels_last: bool = False, compiled: bool = False) -> Callable[[], None]:
    """`loss.backward()` and `optim.SGD` on 20 images: the yardstick."""
    model = SoftmaxNetwork(*trunk(network, SHAPES[network], 400), 10)
    if channels_last:
        model.to(memory_format=torch.channels_last)
    passing = torch.compile(model) if compiled else model
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.rand(20, *SHAPES[network]), torch.randint(0, 10, (20,))

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(passing(x), y).backward()
        optimiser.step()

    return step


def observing(name: str, network: str) -> Callable[[], None]:
    """`observe` of a new learner on a stream of random images of ten classes."""
    return observing_with(learners.find(name)(network, device="cpu", seed=0), network, 10)


def observing_with(learner: Learner, network: str, classes: int) -> Callable[[], None]:
    """`observe` of this learner on a stream of random images."""
    batches = [
        (torch.randint(0, 256, (10, *SHAPES[network]), dtype=torch.uint8), torch.randint(0, classes, (10,)))
        for _ in range(100)
    ]
    tasks = [task for task in range(5) for _ in range(160)]  # for learners that need t; the last one stays
    endless = zip(itertools.cycle(batches), itertools.chain(tasks, itertools.repeat(4)), strict=False)

    def step() -> None:
        (x, y), t = next(endless)
        learner.observe(x, y, t)

    return step


def seconds(step: Callable[[], None], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def compiled_steps(network: str) -> dict[str, Callable[[], None]]:
    """The bare step by `torch.compile`, in both layouts of memory, after its first two calls: these compile."""
    steps = {}
    for layout, channels_last in {"": False, ", channels-last": True}.items():
        step = bare_step(network, channels_last, compiled=True)
        spent = 2 * seconds(step, 2)
        print(f"compiling{layout}: {spent:.1f} s until the second batch is learnt", flush=True)
        steps[f"compiled{layout}"] = step
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    captured = [name for name, kind in learners.registry().items() if kind.tensors_alone]
    parser.add_argument("--network", choices=SHAPES, default="mlp")
    parser.add_argument(
        "--learners", nargs="*", choices=captured, help="by default all whose step is tensors alone"
    )
    parser.add_argument("--compile", action="store_true", help="also by torch.compile; also prints its cost")
    options = parser.parse_args()
    network = options.network
    torch.set_num_threads(1)
    repeats = 25 if network == "mlp" else 2
    steps = {"bare cross-entropy": bare_step(network)}
    if network == "slim-resnet18":
        steps["bare, channels-last"] = bare_step(network, channels_last=True)
    if options.compile:
        steps |= compiled_steps(network)
    steps |= {name: observing(name, network) for name in options.learners or captured}
    for step in steps.values():
        seconds(step, WARM_UP if network == "mlp" else 5)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(TURNS if network == "mlp" else TURNS // 4):
        for name, step in steps.items():
            times[name].append(seconds(step, repeats))
    bare = statistics.median(times["bare cross-entropy"])
    print(f"{network}, one core, torch {torch.__version__}; 10 new samples a batch")
    for name, parts in times.items():
        median = statistics.median(parts)
        print(
            f"{name:20s} {1e3 * median:7.2f} ms a batch {10 / median:9,.0f} samples/s "
            f"{bare / median:6.2f} of the bare step's rate"
        )


if __name__ == "__main__":
    main()
