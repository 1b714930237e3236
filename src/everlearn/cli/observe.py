"""`everlearn observe`: send the labelled samples of a file to a service, each once."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.cli.remote import RemoteFlags, connect, count, read, send
from everlearn.live.results import REMEMBERED

if TYPE_CHECKING:
    from everlearn.service.client import Client
    from everlearn.service.files import Samples

__all__ = ["ObserveFlags", "command"]


@dataclasses.dataclass(frozen=True)
class ObserveFlags(RemoteFlags):
    """Send the labelled samples of a .jsonl, .csv or .npz file to `everlearn serve`, in order.

    The same command may be run again, after an error or by mistake: what was learnt is not learnt twice.
    """

    batch_size: int = 10
    """samples that are learnt together"""
    skip: int = 0
    """samples at the beginning of the file to leave out"""
    again: bool = False
    """learn the file once more, although it was learnt before"""


def command(words: list[str]) -> int:
    """Send the samples; returns the exit code."""
    flags = in_one_sentence(lambda: tyro.cli(ObserveFlags, args=words, prog="everlearn observe"))
    with connect(flags) as client:
        takes = client.input()
        samples = _read(flags, takes)
        begun = time.monotonic()
        try:
            _observe(flags, samples, client)
        except _Stopped as stopped:
            print(f"everlearn: {stopped}", file=sys.stderr)
            return 130
    seconds, sent = time.monotonic() - begun, len(samples.x) - flags.skip
    if client.position == takes["position"]:
        print(f"{flags.file} was learnt before, and is not learnt twice; --again learns it once more")
    else:
        rate = f"{sent / max(seconds, 1e-9):,.0f}/s"
        print(f"{count(sent)} in {seconds:.1f} s ({rate}); position {client.position:,}")
    return 0


def _read(flags: ObserveFlags, takes: dict[str, Any]) -> Samples:
    """The samples of the file, with labels that the model takes."""
    from everlearn.service.files import check_labels

    samples = read(flags, takes)
    check_labels(samples, takes)
    if not 0 <= flags.skip < len(samples.x):
        most = len(samples.x) - 1
        raise ValueError(f"--skip must be between 0 and {most:,} for {flags.file}, not {flags.skip}")
    return samples


class _Stopped(Exception):
    """Ctrl-C; the message says how far the command came."""


def _observe(flags: ObserveFlags, samples: Samples, client: Client) -> None:
    """Send the batches, each as a request of its own name, which is applied once."""
    sender, learnt = uuid.uuid4().hex if flags.again else _digest(flags), flags.skip

    def observe(start: int, batch: Samples) -> None:
        nonlocal learnt
        end = start + len(batch.x)
        client.observe(batch.x, batch.y, batch.ids, request_id=f"{sender}-{start}-{end}")
        learnt = end

    try:
        send(flags, samples, observe, flags.skip)
    except KeyboardInterrupt:
        raise _Stopped(_stopped(flags, samples, learnt)) from None
    except (ValueError, RuntimeError, PermissionError) as error:
        if learnt == flags.skip and not isinstance(error, ValueError):  # the service can't be used at all
            raise
        raise RuntimeError(_stopped(flags, samples, learnt, f": {error}")) from error


def _digest(flags: ObserveFlags) -> str:
    """What tells a file, read with these flags, from others: its batches are requests that are applied once."""
    with flags.file.open("rb") as file:
        content = hashlib.file_digest(file, "sha256")
    content.update(repr((flags.label, flags.id, flags.text)).encode())
    return content.hexdigest()


def _stopped(flags: ObserveFlags, samples: Samples, learnt: int, reason: str = "") -> str:
    """Where it stopped, why, and how to go on. learnt: the samples of the file that are learnt or skipped."""
    if learnt == len(samples.x):
        return f"stopped after all of {flags.file} was learnt{reason}"
    words = f"stopped at {samples.place(learnt)}, {count(learnt - flags.skip)} learnt{reason}"
    if learnt == flags.skip:
        return words
    if flags.again or learnt > REMEMBERED * flags.batch_size:
        return f"{words}; go on with --skip {learnt}"
    return f"{words}; the same command goes on from there, or --skip {learnt} if you change the file"
