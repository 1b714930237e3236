"""Trackers for TensorBoard, MLflow and Weights & Biases. Each package is imported when its tracker is used."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everlearn.engine.result import Result
from everlearn.engine.tracking import BatchReport, RunStart, Tracker
from everlearn.evaluation.history import Evaluation

__all__ = ["MLflowTracker", "TensorBoardTracker", "WandbTracker", "make"]


def make(name: str, where: str | None) -> Tracker:
    """The tracker of this name. where: the folder, tracking URI or project that it writes to."""
    if name == "tensorboard":
        return TensorBoardTracker(where or Path("runs") / "tensorboard")
    return MLflowTracker(where) if name == "mlflow" else WandbTracker(where or "everlearn")


def _needs(package: str) -> ImportError:
    return ImportError(f"this tracker needs {package}: pip install 'everlearn[track]'")


class _Numbers(Tracker, ABC):
    """A tracker that gets everything as named numbers over samples; a subclass says where they go."""

    def __init__(self, per_batch: bool = False) -> None:
        self.per_batch = per_batch

    def evaluation(self, evaluation: Evaluation, metrics: Mapping[str, float]) -> None:
        """Write all metrics, and the accuracy of each task."""
        tasks = {f"task {task + 1}": value for task, value in evaluation.accuracies.items()}
        self.write(
            {**metrics, **{f"accuracy of {task}": value for task, value in tasks.items()}}, evaluation.samples
        )

    def batch(self, report: BatchReport) -> None:
        """Write the loss, the learning rate and the composition of batch and memory."""
        numbers = {
            "loss": report.loss,
            "learning rate": report.learning_rate,
            "replayed": float(report.replayed),
            "labels in the batch": float(len(report.labels)),
            **{f"batch of {label!s}": float(count) for label, count in report.labels.items()},
            **{f"memory of {label!s}": float(count) for label, count in report.exemplars.items()},
        }
        self.write(numbers, report.samples)

    @abstractmethod
    def write(self, numbers: Mapping[str, float], samples: int) -> None:
        """Write numbers that belong to this number of samples."""


class TensorBoardTracker(_Numbers):
    """Event files for TensorBoard, in a subfolder for each run; `tensorboard --logdir FOLDER` shows them."""

    def __init__(self, folder: str | os.PathLike[str], per_batch: bool = False) -> None:
        super().__init__(per_batch)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _needs("TensorBoard") from None
        self._folder = Path(folder)
        self._open: Any = SummaryWriter
        self._writer: Any = None

    def start(self, run: RunStart) -> None:
        """Open the event file, and write the settings as a text."""
        self._writer = self._open(str(self._folder / _safe(run.name)))
        lines = [f"| {name} | {value} |" for name, value in run.settings.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))

    def write(self, numbers: Mapping[str, float], samples: int) -> None:
        """Write numbers that belong to this number of samples."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, samples)

    def end(self, result: Result | None) -> None:
        """Close the event file."""
        self._writer.close()


class MLflowTracker(_Numbers):
    """A run of MLflow in the experiment `everlearn`. uri: of the store; by default that of `$MLFLOW_TRACKING_URI`."""

    def __init__(self, uri: str | None = None, per_batch: bool = False) -> None:
        super().__init__(per_batch)
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise _needs("MLflow") from None
        self._client: Any = MlflowClient(uri)
        self._run = ""

    def start(self, run: RunStart) -> None:
        """Create the run with its parameters."""
        known = self._client.get_experiment_by_name("everlearn")
        experiment = self._client.create_experiment("everlearn") if known is None else known.experiment_id
        self._run = self._client.create_run(experiment, run_name=run.name).info.run_id
        given = {"learner": run.learner, "stream": run.stream, "seed": run.seed, **run.settings}
        for name, value in given.items():
            self._client.log_param(self._run, name, value)

    def write(self, numbers: Mapping[str, float], samples: int) -> None:
        """Write numbers that belong to this number of samples."""
        for name, value in numbers.items():
            self._client.log_metric(self._run, _safe(name), value, step=samples)

    def end(self, result: Result | None) -> None:
        """End the run."""
        self._client.set_terminated(self._run, "FAILED" if result is None else "FINISHED")


class WandbTracker(_Numbers):
    """A run of Weights & Biases in this project; with `WANDB_MODE=offline` in a folder, which `wandb sync` sends."""

    def __init__(self, project: str = "everlearn", per_batch: bool = False) -> None:
        super().__init__(per_batch)
        try:
            import wandb
        except ImportError:
            raise ImportError("this tracker needs wandb: pip install 'everlearn[wandb]'") from None
        self._wandb: Any = wandb
        self._project = project
        self._run: Any = None

    def start(self, run: RunStart) -> None:
        """Create the run with its settings."""
        given = {"learner": run.learner, "stream": run.stream, "seed": run.seed, **run.settings}
        self._run = self._wandb.init(project=self._project, name=run.name, config=given, reinit="create_new")
        self._run.define_metric("samples")
        self._run.define_metric("*", step_metric="samples")  # the horizontal axis of all curves

    def write(self, numbers: Mapping[str, float], samples: int) -> None:
        """Write numbers that belong to this number of samples."""
        self._run.log({**numbers, "samples": samples})

    def end(self, result: Result | None) -> None:
        """End the run."""
        self._run.finish(exit_code=int(result is None))


def _safe(name: str) -> str:
    """A name with letters that files and stores accept."""
    return "".join(letter if letter.isalnum() or letter in "-_. +" else "-" for letter in name)
