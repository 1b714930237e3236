"""Tabular data in River: features come late and go again, classes join, the process restarts.

    python examples/tabular_river.py

2,310 records of image segments, each predicted before its label is told. At first four classes are there and every
other feature; then all features; then three more classes; then the first features fall away.
"""

from __future__ import annotations

import pickle
import random

from river import datasets, linear_model, metrics, preprocessing

from everlearn.adapters.river import CoPEClassifier

Record = tuple[dict[str, float], str]


def phases() -> dict[str, list[Record]]:
    """The stream in four parts."""
    records = [({str(name): value for name, value in x.items()}, str(y)) for x, y in datasets.ImageSegments()]
    random.Random(0).shuffle(records)
    features, classes = sorted(records[0][0]), sorted({y for _, y in records})
    known = [record for record in records if record[1] in classes[:4]]
    joined = known[800:] + [record for record in records if record[1] in classes[4:]]
    random.Random(1).shuffle(joined)
    return {
        "four classes, half of the features": _only(features[::2], known[:400]),
        "all features": known[400:800],
        "three more classes": joined[:755],
        "a quarter of the features gone": _only(features[len(features) // 4 :], joined[755:]),
    }


def _only(features: list[str], records: list[Record]) -> list[Record]:
    return [({name: x[name] for name in features}, y) for x, y in records]


def main() -> None:
    models = {
        "softmax regression": preprocessing.StandardScaler() | linear_model.SoftmaxRegression(),
        "CoPE": preprocessing.StandardScaler()
        | CoPEClassifier(hidden=64, iterations=3, learning_rate=0.03, momentum=0.9, seed=0),
    }
    for name, model in models.items():
        print(name)
        for phase, records in phases().items():
            accuracy = metrics.Accuracy()
            for x, y in records:
                accuracy.update(y, model.predict_one(x))
                model.learn_one(x, y)
            print(f"    {phase:36s} {accuracy.get():6.1%}")
            model = pickle.loads(pickle.dumps(model))  # a restart: records that wait for their batch go along


if __name__ == "__main__":
    main()
