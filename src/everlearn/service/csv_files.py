"""Samples from CSV files: columns count by the names in the header, as those of a DataFrame do."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.core.table import Column, Table
from everlearn.label_json import Label
from everlearn.memory.labels import shortened
from everlearn.messages import nearest

__all__ = ["CsvFlags", "read_csv"]

LOGICAL = {"true": 1.0, "false": 0.0}

Read = tuple[NDArray[Any] | Table | list[str], list[Label] | None, list[Label] | None, Path, list[int]]


class CsvFlags(NamedTuple):
    """How to read a CSV file: the columns of labels and ids, and columns of text that look like numbers."""

    label: str | None = None
    id: str | None = None
    text: Sequence[str] = ()


class _Lines(NamedTuple):
    """The header of a file, its rows, and the line in which each row begins."""

    header: list[str]
    rows: list[list[str]]
    lines: list[int]


def read_csv(path: Path, flags: CsvFlags, takes: dict[str, Any]) -> Read:
    """Samples, labels, ids, path and lines of a CSV file with a header.

    takes: what the model takes. If its samples have named columns, or it has none yet, the samples are a table: a
    column holds numbers or text as it does in the model; by default numbers, if most of its values are. If it has an
    encoder, the samples are the texts of the only column, or of the one that is named as text. Otherwise they are
    rows of numbers, in the order of the file.
    """
    file = _read(path)
    places = _find(path, file.header, flags)
    features = [place for place in range(len(file.header)) if place not in places.values()]
    if not features:
        raise ValueError(f"{path} has no columns besides labels and ids")
    x = _samples(path, file, features, flags, takes, "label" in places)
    y = [_label(row[places["label"]]) for row in file.rows] if "label" in places else None
    return x, y, _ids(path, file, places.get("id")), path, file.lines


def _samples(
    path: Path, file: _Lines, features: list[int], flags: CsvFlags, takes: dict[str, Any], labelled: bool
) -> NDArray[Any] | Table | list[str]:
    """The columns that are neither labels nor ids. labelled: whether there is a column of labels."""
    known, hint = takes.get("columns"), "" if labelled else "; name the column of labels with --label"
    if takes.get("encoder") is not None:
        place = _text_column(path, file, features, flags)
        if place is not None:
            return [row[place] for row in file.rows]
        hint = "; name the column of texts with --text"
    elif known is not None or takes.get("shape") is None:
        return _table(path, file, features, flags, known or [])
    columns = [_numbers(path, file, place, hint) for place in features]
    return np.stack(columns, 1).astype(np.float32)


def _text_column(path: Path, file: _Lines, features: list[int], flags: CsvFlags) -> int | None:
    """The column whose texts an encoder takes: the one that is named as text, or the only one if it is text."""
    named = [place for place in features if file.header[place] in flags.text]
    if len(named) > 1:
        raise ValueError(
            f"the model has an encoder, which takes one text per sample: name one column of {path}"
        )
    if named:
        return named[0]
    only = features[0] if len(features) == 1 else None
    return None if only is None or not _is_text([row[only] for row in file.rows]) else only


def _read(path: Path) -> _Lines:
    found = _Lines([], [], [])
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            found.header.extend(next(reader, []))
            if not found.header:
                raise ValueError(
                    f"{path} is empty: a CSV file begins with a header, the names of its columns"
                )
            begin = reader.line_num + 1
            for row in reader:
                if row and len(row) != len(found.header):
                    counts = f"has {len(row)} fields, but the header {len(found.header)}"
                    raise ValueError(f"line {begin} of {path} {counts}")
                if row:
                    found.rows.append(row)
                    found.lines.append(begin)
                begin = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num} of {path} can't be read: {error}") from None
    return found


def _find(path: Path, header: list[str], flags: CsvFlags) -> dict[str, int]:
    """The places of the columns of labels and ids."""
    for text in flags.text:
        _check_column(path, text, header)
    places: dict[str, int] = {}
    for what, name, usual in (("label", flags.label, ("label", "y")), ("id", flags.id, ("id",))):
        found = name or next((each for each in usual if each in header), None)
        if found is not None:
            _check_column(path, found, header)
            places[what] = header.index(found)
    return places


def _check_column(path: Path, name: str, header: list[str]) -> None:
    if name not in header:
        raise ValueError(f"{path} has no column {name!r}{nearest(name, header)}")


def _table(
    path: Path, file: _Lines, features: list[int], flags: CsvFlags, known: list[dict[str, Any]]
) -> Table:
    """The columns by name; those that the model knows hold what they hold there."""
    kinds = {column["name"]: column["categories"] for column in known}
    names = [_known(file.header[place], kinds) for place in features]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ValueError(f"{path} has two columns named {shortened(twice)}: rename one of them")
    columns: list[Column] = []
    for name, place in zip(names, features, strict=True):
        texts = [row[place] for row in file.rows]
        is_text = (
            kinds[name] is not None if name in kinds else file.header[place] in flags.text or _is_text(texts)
        )
        if is_text:
            categories = kinds.get(name) or ()
            columns.append([_known(text, categories) if text.strip() else None for text in texts])
        else:
            columns.append(
                _numbers(path, file, place, "; name a column of text with --text" * (name not in kinds))
            )
    return Table(names, columns)


def _is_text(texts: Sequence[str]) -> bool:
    """Whether a column is text: at most half of its values are numbers."""
    held = [text for text in texts if text.strip()]
    return 2 * sum(_number(text) is None for text in held) >= max(len(held), 1)


def _numbers(path: Path, file: _Lines, place: int, hint: str) -> NDArray[np.float64]:
    """A column of numbers; raises a ValueError for the first value that is none."""
    name, numbers = file.header[place], []
    for row, line in zip(file.rows, file.lines, strict=True):
        number = _number(row[place])
        if number is None:
            what = f"{shortened(row[place])}, which is not a number," if row[place].strip() else "no value"
            raise ValueError(
                f"line {line} of {path} has {what} in the column {name}{hint if row[place].strip() else ''}"
            )
        numbers.append(number)
    return np.array(numbers, np.float64)


def _number(text: str) -> float | None:
    """A finite number, or a truth value as 1 or 0; None for anything else.

    >>> _number("2.5"), _number("True"), _number("nan"), _number("two")
    (2.5, 1.0, None, None)
    """
    try:
        value = float(text)
    except ValueError:
        return LOGICAL.get(text.strip().lower())
    return value if math.isfinite(value) else None


def _known(text: str, known: Collection[Label]) -> Label:
    """A name or category as the model has it: text, unless it knows only the number.

    >>> _known("7", [7, 8]), _known("7", ["7", 7]), _known("cat", [7])
    (7, '7', 'cat')
    """
    if text in known:
        return text
    number = _whole(text)
    return number if number in known else text


def _label(text: str) -> Label:
    """A label: a whole number, or a string; None if there is none.

    >>> _label("7"), _label("cat"), _label("07"), _label(" ")
    (7, 'cat', '07', None)
    """
    return _whole(text) if text.strip() else None


def _ids(path: Path, file: _Lines, place: int | None) -> list[Label] | None:
    if place is None:
        return None
    for row, line in zip(file.rows, file.lines, strict=True):
        if not row[place].strip():
            raise ValueError(f"line {line} of {path} has no id in the column {file.header[place]}")
    return [_whole(row[place]) for row in file.rows]


def _whole(text: str) -> Label:
    """A whole number as it is written by programs, or the text itself."""
    digits = text.removeprefix("-")
    return (
        int(text)
        if digits.isascii() and digits.isdigit() and len(digits) < 19 and str(int(text)) == text
        else text
    )
