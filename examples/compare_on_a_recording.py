"""Compare learners on a recorded stream: each one gets exactly the same batches.

    python examples/compare_on_a_recording.py [RECORDING ...] [LEARNER ... | all]

Pass the files of your own recordings; without any, split-digits is recorded for three seeds. Accuracy is measured on
the held-out samples of a recording, if it has any. Prequential accuracy is always measured: each batch is predicted
before it is learnt.
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
# The other learners are slow or need the stream in another order; name them, or say `all`, to include them.
DEFAULT_LEARNERS = ["finetune", "reservoir", "cope-ce", "mir", "icarl", "cope", "cope+"]


def record_digits(folder: Path) -> list[Path]:
    """Record split-digits in three different orders."""
    paths = [folder / f"{seed}.stream" for seed in SEEDS]
    for seed, path in zip(SEEDS, paths, strict=True):
        record(stream("split-digits", seed=seed), path)
    return paths


def compare(name: str, paths: list[Path]) -> list[Result]:
    """Run one learner on each recording; if the stream is a benchmark, its settings are used."""
    results = []
    for seed, path in enumerate(paths):
        recorded = playback(path)
        results.append(run(learner(name, stream=recorded, seed=seed), recorded, Evaluator(prequential=True)))
    return results


def table_row(name: str, results: list[Result]) -> str:
    """The means over the recordings, and the bytes of operational memory after the first one."""
    means = [statistics.fmean(getattr(result, metric) for result in results) for metric in METRICS]
    speed = statistics.fmean(result.samples_per_second for result in results)
    columns = "".join(f"{mean:22.1%}" for mean in means)
    return f"{name:11s}{columns}{speed:11,.0f}{results[0].memory_bytes:11,d}"


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)

    # Step 1: tell files from names of learners.
    own = [Path(argument) for argument in arguments if Path(argument).is_file()]
    names = [argument for argument in arguments if Path(argument) not in own] or DEFAULT_LEARNERS
    if names == ["all"]:
        names = sorted(registry())

    with tempfile.TemporaryDirectory() as folder:
        # Step 2: record, unless there are recordings already.
        paths = own or record_digits(Path(folder))

        # Step 3: run every learner on every recording.
        header = "".join(f"{metric:>22s}" for metric in METRICS)
        print(f"{'learner':11s}{header}{'samples/s':>11s}{'bytes':>11s}")
        for name in names:
            print(table_row(name, compare(name, paths)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
