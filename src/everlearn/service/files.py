"""Samples from files: JSON lines, CSV and npz. Whatever is wrong with a sample is said with its line."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.arrays import LARGEST_VALUE
from everlearn.core.table import Table
from everlearn.label_json import Label
from everlearn.memory.labels import is_missing, shortened
from everlearn.messages import nearest
from everlearn.service.csv_files import CsvFlags, read_csv
from everlearn.service.json_text import unique
from everlearn.service.tables import read_table
from everlearn.service.wire import WireError, decode_labels

__all__ = ["CsvFlags", "Samples", "batches", "check_labels", "read_samples"]

KINDS = (".jsonl", ".csv", ".npz")


class Samples(NamedTuple):
    """Samples, their labels and ids, if the file has any, and the line of each, if it has lines."""

    x: NDArray[Any] | Table | list[str]
    y: list[Label] | None
    ids: list[Label] | None
    path: Path
    lines: list[int] | None = None

    def place(self, sample: int) -> str:
        """Where a sample is."""
        what = f"sample {sample}" if self.lines is None else f"line {self.lines[sample]}"
        return f"{what} of {self.path}"


def read_samples(path: Path, flags: CsvFlags | None = None, takes: dict[str, Any] | None = None) -> Samples:
    """The samples in a file.

    .jsonl: a line `{"x": [...], "y": label, "id": id}` per sample; x may be an object with a value by column, or a
    text. .csv: a line per sample after a header, see `read_csv`. .npz: arrays `x`, `y` and `ids`. Labels and ids are
    optional.
    takes: what the model takes, from `Client.input`; None if that is not known.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{path} must be one of {', '.join(KINDS)}")
    try:
        if kind == ".npz":
            samples = _from_npz(path)
        elif kind == ".jsonl":
            samples = _from_jsonl(path)
        else:
            samples = Samples(*read_csv(path, flags or CsvFlags(), takes or {}))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: it has the byte 0x{error.object[error.start]:02x}"
        ) from None
    if not len(samples.x):
        raise ValueError(f"{path} has no samples")
    _check_values(samples, takes or {})
    return _with_bytes(samples, takes or {})


def _from_npz(path: Path) -> Samples:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a valid npz file without objects: {error}") from None
    if "x" not in arrays or not arrays["x"].ndim:
        raise ValueError(f"{path} has no array x of samples{nearest('x', arrays)}")
    y, ids = (arrays[name].tolist() if name in arrays else None for name in ("y", "ids"))
    for name in ("y", "ids"):
        if name in arrays and arrays[name].shape != (len(arrays["x"]),):
            shape = list(arrays[name].shape)
            raise ValueError(f"{path} has {len(arrays['x'])} samples, but {name} of shape {shape}")
    x = arrays["x"]
    return Samples(x.tolist() if x.dtype.kind == "U" and x.ndim == 1 else x, y, ids, path)


def _from_jsonl(path: Path) -> Samples:
    rows: list[Any] = []
    lines: list[int] = []
    fields: dict[str, list[Any]] = {"y": [], "id": []}
    with path.open(encoding="utf-8-sig") as file:  # some programs begin a text with a mark of its encoding
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line, object_pairs_hook=unique)
                x = entry["x"]
                rows.append(x if isinstance(x, dict | str) else np.asarray(x, np.float32))
            except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
                raise ValueError(f'line {number} of {path} is not {{"x": [numbers], "y": label}}') from None
            lines.append(number)
            _compare(rows, number, path)
            for name, values in fields.items():
                if name in entry:
                    values += _label(entry[name], name, number, path)
                if len(values) not in (0, len(rows)):
                    raise ValueError(f"line {number} of {path} and those before it: only some have {name}")
    return Samples(_joined(rows, path), fields["y"] or None, fields["id"] or None, path, lines)


def _compare(rows: list[Any], number: int, path: Path) -> None:
    """Raise a ValueError if the last sample is not like the first."""
    first, last = rows[0], rows[-1]
    if isinstance(first, dict) or isinstance(last, dict):
        same = isinstance(first, dict) and isinstance(last, dict) and first.keys() == last.keys()
        if not same:
            raise ValueError(f"the sample in line {number} of {path} has other columns than the first one")
    elif isinstance(first, str) or isinstance(last, str):
        if not (isinstance(first, str) and isinstance(last, str)):
            one, other = ("a text", "numbers") if isinstance(last, str) else ("numbers", "a text")
            raise ValueError(
                f"the sample in line {number} of {path} has {one}, but the first one has {other}"
            )
    elif last.shape != first.shape:
        shapes = f"{list(last.shape)}, but the first one has {list(first.shape)}"
        raise ValueError(f"the sample in line {number} of {path} has the shape {shapes}")


def _label(code: Any, name: str, number: int, path: Path) -> list[Label]:
    try:
        return decode_labels([code], name)
    except WireError as error:
        raise ValueError(f"line {number} of {path}: {error}") from None


def _joined(rows: list[Any], path: Path) -> NDArray[Any] | Table | list[str]:
    """The samples of a file as a table, as texts, or as an array."""
    if rows and isinstance(rows[0], str):
        return rows
    if not rows or not isinstance(rows[0], dict):
        return np.array(rows)
    try:
        return read_table(rows, None, None)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_values(samples: Samples, takes: dict[str, Any]) -> None:
    """Raise a ValueError for the first sample with a number that a learner refuses."""
    x = samples.x
    categories = [each["name"] for each in takes.get("columns") or () if each["categories"] is not None]
    columns = zip(x.names, x.columns, strict=True) if isinstance(x, Table) else [(None, x)]
    for name, part in columns:
        if not isinstance(part, np.ndarray) or part.dtype.kind != "f" or name in categories:
            continue
        flat = part.reshape(len(part), -1)
        wrong = ~(np.abs(flat) <= LARGEST_VALUE)
        if wrong.any():
            sample = int(np.flatnonzero(wrong.any(1))[0])
            value = flat[sample][wrong[sample]][0]
            what = "no value, or NaN," if np.isnan(value) else f"{value:g}, which is too large,"
            where = "x" if name is None else f"the column {shortened(name)}"
            raise ValueError(
                f"{samples.place(sample)} has {what} in {where}: correct it, or leave the sample out"
            )


def _with_bytes(samples: Samples, takes: dict[str, Any]) -> Samples:
    """The samples as bytes, if the model takes these and the file is text, whose numbers have no type."""
    x = samples.x
    if takes.get("type") != "uint8" or samples.lines is None or not isinstance(x, np.ndarray):
        return samples
    wrong = (x < 0) | (x > 255) | (x != np.trunc(x))
    if wrong.any():
        sample, *_ = np.argwhere(wrong)[0]
        raise ValueError(
            f"{samples.place(sample)} has {x[wrong][0]:g} in x, but the model takes bytes: "
            "whole numbers from 0 to 255"
        )
    return samples._replace(x=x.astype(np.uint8))


def check_labels(samples: Samples, takes: dict[str, Any]) -> Sequence[Label]:
    """The labels; raises a ValueError if there are none, or if one is missing and the model refuses that."""
    if samples.y is None:
        raise ValueError(f"{samples.path} has no labels: name them y, or a column of a CSV file with --label")
    missing = next((i for i, label in enumerate(samples.y) if is_missing(label)), None)
    if missing is not None and takes["missing_labels"] == "refuse":
        raise ValueError(f"{samples.place(missing)} has no label: fill it in, or leave the sample out")
    return samples.y


def batches(samples: Samples, size: int, skip: int = 0) -> Iterator[tuple[int, Samples]]:
    """The samples in batches, in order, each with the number of its first sample. skip: samples to leave out."""
    for start in range(skip, len(samples.x), size):
        part = slice(start, start + size)
        y, ids, lines = (
            None if values is None else values[part] for values in (samples.y, samples.ids, samples.lines)
        )
        yield start, Samples(samples.x[part], y, ids, samples.path, lines)  # type: ignore[arg-type]
