"""Encoded samples on disk, found again by their content: one SQLite file per encoder."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.encoders.base import Encoder, parts
from everlearn.encoders.images import as_array

__all__ = ["cache_folder", "encode_with_cache"]

CHUNK = 512  # samples that are encoded and stored together: a run that is stopped loses no more
FOLDER = "EVERLEARN_FEATURES"  # a variable that names another folder


def cache_folder() -> Path:
    """The folder of encoded samples: `$EVERLEARN_FEATURES`, or `features` in the user's cache folder."""
    from platformdirs import user_cache_path

    given = os.environ.get(FOLDER)
    return Path(given).expanduser() if given else user_cache_path("everlearn", appauthor=False) / "features"


def encode_with_cache(encoder: Encoder, x: Any, folder: Path | None = None) -> Tensor:
    """The vector of each sample; those that were encoded before are read from disk.

    An encoder without a version (a function of the user's own may compute anything) is called for every sample.
    """
    if encoder.version is None:
        return encoder(x)
    found: list[Tensor] = []
    with _opened(folder or cache_folder(), encoder) as table:
        done, total = 0, len(x)
        with _progress(encoder, total) as show:
            for part in parts(x, CHUNK):
                found.append(_chunk(encoder, part, table))
                done += len(part)
                show(done)
    return torch.cat(found)


def _chunk(encoder: Encoder, part: Any, table: sqlite3.Connection | None) -> Tensor:
    if table is None:
        return encoder(part)
    keys = [_key(sample) for sample in part]
    known = {key: _read(table, key) for key in dict.fromkeys(keys)}
    missing = [place for place, key in enumerate(keys) if known[key] is None]
    if missing:
        new = encoder(part[missing] if isinstance(part, Tensor | np.ndarray) else [part[i] for i in missing])
        for place, vector in zip(missing, new.numpy(), strict=True):
            known[keys[place]] = vector
        rows = [(keys[place], vector.tobytes()) for place, vector in zip(missing, new.numpy(), strict=True)]
        _write(table, rows)
    return torch.from_numpy(np.stack([known[key] for key in keys]))


def _key(sample: Any) -> bytes:
    """A hash of a sample's type, shape and content."""
    if isinstance(sample, str):
        return hashlib.sha256(b"text " + sample.encode("utf-8", "surrogatepass")).digest()
    if isinstance(sample, Tensor):
        sample = sample.detach().cpu()
        sample = (sample.float() if sample.dtype == torch.bfloat16 else sample).numpy()  # which numpy lacks
    array = np.ascontiguousarray(as_array(sample))
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + array.tobytes()).digest()


@contextmanager
def _opened(folder: Path, encoder: Encoder) -> Iterator[sqlite3.Connection | None]:
    """The table of this encoder; None where it can't be written, and then nothing is cached."""
    version = hashlib.sha256(str(encoder.version).encode()).hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "-", encoder.name)
    table = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        table = sqlite3.connect(folder / f"{name}-{version}.sqlite", timeout=60)
        table.execute("PRAGMA journal_mode=WAL")
        table.execute("CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
    except (OSError, sqlite3.Error) as error:
        print(
            f"everlearn: {folder} can't be used ({error}), so encoded samples are not cached", file=sys.stderr
        )
        if table is not None:
            table.close()
        table = None
    try:
        yield table
    finally:
        if table is not None:
            table.close()


def _read(table: sqlite3.Connection, key: bytes) -> Any:
    row = table.execute("SELECT vector FROM features WHERE key = ?", (key,)).fetchone()
    vector = None if row is None else np.frombuffer(row[0], np.float32)
    # An older version stored NaN for an empty text.
    return None if vector is None or np.isnan(vector).any() else vector


def _write(table: sqlite3.Connection, rows: list[tuple[bytes, bytes]]) -> None:
    with table:
        table.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", rows)


@contextmanager
def _progress(encoder: Encoder, total: int) -> Iterator[Any]:
    """Shows on a terminal how many samples are done."""
    visible = sys.stderr.isatty() and total > CHUNK
    yield (
        lambda done: (
            visible
            and print(f"\r{encoder.name}: {done:,} of {total:,} samples", end="", file=sys.stderr, flush=True)
        )
    )
    if visible:
        print("\r\x1b[K", end="", file=sys.stderr)
