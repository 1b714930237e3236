"""All learners compared on one recorded stream: the same batches, to the last bit, for each.

    python examples/compare_on_a_recording.py [RECORDING ...] [LEARNER ... | all]

Without a recording it records split-digits, once for each of three seeds. A recording of your own is compared on its
held-out samples if it has some, and in any case by prequential accuracy: each batch predicted before it is learnt.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import torch

from everlearn import Evaluator, learner, playback, record, run, stream
from everlearn.engine.result import Result
from everlearn.learners import registry

SEEDS = range(3)
METRICS = ["accuracy", "forgetting", "prequential_accuracy"]
# The others are slow, or see the stream shuffled: they take part when they are named.
QUICK = ["finetune", "reservoir", "cope-ce", "mir", "icarl", "cope", "cope+"]


def recordings(folder: Path) -> list[Path]:
    """Three recordings of split-digits, each in an order of its own."""
    paths = [folder / f"{seed}.stream" for seed in SEEDS]
    for seed, path in zip(SEEDS, paths, strict=True):
        record(stream("split-digits", seed=seed), path)
    return paths


def compare(name: str, paths: list[Path]) -> list[Result]:
    """One learner on each recording, with the benchmark's settings where there are some."""
    results = []
    for seed, path in enumerate(paths):
        yesterday = playback(path)
        results.append(
            run(learner(name, stream=yesterday, seed=seed), yesterday, Evaluator(prequential=True))
        )
    return results


def line(name: str, results: list[Result]) -> str:
    """Means over the recordings; bytes are those of the operational memory at the end of the first."""
    first = [statistics.fmean(getattr(r, metric) for r in results) for metric in METRICS]
    speed = statistics.fmean(r.samples_per_second for r in results)
    return (
        f"{name:11s}"
        + "".join(f"{value:22.1%}" for value in first)
        + f"{speed:11,.0f}{results[0].memory_bytes:11,d}"
    )


def main(words: list[str]) -> None:
    torch.set_num_threads(1)
    own = [Path(word) for word in words if Path(word).is_file()]
    names = [word for word in words if Path(word) not in own] or QUICK
    with tempfile.TemporaryDirectory() as folder:
        paths = own or recordings(Path(folder))
        print(
            "learner    "
            + "".join(f"{metric:>22s}" for metric in METRICS)
            + f"{'samples/s':>11s}{'bytes':>11s}"
        )
        for name in sorted(registry()) if names == ["all"] else names:
            print(line(name, compare(name, paths)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
