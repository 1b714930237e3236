"""Whether probabilities of images can be trusted: calibration error of CoPE, by kind of calibration.

    python benchmarks/image_calibration.py [--streams split-digits split-mnist] [--seeds 3] [--kinds none replay]
        [--scenario iid] [--benchmark]

Every batch is predicted before it is learnt, which gives the prequential error; the test images are predicted at the
end. All settings are the learner's defaults, or with `--benchmark` those of the benchmark. Last comes the time of
`observe` on images of that stream, as a ratio to the same learner without calibration: the median of batches that two
learners observe in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

from everlearn import CoPE
from everlearn import learner as by_name
from everlearn import stream as stream_by_name
from everlearn.evaluation.calibration import expected_calibration_error
from everlearn.streams.base import Stream


def made(options: argparse.Namespace, stream: Stream, seed: int, kind: str) -> Any:
    """The learner of one run."""
    if options.benchmark:
        return by_name("cope", stream=stream, seed=seed, device="cpu", calibration=kind)
    return CoPE(seed=seed, device="cpu", calibration=kind)


def opened(options: argparse.Namespace, name: str, seed: int) -> Stream:
    """The stream of one run."""
    scenario = {} if options.scenario is None else {"scenario": options.scenario}
    return stream_by_name(name, seed=seed, **scenario)


def one_run(options: argparse.Namespace, name: str, seed: int, kind: str) -> dict[str, float]:
    """Accuracy and calibration error, prequentially and on the test images."""
    stream = opened(options, name, seed)
    learner = made(options, stream, seed, kind)
    arrived: list[tuple[float, bool]] = []
    tested: list[tuple[float, bool]] = []

    def compare(x: Any, y: Any, into: list[tuple[float, bool]]) -> None:
        p = learner.predict_proba(x)
        best = (learner.classes[slot] for slot in p.argmax(1))
        right = (label == truth for label, truth in zip(best, np.asarray(y).tolist(), strict=True))
        into += zip(p.max(1).tolist(), right, strict=True)

    for batch in stream:
        if learner.classes:
            compare(batch.x, batch.y, arrived)
        learner.observe(batch.x, batch.y)
    for number in range(len(stream.tests)):
        compare(*stream.tests[number], tested)
    found = {}
    for what, pairs in (("prequential", arrived), ("test", tested)):
        sure, right = zip(*pairs, strict=True)
        found[f"{what} accuracy"] = float(np.mean(right))
        found[f"{what} error"] = expected_calibration_error(sure, right)
    return found


def slowdown(options: argparse.Namespace, name: str, kind: str, batches: int = 400) -> float:
    """The time of `observe` with this calibration, divided by that without."""
    stream = opened(options, name, 0)
    pair = [made(options, stream, 0, each) for each in (kind, "none")]
    sums: list[list[float]] = [[], []]
    for number, batch in enumerate(stream):
        if number == batches:
            break
        for place in (0, 1) if number % 8 < 4 else (1, 0):
            start = time.perf_counter()
            pair[place].observe(batch.x, batch.y)
            sums[place].append(time.perf_counter() - start)
    # The mean of four batches in turn, one of which is used for the fit.
    means = [np.array(part[: len(part) // 4 * 4]).reshape(-1, 4).mean(1) for part in sums]
    return float(np.median(means[0]) / np.median(means[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", nargs="*", default=["split-digits", "split-mnist"])
    parser.add_argument("--kinds", nargs="*", default=["none", "temperature", "replay"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenario")
    parser.add_argument("--benchmark", action="store_true", help="with the benchmark's settings")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.streams:
        for kind in options.kinds:
            runs = [one_run(options, name, seed, kind) for seed in range(options.seeds)]
            said = (
                f"{what} {statistics.mean(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})"
                for what in runs[0]
                for values in [[run[what] for run in runs]]
            )
            ratio = slowdown(options, name, kind)
            print(f"{name}, {kind}: {'; '.join(said)}; observe takes {ratio:.3f} times as long", flush=True)


if __name__ == "__main__":
    main()
