"""What a record costs: `learn_one` and `predict_one` beside River's trees and a bare PyTorch step.

    python benchmarks/learn_one.py [--batch-sizes 10 32] [--learners cope reservoir]

One core, 20 features, an MLP of 2 x 64, four classes. A batch is so many new records and as many replayed; the bare
step is `loss.backward()` and `optim.SGD` on as many samples as both, already in a tensor. River's Hoeffding adaptive
tree and adaptive random forest get the same records, one by one. All are timed in turns in
one process, so that a busy machine slows all; rates and ratios are of medians. Records per second are measured by the
clock on the wall, and by the time that the core was at work on this process, which other processes do not take from.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from everlearn import learners
from everlearn.adapters.river import OnlineClassifier
from everlearn.networks import SoftmaxNetwork, trunk

FEATURES, HIDDEN, CLASSES = 20, 64, 4
RECORDS, TURNS, WARM_UP = 320, 40, 20  # records in a turn
SLOWER = 10  # a turn of a tree has this many times fewer

Step = Callable[[], None]


def records() -> list[tuple[dict[str, float], int]]:
    """Records of four classes that a line in two of the features tells apart."""
    values = np.random.default_rng(0).normal(size=(5000, FEATURES))
    names = [f"feature {number}" for number in range(FEATURES)]
    labels = (values[:, 0] > 0) + 2 * (values[:, 1] > 0)
    rows = zip(values.tolist(), labels.tolist(), strict=True)
    return [(dict(zip(names, row, strict=True)), label) for row, label in rows]


def learning(model: Any, count: int = RECORDS) -> Step:
    """A turn of `learn_one`."""
    endless = itertools.cycle(records())

    def turn() -> None:
        for x, y in itertools.islice(endless, count):
            model.learn_one(x, y)

    return turn


def predicting(model: Any, count: int = RECORDS) -> Step:
    """A turn of `predict_one`."""
    endless = itertools.cycle(records())

    def turn() -> None:
        for x, _ in itertools.islice(endless, count):
            model.predict_one(x)

    return turn


def trees() -> dict[str, Any]:
    """River's Hoeffding adaptive tree and adaptive random forest, with their defaults."""
    from river.forest import ARFClassifier
    from river.tree import HoeffdingAdaptiveTreeClassifier

    return {"HAT": HoeffdingAdaptiveTreeClassifier(seed=0), "ARF": ARFClassifier(seed=0)}


def bare(batch_size: int) -> Step:
    """A turn of bare steps for as many new records: the yardstick."""
    model = SoftmaxNetwork(*trunk("mlp", (FEATURES,), HIDDEN), CLASSES)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(2 * batch_size, FEATURES), torch.randint(0, CLASSES, (2 * batch_size,))

    def turn() -> None:
        for _ in range(RECORDS // batch_size):
            optimiser.zero_grad()
            cross_entropy(model(x), y).backward()
            optimiser.step()

    return turn


def deep_river(batch_size: int) -> Step | None:
    """deep-river's classifier with the same network, fed the same batches, where it is installed."""
    if importlib.util.find_spec("deep_river") is None:
        return None
    import pandas
    from deep_river.classification import Classifier

    module = torch.nn.Sequential(trunk("mlp", (FEATURES,), HIDDEN)[0], torch.nn.Linear(HIDDEN, CLASSES))
    model = Classifier(module=module, loss_fn="cross_entropy", optimizer_fn="sgd", lr=0.01)
    stream = records()
    batches = [stream[start : start + batch_size] for start in range(0, len(stream), batch_size)]
    frames = [
        (pandas.DataFrame([x for x, _ in batch]), pandas.Series([y for _, y in batch])) for batch in batches
    ]
    endless = itertools.cycle(frames)

    def turn() -> None:
        for x, y in itertools.islice(endless, RECORDS // batch_size):
            model.learn_many(x, y)

    return turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", nargs="*", type=int, default=[10, 16, 32])
    parser.add_argument("--learners", nargs="*", choices=learners.registry(), default=["cope", "reservoir"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    turns: dict[tuple[str, int], Step] = {}
    for size in options.batch_sizes:
        turns["bare step", size] = bare(size)
        for name in options.learners:
            model = OnlineClassifier(name, batch_size=size, seed=0, settings={"hidden": HIDDEN})
            turns[name, size] = learning(model)
            turns[f"{name}, predict_one", size] = predicting(model)
        if peer := deep_river(size):
            turns["deep-river", size] = peer
    for name, model in trees().items():
        turns[name, 1] = learning(model, RECORDS // SLOWER)
        turns[f"{name}, predict_one", 1] = predicting(model, RECORDS // SLOWER)
    for turn in turns.values():
        for _ in range(WARM_UP):
            turn()
    wall: dict[tuple[str, int], list[float]] = {key: [] for key in turns}
    work: dict[tuple[str, int], list[float]] = {key: [] for key in turns}
    for _ in range(TURNS):
        for key, turn in turns.items():
            start, begun = time.perf_counter(), time.process_time()
            turn()
            wall[key].append(time.perf_counter() - start)
            work[key].append(time.process_time() - begun)
    print(
        f"learn_one and predict_one, {FEATURES} features, MLP 2 x {HIDDEN}, one core, torch {torch.__version__}"
    )
    for key in turns:
        # A turn of whole batches, which may be a few records short of a turn of single ones.
        count = RECORDS // key[1] * key[1] if key[0] in ("bare step", "deep-river") else RECORDS
        count = RECORDS // SLOWER if key[1] == 1 else count
        rates = [count / statistics.median(times[key]) for times in (wall, work)]
        line = f"{rates[0]:9,.0f} records/s  {rates[1]:9,.0f} a second of work"
        if ("bare step", key[1]) in wall:
            step = RECORDS // key[1] * key[1] / statistics.median(wall["bare step", key[1]])
            line += f"  {rates[0] / step:5.2f} of the bare step's rate"
        print(f"batches of {key[1]:3d}  {key[0]:22s} {line}")
    if importlib.util.find_spec("deep_river") is None:
        print("deep-river is not installed: left out")


if __name__ == "__main__":
    main()
