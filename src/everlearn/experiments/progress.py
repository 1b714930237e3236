"""A progress bar for jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from everlearn.experiments.job import Job

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(what: str, jobs: Sequence[Job]) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; hidden if that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("samples"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=sum(job.passes() for job in jobs))
        yield lambda samples: bar.advance(task, samples)
