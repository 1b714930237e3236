"""Which samples to label: `live.suggest` against random choice, `python benchmarks/live_suggest.py [--seeds 5]`.

Samples of a stream arrive 100 at a time and wait for labels; after each arrival only 10 of those that wait are
labelled. Printed is the accuracy on the test samples of the classes so far, the mean over all arrivals.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch

from everlearn import open_live, stream
from everlearn.experiments.settings import learner

ARRIVE, LABELLED = 100, 10
ITERATIONS = 10  # steps on each batch, since there are few


def accuracy(name: str, order: str, dataset: str, choice: str, seed: int, most: int) -> float:
    """The mean accuracy over the arrivals."""
    source = stream(dataset, seed=seed, batch_size=ARRIVE, scenario=order)
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp())
    made = learner(name, seed=seed, device="cpu", iterations=ITERATIONS)
    found = []
    try:
        with open_live(folder / "live", made, snapshot_every=10**9) as live:
            truth = {}
            for number, (x, y, _) in enumerate(source):
                if number == most:
                    break
                ids = [f"{number}/{i}" for i in range(len(x))]
                truth |= dict(zip(ids, np.asarray(y).tolist(), strict=True))
                live.ask(ids, x)
                waiting = list(live.learner.waiting.samples)
                random_ones = chance.sample(waiting, LABELLED)
                told = live.suggest(LABELLED) if choice == "suggest" else random_ones
                live.tell(told, [truth[key] for key in told])
                arrived = set(truth.values())
                tests = [
                    (sample, label)
                    for samples, labels in source.tests
                    for sample, label in zip(samples, np.asarray(labels).tolist(), strict=True)
                    if label in arrived
                ]
                tests = random.Random(0).sample(tests, min(len(tests), 1000))
                answers = live.predict(torch.stack([torch.as_tensor(sample) for sample, _ in tests]))
                found.append(
                    np.mean([answer == label for answer, (_, label) in zip(answers, tests, strict=True)])
                )
    finally:
        shutil.rmtree(folder)
    return float(mean(found))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--dataset", default="split-digits")
    parser.add_argument("--learners", nargs="*", default=["cope+", "reservoir"])
    parser.add_argument("--most", type=int, default=30, help="arrivals at most")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{arguments.dataset}, {LABELLED} labels for {ARRIVE} samples, {arguments.seeds} seeds")
    for order in ("iid", "split"):
        for name in arguments.learners:
            each = {
                choice: [
                    accuracy(name, order, arguments.dataset, choice, seed, arguments.most)
                    for seed in range(arguments.seeds)
                ]
                for choice in ("random", "suggest")
            }
            gains = [
                100 * (ours - other) for ours, other in zip(each["suggest"], each["random"], strict=True)
            ]
            spread = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
            print(
                f"{order:6} {name:10} random {100 * mean(each['random']):5.1f} %  suggest "
                f"{100 * mean(each['suggest']):5.1f} %  gain {mean(gains):+.1f} ± {spread:.1f}"
            )


if __name__ == "__main__":
    main()
