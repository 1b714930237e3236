"""Figures for Prometheus, computed when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from everlearn.label_json import Label
from everlearn.service.served import ServedModel
from everlearn.service.view import accuracy_of

__all__ = ["exposition"]

KIND = "text/plain; version=0.0.4; charset=utf-8"


def exposition(models: dict[str, ServedModel]) -> tuple[bytes, str]:
    """The figures of all models in Prometheus' text format, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(models))
    return generate_latest(registry), KIND


class _Figures:
    """A collector of all models' figures."""

    def __init__(self, models: dict[str, ServedModel]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        gauges = {
            "position": "position of the last change in the journal",
            "snapshot_lag": "changes that the snapshot for predictions is behind",
            "queue_length": "changes that wait",
            "disk_snapshot_age_seconds": "age of the latest snapshot on disk",
            "journal_bytes": "size of the journal",
            "classes": "classes seen",
            "waiting_samples": "samples that wait for their label",
            "samples_per_second": "samples learnt per second, over the last ten seconds",
            "step_seconds": "time to apply a change, rolling mean",
            "fsync_seconds": "time to commit to the journal, rolling mean",
            "rolling_accuracy": "share of right answers among the last labels",
        }
        counters = {
            "samples": "samples learnt",
            "batches": "batches learnt",
            "rejected_requests": "requests that were refused since too many waited",
            "refused_batches": "batches that the learner refused",
            "drift_alarms": "alarms of the drift detector",
            "consumed_messages": "messages of a source that were applied",
            "skipped_messages": "messages of a source that could not be applied",
        }
        values = {name: _values(model) for name, model in self._models.items()}
        for figure, text in gauges.items():
            gauge = GaugeMetricFamily(f"everlearn_{figure}", text, labels=["model"])
            for name, found in values.items():
                if found[figure] is not None:
                    gauge.add_metric([name], float(found[figure] or 0.0))
            yield gauge
        for figure, text in counters.items():
            counter = CounterMetricFamily(f"everlearn_{figure}", text, labels=["model"])
            for name, found in values.items():
                counter.add_metric([name], float(found[figure] or 0.0))
            yield counter
        yield from self._times()
        memory = GaugeMetricFamily(
            "everlearn_memory_exemplars", "exemplars in memory", labels=["model", "class"]
        )
        for name, model in self._models.items():
            counts = model.live.snapshot().exemplars()
            for text, count in zip(_texts(counts), counts.values(), strict=True):
                memory.add_metric([name, text], count)
        yield memory

    def _times(self) -> Iterator[Metric]:
        for figure, text in (
            ("change", "a change, with the time in the queue"),
            ("prediction", "a prediction"),
        ):
            times = SummaryMetricFamily(f"everlearn_{figure}_seconds", f"time of {text}", labels=["model"])
            for name, model in self._models.items():
                count = model.changes if figure == "change" else model.predictions
                total = model.change_seconds if figure == "change" else model.prediction_seconds
                times.add_metric([name], count, total)
            yield times


def _texts(labels: Iterable[Label]) -> list[str]:
    """A text of each label, in characters that UTF-8 has; no two are equal, since a series has one value.

    >>> _texts(["cat", 1, "1", "\\ud800"])
    ['cat', '1', "'1'", '\\\\ud800']
    """
    found: dict[str, None] = {}
    for label in labels:
        text = str(label).encode(errors="backslashreplace").decode()
        while text in found:
            text = repr(text)
        found[text] = None
    return list(found)


def _values(model: ServedModel) -> dict[str, float | None]:
    status, snapshot = model.live.status(), model.live.snapshot()
    messages = {} if model.consumer is None else model.consumer.status()
    return {
        "position": model.live.position,
        "snapshot_lag": model.live.position - snapshot.position,
        "queue_length": model.changing,
        "disk_snapshot_age_seconds": status["snapshot"]["age"],
        "journal_bytes": status["journal_bytes"],
        "classes": len(status["classes"]),
        "waiting_samples": status["waiting"],
        "samples_per_second": model.monitor.samples_per_second(),
        "step_seconds": status["seconds"]["step"],
        "fsync_seconds": status["seconds"]["commit"],
        "rolling_accuracy": accuracy_of(model, status)["rolling"],
        "samples": status["samples"],
        "batches": status["batches"],
        "rejected_requests": model.rejected,
        "refused_batches": status["refused"],
        "drift_alarms": status["alarms"],
        "consumed_messages": messages.get("applied", 0),
        "skipped_messages": messages.get("skipped", 0),
    }
