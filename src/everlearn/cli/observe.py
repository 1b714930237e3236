"""`everlearn observe`: send the labelled samples of a file to a service."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.cli.remote import RemoteFlags, read, send

__all__ = ["ObserveFlags", "command"]


@dataclasses.dataclass(frozen=True)
class ObserveFlags(RemoteFlags):
    """Send the labelled samples of a .jsonl, .csv or .npz file to `everlearn serve`, in order."""

    batch_size: int = 10
    """samples that are learnt together"""


def command(words: list[str]) -> int:
    """Send the samples; returns the exit code."""
    flags = in_one_sentence(lambda: tyro.cli(ObserveFlags, args=words, prog="everlearn observe"))
    samples = read(flags)
    if samples.y is None:
        raise ValueError(f"{flags.file} has no labels: name them y, or a column of a CSV file with --label")

    def observe(client: Any, x: Any, y: Any, ids: Any) -> None:
        client.observe(x, y, ids)

    begun = time.monotonic()
    client = send(flags, samples, "observe", observe)
    seconds = time.monotonic() - begun
    rate = len(samples.x) / max(seconds, 1e-9)
    print(f"{len(samples.x):,} samples in {seconds:.1f} s ({rate:,.0f}/s); position {client.position:,}")
    return 0
