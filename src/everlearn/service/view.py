"""What a model holds and how well it does, as JSON: for /v1/status, /v1/history and the dashboard."""

from __future__ import annotations

import base64
import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import everlearn
from everlearn.label_json import UNKNOWN, Label
from everlearn.service.served import ServedModel
from everlearn.service.wire import encode_labels

__all__ = ["accuracy_of", "dashboard_of", "history_of", "input_of", "status_of"]

MOST_CLASSES = 12  # in the confusion matrix
MOST_ROWS = 200  # of the table of classes
MOST_EVENTS = 300
MOST_MISTAKES = 24
LARGEST_PICTURE = 64  # pixels of a side of a thumbnail; larger pictures are thinned out
SHOWN_VALUES = 12  # of a sample that is no picture
SHOWN_CHARACTERS = 120  # of a text


def status_of(model: ServedModel) -> dict[str, Any]:
    """The status of a live learner, with what the service itself knows."""
    status = model.live.status()
    accuracy = status["accuracy"]
    per_class = [{"label": _one(label), **figures} for label, figures in accuracy.pop("per_class").items()]
    tested = model.monitor
    return {
        **status,
        "model": model.name,
        "classes": encode_labels(status["classes"]),
        "learnt": [status["learnt"].get(label, 0) for label in status["classes"]],
        "exemplars": [status["exemplars"].get(label, 0) for label in status["classes"]],
        "accuracy": {**accuracy, "per_class": per_class},
        "before_learning": {
            "accuracy": tested.right / tested.samples if tested.samples else None,
            "rolling": tested.rolling_accuracy(),
            "samples": tested.samples,
        },
        "samples_per_second": tested.samples_per_second(),
        "queue": model.changing,
        "predictions": model.predictions,
        "rejected": model.rejected,
        "consumer": None if model.consumer is None else model.consumer.status(),
    }


def input_of(model: ServedModel) -> dict[str, Any]:
    """What the model takes."""
    learner, position = model.live.learner, model.live.position
    shape, kind, columns = learner.sample_shape, learner.sample_type, learner.columns
    return {
        "columns": None
        if columns is None
        else [
            {"name": _one(name), "categories": None if slots is None else encode_labels(slots)}
            for name, slots in zip(columns.names, columns.categories, strict=True)
        ],
        "shape": None if shape is None else list(shape),
        "type": None if kind is None else str(kind).removeprefix("torch."),
        "encoder": None if learner.encoder is None else learner.encoder.name,
        "missing_labels": learner.settings.missing_labels,
        "position": position,
    }


def history_of(model: ServedModel) -> dict[str, Any]:
    """Accuracy over time, and events."""
    return {
        "events": [_event(event) for event in model.live.history()],
        "answers": model.live.curve(),
        "before_learning": list(model.monitor.points),
        "columns": ["position", "time", "samples", "accuracy"],
    }


def _event(event: dict[str, Any]) -> dict[str, Any]:
    return event | ({"label": _one(event["label"])} if "label" in event else {})


def _one(label: Label) -> Any:
    return encode_labels([label])[0]


def accuracy_of(model: ServedModel, status: dict[str, Any]) -> dict[str, Any]:
    """Accuracy of answers whose labels were told; without any, of predictions before learning."""
    told = status["accuracy"]
    if told["told"]:
        pairs = _answers(model)
        return {
            "source": "answers",
            "rolling": told["rolling"],
            "overall": told["overall"],
            "window": told["window"],
            "count": told["told"],
            "unknown": _unknown(model, pairs),
        }
    monitor = model.monitor
    return {
        "source": "tested",
        "rolling": monitor.rolling_accuracy(),
        "overall": monitor.right / monitor.samples if monitor.samples else None,
        "window": len(monitor.window),
        "count": monitor.samples,
        "unknown": _unknown(model, monitor.pairs()),
    }


def _answers(model: ServedModel) -> list[tuple[Label, Label]]:
    """The last labels and answers."""
    return [pair for pair, count in model.live.confusion().items() for _ in range(count)]


def _unknown(model: ServedModel, pairs: Sequence[tuple[Label, Label]]) -> float | None:
    """The share of UNKNOWN among answers; None if the learner rejects nothing."""
    if model.live.learner.settings.unknown is None or not pairs:
        return None
    return sum(answer is UNKNOWN for _, answer in pairs) / len(pairs)


def dashboard_of(model: ServedModel, models: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the dashboard shows."""
    live, status = model.live, model.live.status()
    accuracy = accuracy_of(model, status)
    pairs = _answers(model) if accuracy["source"] == "answers" else model.monitor.pairs()
    return {
        "model": model.name,
        "models": list(models) or [model.name],
        "learner": status["learner"],
        "network": status["network"],
        "version": everlearn.__version__,
        "time": time.time(),
        "position": status["position"],
        "samples": status["samples"],
        "batches": status["batches"],
        "classes": len(status["classes"]),
        "exemplars": sum(status["exemplars"].values()),
        "memory_bytes": sum(live.learner.footprint().values()),
        "waiting": status["waiting"],
        "never_told": status["never_told"],
        "delay": status["delay"]["median"],
        "alarms": status["alarms"],
        "refused": status["refused"],
        "accuracy": accuracy,
        "curve": {"answers": live.curve(), "tested": list(model.monitor.points)},
        "events": [_event_in_words(event) for event in live.history()[-MOST_EVENTS:]],
        "rate": model.monitor.samples_per_second(5),
        "rates": model.monitor.rates(),
        "queue": model.changing,
        "queue_limit": model.limits.queue,
        "lag": max(live.position - live.snapshot().position, 0),
        "step": status["seconds"]["step"],
        "fsync": status["seconds"]["commit"],
        "predictions": model.predictions,
        "snapshot_age": status["snapshot"]["age"],
        "journal_bytes": status["journal_bytes"],
        "consumer": None if model.consumer is None else model.consumer.status(),
        "per_class": _per_class(model, status, pairs),
        "confusion": _confusion(pairs),
        "mistakes": _mistakes(model, accuracy["source"]),
    }


def name_of(label: Label) -> str:
    """A label as the dashboard shows it.

    >>> name_of("cat"), name_of(3), name_of(UNKNOWN), name_of(("a", 1)), name_of("")
    ('cat', '3', 'unknown', "('a', 1)", "''")
    """
    if label is UNKNOWN:
        return "unknown"
    return label if isinstance(label, str) and label.strip() else repr(label)


def _event_in_words(event: dict[str, Any]) -> dict[str, Any]:
    return event | ({"label": name_of(event["label"])} if "label" in event else {})


def _per_class(
    model: ServedModel, status: dict[str, Any], pairs: Sequence[tuple[Label, Label]]
) -> list[dict[str, Any]]:
    seen, right = (
        Counter(label for label, _ in pairs),
        Counter(label for label, said in pairs if label == said),
    )
    learnt = status["learnt"]
    return [
        {
            "label": name_of(label),
            "accuracy": right[label] / seen[label] if seen[label] else None,
            "learnt": learnt.get(label, 0),
            "exemplars": status["exemplars"].get(label, 0),
        }
        for label in status["classes"][:MOST_ROWS]
    ]


def _confusion(pairs: Sequence[tuple[Label, Label]]) -> dict[str, Any]:
    """Counts of label and answer; of many classes, those with most errors."""
    counts = Counter(pairs)
    # The answer may be a class of which no label came lately.
    classes = [
        label for label in dict.fromkeys(itertools.chain.from_iterable(counts)) if label is not UNKNOWN
    ]
    errors = Counter[Label]()
    for (label, said), count in counts.items():
        if label != said:
            errors[label] += count
            errors[said] += count
    errors.pop(UNKNOWN, None)
    kept = (
        classes if len(classes) <= MOST_CLASSES else [label for label, _ in errors.most_common(MOST_CLASSES)]
    )
    kept = sorted(
        kept, key=lambda label: (isinstance(label, str), label if isinstance(label, (str, int)) else 0)
    )
    answers = [*kept, *([UNKNOWN] if any(said is UNKNOWN for _, said in counts) else [])]
    return {
        "labels": [name_of(label) for label in kept],
        "answers": [name_of(label) for label in answers],
        "counts": [[counts[label, said] for said in answers] for label in kept],
        "left_out": len(classes) - len(kept),
    }


def _mistakes(model: ServedModel, source: str) -> list[dict[str, Any]]:
    found: list[tuple[Any, Label, Label, int, Any]]
    if source == "answers":
        found = [
            (each.id, each.label, each.answer, each.position, each.sample.cpu().numpy())
            for each in model.live.mistakes()
        ]
    else:
        found = [
            (None, each.label, each.predicted, each.position, each.sample)
            for each in model.monitor.last_mistakes()
        ]
    learner = model.live.learner
    width = getattr(learner.settings, "width", None)
    named = learner.columns is not None  # never pictures
    encoded = learner.encoder is not None and source == "answers"  # vectors, which say nothing to a person
    return [
        {
            "id": None if key is None else name_of(key),
            "label": name_of(label),
            "answer": name_of(said),
            "position": position,
            **({} if encoded else _shown(sample, named, width)),
        }
        for key, label, said, position, sample in reversed(found[-MOST_MISTAKES:])
    ]


def _shown(sample: NDArray[Any] | dict[Label, Any] | str, named: bool, width: int | None) -> dict[str, Any]:
    """A sample as a picture, or as text. named: whether its values have names."""
    if named or isinstance(sample, dict | str):
        return _written(sample)
    return _drawn(sample, width)


def _written(sample: NDArray[Any] | dict[Label, Any] | str) -> dict[str, Any]:
    """The first values of a sample as text, with the names of their columns if there are any; the start of a text.

    >>> _written({"amount": 12.5, "country": "NO"}), _written(np.array([1.0, 2.5])), _written("my card is lost")
    ({'values': 'amount 12.5  country NO'}, {'values': '1  2.5'}, {'values': 'my card is lost'})
    """
    if isinstance(sample, str):
        return {"values": sample[:SHOWN_CHARACTERS] + (" …" if len(sample) > SHOWN_CHARACTERS else "")}
    if isinstance(sample, dict):
        words = [
            f"{name_of(name)} {f'{value:.3g}' if isinstance(value, float) else name_of(value)}"
            for name, value in sample.items()
        ]
    else:
        words = [f"{value:.3g}" for value in sample.ravel().tolist()]
    return {"values": "  ".join(words[:SHOWN_VALUES]) + (" …" if len(words) > SHOWN_VALUES else "")}


def _drawn(sample: NDArray[Any], width: int | None) -> dict[str, Any]:
    """A sample as a picture, or its first values as text."""
    planes = _planes(sample, width)
    if planes is None:
        return _written(sample)
    thin = max(1, math.ceil(max(planes.shape[1:]) / LARGEST_PICTURE))
    planes = planes[:, ::thin, ::thin].astype(np.float64)
    if sample.dtype != np.uint8:
        low, high = float(planes.min()), float(planes.max())
        planes = (planes - low) * (255 / (high - low or 1))
    pixels = planes.round().clip(0, 255).astype(np.uint8)
    return {
        "picture": {
            "planes": len(pixels),
            "height": pixels.shape[1],
            "width": pixels.shape[2],
            "pixels": base64.b64encode(pixels.tobytes()).decode(),
        }
    }


def _planes(sample: NDArray[Any], width: int | None) -> NDArray[Any] | None:
    """The sample as an image `[channels, height, width]`, if it looks like one."""
    if sample.ndim == 3 and sample.shape[0] in (1, 3) and min(sample.shape[1:]) >= 8:
        return sample
    if sample.ndim == 2 and min(sample.shape) >= 8:
        return sample[None]
    side = math.isqrt(sample.size)
    if sample.ndim == 1 and width is not None and sample.size % width == 0:
        return sample.reshape(1, -1, width)
    is_square = side * side == sample.size and side >= 8
    # A flat square without negative values is most likely an image.
    if sample.ndim == 1 and is_square and (sample.dtype == np.uint8 or float(sample.min()) >= 0):
        return sample.reshape(1, side, side)
    return None
