"""`everlearn observe`: send the labelled samples of a file to a service."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tyro

from everlearn.cli.flags import in_one_sentence

__all__ = ["ObserveFlags", "bar", "command"]


@dataclasses.dataclass(frozen=True)
class ObserveFlags:
    """Send the labelled samples of a .jsonl, .csv or .npz file to `everlearn serve`, in order."""

    file: tyro.conf.Positional[Path]
    """the file: lines {"x": [...], "y": label, "id": id}; a CSV with a header; or arrays x, y and ids"""
    url: str = "http://127.0.0.1:8000"
    """the service"""
    model: str | None = None
    """the model, if the service has several"""
    token: str | None = None
    """a token with the scope learn; by default $EVERLEARN_TOKEN"""
    batch_size: int = 10
    """samples that are learnt together"""
    label: str | None = None
    """the column of labels in a CSV file; by default label or y"""
    id: str | None = None
    """the column of ids in a CSV file; by default id, if there is one"""


def command(words: list[str]) -> int:
    """Send the samples; returns the exit code."""
    flags = in_one_sentence(lambda: tyro.cli(ObserveFlags, args=words, prog="everlearn observe"))
    from everlearn.service.client import Client
    from everlearn.service.files import batches, read_samples

    check_size(flags.batch_size)
    samples = read_samples(flags.file, flags.label, flags.id)
    if samples.y is None:
        raise ValueError(f"{flags.file} has no labels: name them y, or a column of a CSV file with --label")
    begun = time.monotonic()
    with (
        Client(flags.url, flags.model, token=flags.token) as client,
        bar(f"observe {flags.file.name}", len(samples.x)) as advance,
    ):
        for x, y, ids in batches(samples, flags.batch_size):
            client.observe(x, y, ids)
            advance(len(x))
    seconds = time.monotonic() - begun
    rate = len(samples.x) / max(seconds, 1e-9)
    print(f"{len(samples.x):,} samples in {seconds:.1f} s ({rate:,.0f}/s); position {client.position:,}")
    return 0


def check_size(size: int) -> None:
    """Raise a ValueError for a batch size below 1."""
    if size < 1:
        raise ValueError(f"the batch size must be at least 1, not {size}")


@contextmanager
def bar(title: str, samples: int) -> Iterator[Any]:
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
