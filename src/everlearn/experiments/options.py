"""Which part of an experiment to run, and where: one list of options for Python and the command line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

from everlearn.core.arguments import as_device
from everlearn.experiments.runner import Backend
from everlearn.experiments.store import STORE

__all__ = ["SweepOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Which part of an experiment to run, and where."""

    learners: tuple[str, ...] = ()
    """only these learners; by default all"""
    streams: tuple[str, ...] = ()
    """only these streams; by default all"""
    rows: tuple[str, ...] = ()
    """only these rows of its tables, such as "pcr, with additions"; by default all"""
    columns: tuple[str, ...] = ()
    """only these columns of its tables, such as "memory 2000"; by default all"""
    seeds: int | None = None
    """runs of each cell, with seeds 0, 1, …; by default as many as the paper's"""
    quick: bool = False
    """a small version on split-digits with two seeds, which takes a minute"""
    store: Path = STORE
    """the file that stores the runs"""
    backend: Backend = "local"
    """local: processes here, cohorts on a GPU; ray: many machines"""
    address: str | None = None
    """address of the Ray cluster; by default $RAY_ADDRESS, or the one on this machine, or a new one"""
    workers: int | None = None
    """processes on this machine; by default one for each core"""
    device: str = "auto"
    """auto (an NVIDIA GPU if there is one), cpu, cuda, or mps (Apple)"""
    data_dir: Path | None = None
    """folder of the datasets"""

    def __post_init__(self) -> None:
        # Lists and strings are what people type.
        for name in ("learners", "streams", "rows", "columns"):
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))
        object.__setattr__(self, "store", Path(self.store))
        if self.data_dir is not None:
            object.__setattr__(self, "data_dir", Path(self.data_dir))

    def check(self) -> None:
        """Raise a ValueError for an option with which every run would fail."""
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, not {self.seeds}")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, not {self.workers}")
        if self.device not in ("auto", "cpu", "cuda", "mps"):
            raise ValueError(f"device is auto, cpu, cuda or mps, not {self.device!r}")
        if self.backend not in get_args(Backend):
            raise ValueError(f"backend is {' or '.join(get_args(Backend))}, not {self.backend!r}")
        if self.backend == "local":  # with Ray, the runs are on other machines than this one
            as_device(self.device)
        if self.address is not None and self.backend != "ray":
            raise ValueError(f"--address {self.address} is of a Ray cluster: add --backend ray")
