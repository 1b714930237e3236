"""Watching a run: what trackers are told, by our own, TensorBoard and MLflow; metrics of one's own."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import pytest

from everlearn import CoPE, Evaluator, Finetune, Tracker, run, stream
from everlearn.engine.trackers import TensorBoardTracker
from everlearn.evaluation import metrics


class Recorded(Tracker):
    def __init__(self, per_batch: bool = False) -> None:
        self.per_batch = per_batch
        self.told: list[tuple[str, object]] = []

    def start(self, run):
        self.told.append(("start", run))

    def evaluation(self, evaluation, metrics):
        self.told.append(("evaluation", (evaluation, metrics)))

    def batch(self, report):
        self.told.append(("batch", report))

    def end(self, result):
        self.told.append(("end", result))

    def of(self, kind: str) -> list[object]:
        return [what for name, what in self.told if name == kind]


def small(**settings):
    return CoPE(hidden=16, memory_size=50, seed=3, device="cpu", **settings)


def test_a_tracker_is_told_of_the_start_every_evaluation_and_the_end() -> None:
    tracker = Recorded()
    result = run(small(), stream(), Evaluator(every=50), track=tracker)
    assert [name for name, _ in tracker.told] == ["start", *["evaluation"] * len(result.history), "end"]
    assert tracker.told[0][1].name == "cope-split-digits-3"
    assert [evaluation for evaluation, _ in tracker.of("evaluation")] == result.history
    for place, (_, found) in enumerate(tracker.of("evaluation"), 1):
        assert found["anytime_accuracy"] == metrics.anytime_accuracy(result.history[:place])
    assert tracker.of("end") == [result]


def test_a_tracker_may_be_told_of_every_batch() -> None:
    tracker = Recorded(per_batch=True)
    learner = small()
    run(learner, stream(), samples=60, track=tracker)
    reports = tracker.of("batch")
    assert [report.batch for report in reports] == [1, 2, 3, 4, 5, 6]
    assert all(sum(report.labels.values()) == 10 == report.replayed for report in reports)
    assert reports[-1].exemplars == learner.exemplars() and reports[-1].learning_rate == 0.01
    assert 0 < reports[-1].loss < math.log(2) + 0.2


def test_tracking_changes_nothing_in_a_run() -> None:
    plain, watched = (run(small(), stream(), track=t) for t in (None, Recorded(per_batch=True)))
    assert [e.accuracy for e in plain.history] == [e.accuracy for e in watched.history]


def test_a_run_that_fails_still_ends_its_trackers() -> None:
    def broken():
        yield from list(stream())[:3]
        raise OSError("the sensor is gone")

    tracker = Recorded()
    with pytest.raises(RuntimeError, match="the sensor is gone"):
        run(small(), broken(), track=tracker)
    assert tracker.of("end") == [None]


def test_an_asynchronous_evaluator_tells_all_evaluations_too() -> None:
    tracker = Recorded()
    lowest = {"lowest": lambda history: min(each.accuracy for each in history)}
    result = run(small(), stream(), Evaluator(asynchronous=True, metrics=lowest), track=tracker)
    assert len(tracker.of("evaluation")) == len(result.history) == 5
    assert result.metrics["lowest"] == min(each.accuracy for each in result.history)


# Trackers by name


def test_tensorboard_gets_curves_in_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(small(), stream(), track=TensorBoardTracker(tmp_path, per_batch=True))
    events = EventAccumulator(str(tmp_path / "cope-split-digits-3"))
    events.Reload()
    accuracy = events.Scalars("accuracy")
    assert [(point.step, pytest.approx(point.value)) for point in accuracy] == [
        (each.samples, each.accuracy) for each in result.history
    ]
    assert len(events.Scalars("loss")) == 146 and "accuracy of task 5" in events.Tags()["scalars"]
    assert "settings/text_summary" in events.Tags()["tensors"]


def test_mlflow_gets_parameters_and_metrics_in_a_local_store(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database would take seconds to set up
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "mlflow").as_uri()
    result = run(Finetune(hidden=16, seed=1), stream(), track=[f"mlflow:{uri}"])
    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("everlearn").experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["learner"] == "finetune"
    assert found.data.params["hidden"] == "16" and found.data.metrics["accuracy"] == result.accuracy
    curve = client.get_metric_history(found.info.run_id, "anytime_accuracy")
    assert [point.step for point in curve] == [each.samples for each in result.history]


def test_wandb_gets_settings_and_curves_in_an_offline_run(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("wandb", reason="pip install 'everlearn[wandb]'")
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    for name, value in (("MODE", "offline"), ("DIR", str(tmp_path)), ("SILENT", "true"), ("CONSOLE", "off")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    result = run(Finetune(hidden=16, seed=1), stream(), track="wandb:papers")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")

    def written():
        log, settings, curve = DataStore(), {}, []
        log.open_for_scan(str(file))
        while (content := log.scan_data()) is not None:
            record = Record.FromString(content)
            settings |= {each.key: json.loads(each.value_json) for each in record.run.config.update}
            found = {"".join(each.nested_key): json.loads(each.value_json) for each in record.history.item}
            curve += [(found["samples"], found["accuracy"])] if found else []
        log._fp.close()  # `DataStore.close` is for writers
        return settings, curve

    deadline = time.monotonic() + 30  # another process writes the file
    while len(written()[1]) < len(result.history) and time.monotonic() < deadline:
        time.sleep(0.1)
    settings, curve = written()
    assert curve == [(each.samples, each.accuracy) for each in result.history]
    assert settings["learner"] == "finetune" and settings["hidden"] == 16


def test_a_tracker_without_its_package_says_what_to_install(monkeypatch) -> None:
    for package in ("mlflow.tracking", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    for name, what in (("mlflow", r"'everlearn\[track\]'"), ("wandb", r"'everlearn\[wandb\]'")):
        with pytest.raises(ImportError, match=f"pip install {what}"):
            run(small(), stream(), track=name)


def test_a_mistake_is_one_clear_sentence() -> None:
    with pytest.raises(ValueError, match="there is no tracker 'tensorbord'; did you mean 'tensorboard'"):
        run(small(), stream(), track="tensorbord")
    with pytest.raises(ValueError, match="a tracker derives from everlearn.Tracker"):
        run(small(), stream(), track=3)
    with pytest.raises(ValueError, match="metrics are functions of a history .* not 'accuracy'"):
        Evaluator(metrics={"accuracy": len})
    with pytest.raises(
        ValueError, match="the metric 'broken' failed on a history of 1 evaluations: ZeroDivision"
    ):
        run(small(), stream(), Evaluator(metrics={"broken": lambda history: 1 / 0}))


# Metrics of one's own


def test_a_metric_of_ones_own_is_measured_at_every_evaluation() -> None:
    def spread(history):
        values = [each.accuracy for each in history]
        return max(values) - min(values)

    result = run(small(), stream(), Evaluator(metrics={"spread": spread}))
    assert result.metric_curves["spread"] == [spread(result.history[: i + 1]) for i in range(5)]
    assert result.metrics == {"spread": spread(result.history)} and "spread" in repr(result)
