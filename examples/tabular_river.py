"""Learn from tabular records with River: features appear and disappear, classes are added, the process restarts.

    python examples/tabular_river.py

The stream has 2,310 records of image segments. Each record is predicted before its label is learnt. It starts with
four classes and half of the features; then come all features, then three more classes, then some features disappear.
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
    first_classes = [record for record in records if record[1] in classes[:4]]
    all_classes = first_classes[800:] + [record for record in records if record[1] in classes[4:]]
    random.Random(1).shuffle(all_classes)
    return {
        "four classes, half of the features": select(features[::2], first_classes[:400]),
        "all features": first_classes[400:800],
        "three more classes": all_classes[:755],
        "a quarter of the features gone": select(features[len(features) // 4 :], all_classes[755:]),
    }


def select(features: list[str], records: list[Record]) -> list[Record]:
    """The records with only these features."""
    return [({name: x[name] for name in features}, y) for x, y in records]


def main() -> None:
    # Step 1: two models with the same interface, each behind a scaler.
    models = {
        "softmax regression": preprocessing.StandardScaler() | linear_model.SoftmaxRegression(),
        "CoPE": preprocessing.StandardScaler()
        | CoPEClassifier(hidden=64, iterations=3, learning_rate=0.03, momentum=0.9, seed=0),
    }
    for name, model in models.items():
        print(name)
        for phase, records in phases().items():
            # Step 2: predict each record, then learn from it.
            accuracy = metrics.Accuracy()
            for x, y in records:
                accuracy.update(y, model.predict_one(x))
                model.learn_one(x, y)
            print(f"    {phase:36s} {accuracy.get():6.1%}")

            # Step 3: restart. The pickle includes the records that wait for a full batch.
            model = pickle.loads(pickle.dumps(model))


if __name__ == "__main__":
    main()
