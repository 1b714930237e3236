"""What `everlearn observe` and `everlearn predict` share: a file whose samples go to a service in batches."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

if TYPE_CHECKING:
    from everlearn.service.client import Client
    from everlearn.service.files import Samples

__all__ = ["RemoteFlags", "read", "send"]


@dataclasses.dataclass(frozen=True)
class RemoteFlags:
    """A file of samples, and the service that they are for."""

    file: tyro.conf.Positional[Path]
    """the file: lines {"x": [...], "y": label, "id": id}; a CSV with a header; or arrays x, y and ids"""
    url: str = "http://127.0.0.1:8000"
    """the service"""
    model: str | None = None
    """the model, if the service has several"""
    token: str | None = None
    """a token of the service; by default $EVERLEARN_TOKEN"""
    label: str | None = None
    """the column of labels in a CSV file; by default label or y"""
    id: str | None = None
    """the column of ids in a CSV file; by default id, if there is one"""
    batch_size: int = 10
    """samples in a request"""


def read(flags: RemoteFlags) -> Samples:
    """The samples of the file."""
    from everlearn.service.files import read_samples

    if flags.batch_size < 1:
        raise ValueError(f"the batch size must be at least 1, not {flags.batch_size}")
    return read_samples(flags.file, flags.label, flags.id)


def send(flags: RemoteFlags, samples: Samples, title: str, call: Callable[..., None]) -> Client:
    """Call a function with a client and each batch of samples, labels and ids; returns the client."""
    from everlearn.service.client import Client
    from everlearn.service.files import batches

    with (
        Client(flags.url, flags.model, token=flags.token) as client,
        _bar(f"{title} {flags.file.name}", len(samples.x)) as advance,
    ):
        for x, y, ids in batches(samples, flags.batch_size):
            call(client, x, y, ids)
            advance(len(x))
    return client


@contextmanager
def _bar(title: str, samples: int) -> Iterator[Any]:
    """A progress bar on standard error, only where that is a terminal; yields a function that advances it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=samples)
        yield lambda count: progress.advance(task, count)
