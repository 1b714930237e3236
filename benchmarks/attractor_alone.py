"""What the paper's ablation without pseudo-prototypes measured: CoPE with the attractor of the PPP-loss alone.

    python benchmarks/attractor_alone.py STREAM [--seeds 5] [--samples N] [--device auto]

In the released code the loss loses its repellor together with the pseudo-prototypes; in the paper's equations, and in
everlearn with `pseudo_prototypes=False`, the prototypes stay in both parts. Prints the accuracy of each seed on the
test set, and their mean and standard deviation. On a GPU all seeds run as one cohort.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor

from everlearn import stream
from everlearn.engine.cohort import Cohort
from everlearn.engine.loop import Run, RunOptions
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.settings import benchmark_settings
from everlearn.learners.cope import CoPE
from everlearn.losses import ppp_loss


class AttractorAlone(CoPE):
    """CoPE without pseudo-prototypes and without the repellor."""

    name = "attractor alone"

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        old, old_slots = replay
        both, slots = torch.cat([x, old]), torch.cat([slots, old_slots])
        prototypes, seen = self.prototype_memory.in_use()
        return self.fit_embedding(
            both,
            ppp_loss,
            self.weights(len(x), len(old)),
            slots=slots,
            prototypes=prototypes,
            temperature=self.settings.temperature,
            seen=seen,
            pseudo_prototypes=False,
            gradient=self.settings.gradient,
            repellor=0.0,
        )


def run_of(name: str, seed: int, device: torch.device, samples: int | None) -> Run:
    settings = benchmark_settings("cope", name, False) | {"renormalise": True}
    network = settings.pop("network")
    learner = AttractorAlone(network, seed=seed, device=device, **settings)
    return Run(learner, stream(name, seed=seed), RunOptions(samples=samples, evaluator=Evaluator()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(1)
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device = torch.device(name)
    runs = [run_of(options.stream, seed, device, options.samples) for seed in range(options.seeds)]
    if device.type == "cuda":
        Cohort(runs).finish()
    found = []
    for seed, run in enumerate(runs):
        run.finish()
        found.append(100 * run.result().accuracy)
        print(f"seed {seed}: {found[-1]:.2f}", flush=True)
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    print(f"attractor alone on {options.stream}: {statistics.mean(found):.2f} ± {spread:.2f}")


if __name__ == "__main__":
    main()
