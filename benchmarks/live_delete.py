"""What deleting samples costs: `python benchmarks/live_delete.py [--seeds 3]`.

A live learner learns split-digits; then a twentieth of all samples is deleted, and another twentieth with a fresh
network trained from the memory. Printed are the accuracy on the test samples of all classes and the time of the call.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from everlearn import open_live, stream
from everlearn.experiments.settings import learner
from everlearn.live import Live


def accuracy(live: Live, tests: tuple[tuple[object, object], ...]) -> float:
    """The share of right answers on the test samples."""
    right = [
        answer == label
        for x, y in tests
        for answer, label in zip(live.predict(x), np.asarray(y).tolist(), strict=True)
    ]
    return float(np.mean(right))


def measure(name: str, seed: int) -> dict[str, float]:
    """Learn, delete, and delete again with a fresh network."""
    source = stream("split-digits", seed=seed)
    folder = Path(tempfile.mkdtemp())
    found = {}
    try:
        with open_live(folder / "live", learner(name, source, seed=seed, device="cpu")) as live:
            ids = []
            for number, (x, y, _) in enumerate(source):
                some = [f"{number}/{i}" for i in range(len(x))]
                live.observe(x, y, some)
                ids += some
            found["before"] = accuracy(live, source.tests)
            for what, gone, rebuild in (("deleted", ids[::20], False), ("rebuilt", ids[10::20], True)):
                started = time.perf_counter()
                live.delete(gone, rebuild=rebuild)
                found[f"seconds {what}"] = time.perf_counter() - started
                found[what] = accuracy(live, source.tests)
    finally:
        shutil.rmtree(folder)
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("cope", "cope+", "reservoir"):
        runs = [measure(name, seed) for seed in range(arguments.seeds)]
        shown = {key: mean(run[key] for run in runs) for key in runs[0]}
        print(
            f"{name:10} {100 * shown['before']:.1f} %, "
            f"deleted {100 * shown['deleted']:.1f} % ({shown['seconds deleted']:.2f} s), "
            f"rebuilt {100 * shown['rebuilt']:.1f} % ({shown['seconds rebuilt']:.1f} s)"
        )


if __name__ == "__main__":
    main()
