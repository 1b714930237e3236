"""CURL's first task with as many steps as every other one, as in its original code, beside everlearn's.

    python benchmarks/curl_first_task.py [STREAM] [--epochs 83] [--seeds 1] [--samples N] [--device auto]

Later tasks have a step on generated samples after each step on new ones. The first task has nothing to generate; the
original fills these steps with new samples, everlearn leaves them out. Here a second step on the same batch, with
other noise, takes their place. Prints the accuracy of each seed on the test set, first everlearn's, then with these
steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics

import torch
from torch import Tensor

from everlearn import stream
from everlearn.core.plan import Plan
from everlearn.engine.loop import Run, RunOptions
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.settings import benchmark_settings
from everlearn.learners.curl import CURL
from everlearn.streams.horizon import Horizon


class AsManySteps(CURL):
    """CURL with a second step on every batch of the first task."""

    name = "curl, as many steps"

    def learn(self, x: Tensor, plan: Plan) -> None:
        super().learn(x, plan)
        if self.copy is None:
            super().learn(x, dataclasses.replace(plan, seeds=plan.seeds + 1))


def accuracy(kind: type[CURL], seed: int, options: argparse.Namespace) -> float:
    settings = benchmark_settings("curl", options.stream, False)
    learner = kind(settings.pop("network"), seed=seed, device=options.device, **settings)
    horizon = Horizon("task", epochs=options.epochs)
    tasks = stream(options.stream, seed=seed, batch_size=100)
    run = Run(learner, tasks, RunOptions(samples=options.samples, horizon=horizon, evaluator=Evaluator()))
    run.finish()
    return 100 * run.result().accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream", nargs="?", default="split-mnist")
    parser.add_argument("--epochs", type=int, default=83)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in (CURL, AsManySteps):
        found = []
        for seed in range(options.seeds):
            found.append(accuracy(kind, seed, options))
            print(f"{kind.name}, seed {seed}: {found[-1]:.2f}", flush=True)
        spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
        print(f"{kind.name}, {options.epochs} epochs: {statistics.mean(found):.2f}{spread}")


if __name__ == "__main__":
    main()
