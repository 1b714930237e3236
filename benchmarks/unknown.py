"""Which score tells unknown samples from known ones: AUROC of five scores, on digits and MNIST.

    python benchmarks/unknown.py [--streams split-digits split-mnist] [--seeds 3] [--learners cope cope+]

A learner learns eight of the ten classes in one pass; the other two, drawn by the seed, are unknown. A score is good
if it is higher for test samples of the known classes than for those of the unknown: the area under the ROC curve is
the probability of that for a pair of them. Exemplars are at most 1,000 of the memory.

    best score      the largest score of a class, as `unknown=` uses it
    probability     the largest calibrated probability
    energy          log Σ exp of the scores
    neighbours      the mean similarity to the five nearest exemplars
    spread          − the squared distance to the nearest class mean, scaled by the spread of its exemplars
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from everlearn import learner as by_name
from everlearn import stream as stream_by_name
from everlearn.core.learner import Learner
from everlearn.core.prediction import scored
from everlearn.networks import to_unit_length

UNKNOWN, NEAREST, EXEMPLARS, TRAINED, TESTED = 2, 5, 1000, 12_000, 2_000


def features_of(learner: Learner) -> tuple[Tensor, Tensor]:
    """The embeddings of exemplars at unit length, and their classes."""
    samples, labels = learner.memory.samples()
    step = max(-(-len(samples) // EXEMPLARS), 1)
    slots = torch.tensor(learner.labels.slots(labels[::step]))
    return to_unit_length(learner.embed(samples[::step]))[0], slots


def scores(learner: Learner, x: Tensor) -> dict[str, Tensor]:
    """Every score of samples; higher for known ones, it is hoped."""
    by_class = torch.as_tensor(scored(learner, x))
    mine = to_unit_length(learner.embed(x))[0]
    exemplars, slots = features_of(learner)
    near = (mine @ exemplars.T).topk(NEAREST, 1).values.mean(1)
    distances = []
    for slot in range(len(learner.classes)):
        held = exemplars[slots == slot]
        spread = held.var(0).mean() + 1e-6
        distances.append(((mine - held.mean(0)) ** 2).sum(1) / spread)
    return {
        "best score": by_class.amax(1),
        "probability": by_class.softmax(1).amax(1),
        "energy": by_class.logsumexp(1),
        "neighbours": near,
        "spread": -torch.stack(distances).amin(0),
    }


def areas(name: str, stream_name: str, seed: int) -> dict[str, float]:
    """The area under the ROC curve of every score, for one choice of the unknown classes."""
    stream = stream_by_name(stream_name, seed=seed)
    unknown = np.random.default_rng(seed).choice(stream.classes, UNKNOWN, replace=False).tolist()
    learner = by_name(name, stream=stream, seed=seed, device="cpu")
    learnt, whole = 0, stream.samples or 0
    every = max(whole // TRAINED, 1)
    for number, batch in enumerate(stream):
        keep = [i for i, label in enumerate(batch.y.tolist()) if label not in unknown]
        if keep and number % every == 0:
            learner.observe(batch.x[keep], [batch.y.tolist()[i] for i in keep])
            learnt += len(keep)
    tests = [stream.tests[i] for i in range(len(stream.tests))]
    x, y = torch.cat([x for x, _ in tests]), np.concatenate([np.asarray(y) for _, y in tests])
    chosen = np.random.default_rng(seed).permutation(len(y))[:TESTED]
    is_known = ~np.isin(y[chosen], unknown)
    found = scores(learner, x[torch.from_numpy(chosen)])
    return {kind: float(roc_auc_score(is_known, values)) for kind, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", nargs="*", default=["split-digits", "split-mnist"])
    parser.add_argument("--learners", nargs="*", default=["cope", "cope+"])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for stream_name in options.streams:
        for name in options.learners:
            found = [areas(name, stream_name, seed) for seed in range(options.seeds)]
            means = {kind: statistics.mean(one[kind] for one in found) for kind in found[0]}
            ranked = sorted(means.items(), key=lambda item: -item[1])
            print(
                f"{stream_name} {name}: " + "  ".join(f"{kind} {area:.3f}" for kind, area in ranked),
                flush=True,
            )


if __name__ == "__main__":
    main()
