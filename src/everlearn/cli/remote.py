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

__all__ = ["RemoteFlags", "connect", "count", "read", "send"]


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
    text: tuple[str, ...] = ()
    """columns of a CSV file that are text, though they look like numbers, such as postcodes"""
    batch_size: int = 10
    """samples in a request"""


def connect(flags: RemoteFlags) -> Client:
    """A client of the service, once the flags are valid."""
    from everlearn.service.client import Client

    if flags.batch_size < 1:
        raise ValueError(f"the batch size must be at least 1, not {flags.batch_size}")
    flags.file.open("rb").close()  # a file that can't be read is said before a service that does not answer
    return Client(flags.url, flags.model, token=flags.token)


def read(flags: RemoteFlags, takes: dict[str, Any]) -> Samples:
    """The samples of the file. takes: what the model takes."""
    from everlearn.service.files import CsvFlags, read_samples

    return read_samples(flags.file, CsvFlags(flags.label, flags.id, flags.text), takes)


def send(flags: RemoteFlags, samples: Samples, call: Callable[[int, Samples], None], skip: int = 0) -> None:
    """Call a function with each batch and the number of its first sample, and show the progress."""
    from everlearn.service.files import batches

    title = f"{type(flags).__name__.removesuffix('Flags').lower()} {flags.file.name}"
    with _bar(title, len(samples.x) - skip) as advance:
        for start, batch in batches(samples, flags.batch_size, skip):
            call(start, batch)
            advance(len(batch.x))


def count(samples: int) -> str:
    """A number of samples in words.

    >>> count(1), count(2000)
    ('1 sample', '2,000 samples')
    """
    return f"{samples:,} sample{'' if samples == 1 else 's'}"


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
