"""Other libraries' online learners, timed as ours are: the same network, batches, memory and optimiser.

    python benchmarks/peers.py "Avalanche CoPE" [--batches 600]

One in a process of its own, one core; prints a JSON object. It needs torch and the peer alone, so that it may run in
another interpreter than everlearn's: `benchmarks/compare.py --peers-python PATH` runs all of them so. Each is driven
the way its own documentation shows for a stream of small batches, with its logging off.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import resource
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

PIXELS, HIDDEN, EMBEDDING, CLASSES = 784, 400, 100, 10
BATCH, MEMORY, LEARNING_RATE = 10, 2000, 0.01
WARM_UP = 200
TURN, LONGEST = 10, 10.0  # batches, seconds

Step = Callable[[], None]


class Grey(nn.Module):
    """Bytes become numbers from 0 to 1, as everlearn takes them."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 255


def network(outputs: int) -> nn.Sequential:
    """The MLP of Split-MNIST."""
    layers = [nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    return nn.Sequential(Grey(), *layers, nn.Linear(HIDDEN, outputs))


def images(count: int) -> tuple[Tensor, Tensor]:
    """Random images and labels of ten classes: the arithmetic does not depend on their content."""
    return torch.randint(0, 256, (count, PIXELS), dtype=torch.uint8), torch.randint(0, CLASSES, (count,))


class Labelled(torch.utils.data.TensorDataset):
    """Images and labels as Avalanche takes a dataset: with the labels as a list of its own."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x, y)
        self.targets = y.tolist()


def avalanche(outputs: int, batches: int, plugin: Callable[[Any, Any], Any], by_task: bool) -> Step:
    """`Naive` with a plugin, on a stream of experiences of ten samples.

    by_task: make the dataset tell its task, too. CoPE's memory fails without; replay is faster without.
    """
    if importlib.util.find_spec("torchvision") is not None:
        # Only data loaders and datasets are used. Its compiled operators may be of another torch; the module that
        # registers them is left out, so that this does not matter.
        left_out = "torchvision._meta_registrations"
        sys.modules[left_out] = types.ModuleType(left_out)
    from avalanche.benchmarks import nc_benchmark
    from avalanche.benchmarks.scenarios import split_online_stream
    from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets
    from avalanche.benchmarks.utils import as_classification_dataset
    from avalanche.training import plugins, storage_policy
    from avalanche.training.supervised import Naive

    data = Labelled(*images(BATCH * batches))
    if by_task:
        whole = nc_benchmark(data, data, n_experiences=1, task_labels=False)
    else:
        whole = benchmark_from_datasets(train=[as_classification_dataset(data)])
    experiences = iter(split_online_stream(whole.train_stream, experience_size=BATCH, shuffle=False))
    model = network(outputs)
    learner = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=BATCH,
        train_epochs=1,
        plugins=[plugin(plugins, storage_policy)],
        evaluator=plugins.EvaluationPlugin(loggers=[]),
    )
    return lambda: learner.train(next(experiences))


def avalanche_cope(batches: int) -> Step:
    def plugin(plugins: Any, _: Any) -> Any:
        return plugins.CoPEPlugin(mem_size=MEMORY, n_classes=CLASSES, p_size=EMBEDDING)

    return avalanche(EMBEDDING, batches, plugin, by_task=True)


def avalanche_replay(batches: int) -> Step:
    """Experience replay from a reservoir: the memory that Avalanche's own example of an online stream takes."""

    def plugin(plugins: Any, policies: Any) -> Any:
        reservoir = policies.ReservoirSamplingBuffer(max_size=MEMORY)
        return plugins.ReplayPlugin(MEMORY, BATCH, BATCH, storage_policy=reservoir)

    return avalanche(CLASSES, batches, plugin, by_task=False)


def deep_river(batches: int) -> Step:
    """`learn_many` of ten rows. It has no memory: half the images of the others' steps, and nothing kept."""
    import pandas as pd
    from deep_river.classification import Classifier

    learner = Classifier(network(CLASSES), "cross_entropy", "sgd", lr=LEARNING_RATE)
    x, y = images(BATCH * 100)
    names = [f"pixel {number}" for number in range(PIXELS)]
    frames = [
        (pd.DataFrame(rows.numpy(), columns=names), pd.Series(labels.numpy()))
        for rows, labels in zip(x.split(BATCH), y.split(BATCH), strict=True)
    ]
    endless = itertools.cycle(frames)
    return lambda: learner.learn_many(*next(endless))


PEERS: dict[
    str, tuple[Callable[[int], Step], str]
] = {  # how it steps, and beside which of our learners it belongs
    "Avalanche CoPE": (avalanche_cope, "cope"),
    "Avalanche replay": (avalanche_replay, "reservoir"),
    "deep-river": (deep_river, "finetune"),
}


def bare_step() -> Step:
    """`loss.backward()` and `optim.SGD` on 20 images: the yardstick."""
    model = network(CLASSES)[1:]
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    x, y = torch.rand(2 * BATCH, PIXELS), torch.randint(0, CLASSES, (2 * BATCH,))

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def in_turns(steps: list[Step], batches: int, now: Callable[[], float]) -> list[float]:
    """Batches per second of each by this clock, in turns of ten: so many, or as many as end within 10 seconds."""
    spent = [0.0 for _ in steps]
    turns = 0
    while turns * TURN < batches and sum(spent) < LONGEST:
        for place, step in enumerate(steps):
            begun = now()
            for _ in range(TURN):
                step()
            spent[place] += now() - begun
        turns += 1
    return [turns * TURN / seconds for seconds in spent]


def measure(name: str, batches: int) -> dict[str, float]:
    """Samples per second of work on a core, the same of a bare step in turns with it, and peak memory in MB."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    steps = [PEERS[name][0](WARM_UP + batches + TURN), bare_step()]
    for _ in range(WARM_UP):
        steps[0]()
    rate, bare = in_turns(steps, batches, time.process_time)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rate": BATCH * rate, "bare": BATCH * bare, "peak": peak / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--batches", type=int, default=600)
    options = parser.parse_args()
    if options.batches < 1:
        parser.error(f"--batches must be at least 1, not {options.batches}")
    warnings.showwarning = lambda *_, **__: (
        None
    )  # one peer warns at every batch of itself; its time is not for that
    with contextlib.redirect_stdout(sys.stderr):
        measured = measure(options.name, options.batches)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
