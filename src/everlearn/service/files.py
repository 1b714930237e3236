"""Samples from files: JSON lines, CSV and npz."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.label_json import Label
from everlearn.messages import nearest
from everlearn.service.wire import decode_labels

__all__ = ["Samples", "batches", "read_samples"]

KINDS = (".jsonl", ".csv", ".npz")


class Samples(NamedTuple):
    """Samples, their labels and ids, if the file has any."""

    x: NDArray[Any]
    y: list[Label] | None
    ids: list[Label] | None


def read_samples(path: Path, label: str | None = None, id: str | None = None) -> Samples:
    """The samples in a file.

    .jsonl: a line `{"x": [...], "y": label, "id": id}` per sample. .csv: a line per sample after a header; `label`
    and `id` name columns, and the others are numbers. .npz: arrays `x`, `y` and `ids`. Labels and ids are optional.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{path} must be one of {', '.join(KINDS)}")
    if kind == ".npz":
        return _from_npz(path)
    samples = _from_jsonl(path) if kind == ".jsonl" else _from_csv(path, label, id)
    if not len(samples.x):
        raise ValueError(f"{path} has no samples")
    return samples


def _from_npz(path: Path) -> Samples:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a valid npz file without objects: {error}") from None
    if "x" not in arrays:
        raise ValueError(f"{path} has no array x{nearest('x', arrays)}")
    y, ids = (arrays[name].tolist() if name in arrays else None for name in ("y", "ids"))
    for name, values in (("y", y), ("ids", ids)):
        if values is not None and len(values) != len(arrays["x"]):
            raise ValueError(f"{path} has {len(arrays['x'])} samples, but {len(values)} entries in {name}")
    return Samples(arrays["x"], y, ids)


def _from_jsonl(path: Path) -> Samples:
    rows: list[Any] = []
    fields: dict[str, list[Any]] = {"y": [], "id": []}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                rows.append(np.asarray(entry["x"], np.float32))
            except (ValueError, KeyError, TypeError):
                raise ValueError(f'line {number} of {path} is not {{"x": [numbers], "y": label}}') from None
            if rows[-1].shape != rows[0].shape:
                shapes = f"{list(rows[-1].shape)}, but the first one has {list(rows[0].shape)}"
                raise ValueError(f"the sample in line {number} of {path} has the shape {shapes}")
            for name, values in fields.items():
                if name in entry:
                    values.append(entry[name])
    for name, values in fields.items():
        if values and len(values) != len(rows):
            raise ValueError(f"{path} has {len(rows)} lines, but only {len(values)} of them have {name}")
    return Samples(np.array(rows), _decoded(fields["y"]), _decoded(fields["id"]))


def _decoded(codes: list[Any]) -> list[Label] | None:
    return decode_labels(codes) if codes else None


def _from_csv(path: Path, label: str | None, id: str | None) -> Samples:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        columns = {name: place for place, name in enumerate(header)}
        chosen: dict[str, int] = {}
        for what, name, usual in (("label", label, ("label", "y")), ("id", id, ("id",))):
            found = name or next((each for each in usual if each in columns), None)
            if found is not None:
                if found not in columns:
                    raise ValueError(f"{path} has no column {found!r}{nearest(found, header)}")
                chosen[what] = columns[found]
        numbers = [place for place in range(len(header)) if place not in chosen.values()]
        rows: list[list[float]] = []
        taken: dict[str, list[Label]] = {what: [] for what in chosen}
        for number, line in enumerate(reader, 2):
            if not line:
                continue
            if len(line) != len(header):
                raise ValueError(
                    f"line {number} of {path} has {len(line)} fields, but the header {len(header)}"
                )
            rows.append([_number(line[place], header[place], number, path) for place in numbers])
            for what, place in chosen.items():
                taken[what].append(_word(line[place]))
    return Samples(np.array(rows, np.float32), taken.get("label"), taken.get("id"))


def _number(text: str, column: str, line: int, path: Path) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"line {line} of {path} has {text!r} in the column {column}, which is no number; "
            "name the column of labels with --label"
        )
    return value


def _word(text: str) -> Label:
    """A label in a CSV file: a whole number, or a string.

    >>> _word("7"), _word("cat"), _word("07")
    (7, 'cat', '07')
    """
    return int(text) if text.lstrip("-").isdigit() and str(int(text)) == text else text


def batches(samples: Samples, size: int) -> Iterator[Samples]:
    """The samples in batches, in order."""
    for start in range(0, len(samples.x), size):
        part = slice(start, start + size)
        y, ids = (None if values is None else values[part] for values in (samples.y, samples.ids))
        yield Samples(samples.x[part], y, ids)
