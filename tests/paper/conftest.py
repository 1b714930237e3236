"""A report, written once for all tests that read it."""

from pathlib import Path

import pytest
from runs_made_up import failed, five, of_experiment, stored

from everlearn.experiments.job import Job
from everlearn.paper import report


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report on four experiments, with a failed run and runs of no experiment."""
    folder = tmp_path_factory.mktemp("report")
    few = ["cope", "icarl", "mir"]
    records = of_experiment("balanced", learners=few, streams=["split-mnist"])
    records += of_experiment("imbalanced", learners=["cope", "cope-ce"], streams=["split-mnist"])
    records += of_experiment("resources", learners=few, streams=["split-mnist"])
    records += five("cope", "split-mnist", [60, 61, 62], settings={"momentum": 0.0})
    records.append(failed(Job("gss", "split-mnist", 0)))
    records += five("cope", "split-mnist", [91, 92], settings={"temperature": 0.3})
    return report.write([stored(folder / "store.sqlite", records)], folder / "out")
