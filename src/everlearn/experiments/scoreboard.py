"""A scoreboard of learners beside streaming methods of other libraries, on streams of records.

Every model predicts each record before it learns it: the same records in the same order, one default setting each.
Linear models get records scaled by River's StandardScaler; ours scale them themselves, and trees need none.
A result is written to a file as soon as it is there, and a later call goes on from that file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Protocol

import numpy as np

from everlearn import learners
from everlearn.evaluation.calibration import expected_calibration_error, kappa
from everlearn.messages import nearest
from everlearn.streams.record_stream import RECORD_STREAMS, RecordStream, record_stream

__all__ = ["MODELS", "Score", "read_scores", "score", "scoreboard", "table"]

SEEDS = 3
RECORDS = 50_000  # at most so many records of a stream, its first ones; SRP takes hours for more


class Model(Protocol):
    """A model that learns records one by one."""

    def predict(self, x: Any) -> tuple[Any, float]:
        """The predicted class and its probability."""

    def learn(self, x: Any, y: Any) -> None:
        """Learn a record."""


@dataclasses.dataclass(frozen=True)
class Score:
    """The result of one model on one stream with one seed."""

    stream: str
    model: str
    seed: int
    accuracy: float
    kappa: float
    calibration_error: float
    records: int
    records_per_second: float


class _Ours:
    """A learner by name, with its defaults."""

    def __init__(self, name: str, seed: int) -> None:
        self._learner = learners.find(name)(seed=seed, device="cpu")

    def predict(self, x: Any) -> tuple[Any, float]:
        if not self._learner.classes:
            return None, 0.0
        (row,) = self._learner.predict_proba(x[None])
        return self._learner.classes[int(row.argmax())], float(row.max())

    def learn(self, x: Any, y: Any) -> None:
        self._learner.observe(x[None], [y])


class _NoChange:
    """Predicts the label of the record before."""

    def __init__(self) -> None:
        self._last: Any = None

    def predict(self, x: Any) -> tuple[Any, float]:
        return self._last, 1.0

    def learn(self, x: Any, y: Any) -> None:
        self._last = y


class _River:
    """A classifier of River."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, x: Any) -> tuple[Any, float]:
        found = self._model.predict_proba_one(dict(enumerate(x.tolist())))
        if not found:
            return None, 0.0
        label = max(found, key=found.__getitem__)
        return label, min(float(found[label]), 1.0)

    def learn(self, x: Any, y: Any) -> None:
        self._model.learn_one(dict(enumerate(x.tolist())), y)


class _SGD:
    """Scikit-learn's linear model, which must be told the classes, on records that are scaled online."""

    def __init__(self, classes: Sequence[int], seed: int) -> None:
        from river.preprocessing import StandardScaler
        from sklearn.linear_model import SGDClassifier  # type: ignore[import-untyped,unused-ignore]

        self._model = SGDClassifier(loss="log_loss", random_state=seed)
        self._scaler: Any = StandardScaler()
        self._classes, self._fitted = list(classes), False

    def _scaled(self, x: Any) -> Any:
        return np.array([list(self._scaler.transform_one(dict(enumerate(x.tolist()))).values())])

    def predict(self, x: Any) -> tuple[Any, float]:
        if not self._fitted:
            return None, 0.0
        (row,) = self._model.predict_proba(self._scaled(x))
        return self._model.classes_[row.argmax()].item(), float(row.max())

    def learn(self, x: Any, y: Any) -> None:
        self._scaler.learn_one(dict(enumerate(x.tolist())))
        self._model.partial_fit(self._scaled(x), [y], classes=self._classes)
        self._fitted = True


def _arf(stream: RecordStream, seed: int) -> Model:
    from river.forest import ARFClassifier

    return _River(ARFClassifier(seed=seed))


def _hat(stream: RecordStream, seed: int) -> Model:
    from river.tree import HoeffdingAdaptiveTreeClassifier

    return _River(HoeffdingAdaptiveTreeClassifier(seed=seed))


def _srp(stream: RecordStream, seed: int) -> Model:
    from river.ensemble import SRPClassifier

    return _River(SRPClassifier(seed=seed))


def _logistic(stream: RecordStream, seed: int) -> Model:
    from river.linear_model import LogisticRegression
    from river.multiclass import OneVsRestClassifier
    from river.preprocessing import StandardScaler

    return _River(StandardScaler() | OneVsRestClassifier(LogisticRegression()))


MODELS: dict[str, Callable[[RecordStream, int], Model]] = {
    **{
        name: lambda stream, seed, name=name: _Ours(name, seed)  # type: ignore[misc]
        for name in ("cope", "cope+", "cope-ce", "reservoir", "finetune")
    },
    "ARF (River)": _arf,
    "HAT (River)": _hat,
    "SRP (River)": _srp,
    "logistic regression (River)": _logistic,
    "SGDClassifier (scikit-learn)": lambda stream, seed: _SGD(stream.classes, seed),
    "no change": lambda stream, seed: _NoChange(),
}


def score(model: Model, stream: RecordStream, name: str, seed: int, records: int = RECORDS) -> Score:
    """Predict, then learn, every record; returns what was measured."""
    truth = stream.y[:records].tolist()
    rows = stream.x[:records].numpy()
    predicted: list[Any] = []
    confidence: list[float] = []
    start = time.process_time()  # of the processor: other work on the machine does not count
    for x, y in zip(rows, truth, strict=True):
        label, sure = model.predict(x)
        predicted.append(label)
        confidence.append(sure)
        model.learn(x, y)
    seconds = time.process_time() - start
    correct = [label == y for label, y in zip(predicted, truth, strict=True)]
    return Score(
        stream.name,
        name,
        seed,
        float(np.mean(correct)),
        kappa(truth, predicted),
        expected_calibration_error(confidence, correct),
        len(truth),
        len(truth) / seconds,
    )


def scoreboard(
    path: Path,
    streams: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: int | None = None,
    data_dir: Path | None = None,
    records: int = RECORDS,
) -> Iterator[Score]:
    """Run what the file lacks; yields every score as soon as it is there, those in the file first.

    path: a file of JSON lines. streams, models: only these; by default all. seeds: 3 by default.
    """
    streams, models = list(streams or RECORD_STREAMS), list(models or MODELS)
    for known, given, what in ((RECORD_STREAMS, streams, "stream of records"), (MODELS, models, "model")):
        for name in given:
            if name not in known:
                raise ValueError(f"there is no {what} {name!r}{nearest(name, known)}")
    done = read_scores(path)
    for stream_name, seed, model_name in itertools.product(streams, range(seeds or SEEDS), models):
        stored = [s for s in done if (s.stream, s.model, s.seed) == (stream_name, model_name, seed)]
        if stored:
            yield stored[-1]
            continue
        stream = record_stream(stream_name, 1, seed, data_dir)
        found = score(MODELS[model_name](stream, seed), stream, model_name, seed, records)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(found)) + "\n")
        yield found


def read_scores(path: Path) -> list[Score]:
    """The scores in a file of an earlier call; a line that was cut short is ignored."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        try:
            found.append(Score(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def table(scores: Sequence[Score]) -> list[tuple[str, ...]]:
    """A row for each stream and model, the best first: means over seeds, and the spread of the accuracy."""
    rows: list[tuple[str, ...]] = []
    for stream in dict.fromkeys(score.stream for score in scores):
        groups: dict[str, list[Score]] = {}
        for each in scores:
            if each.stream == stream:
                groups.setdefault(each.model, []).append(each)
        ranked = sorted(groups.items(), key=lambda item: -mean(one.accuracy for one in item[1]))
        for model, group in ranked:
            spread = f" ± {100 * stdev([one.accuracy for one in group]):.2f}" if len(group) > 1 else ""
            rows.append(
                (
                    stream,
                    model,
                    f"{100 * mean(one.accuracy for one in group):.2f}{spread}",
                    f"{mean(one.kappa for one in group):.3f}",
                    f"{mean(one.calibration_error for one in group):.3f}",
                    f"{mean(one.records_per_second for one in group):,.0f}",
                    f"{min(one.records for one in group):,}",
                    str(len(group)),
                )
            )
    return rows
