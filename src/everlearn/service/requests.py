"""Reading requests: content type, limits, samples, labels and ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from fastapi import HTTPException, Request
from numpy.typing import NDArray

from everlearn.core.columns import Columns
from everlearn.core.table import Table
from everlearn.label_json import Label
from everlearn.memory.labels import shortened
from everlearn.service import wire
from everlearn.service.limits import Limits, size_of
from everlearn.service.served import ServedModel

__all__ = ["Fields", "content_type", "read_request"]

Result = TypeVar("Result")

LARGE = 2**17  # bytes of a body that is read in another thread
SHOWN = 10  # names of columns in a message
SLOWEST = 60.0  # seconds in which a body must arrive


class Fields:
    """The fields of a request, checked against the limits when they are read."""

    def __init__(self, values: dict[str, Any], limits: Limits, from_json: bool) -> None:
        self._values, self._limits, self._from_json = values, limits, from_json

    def samples(self, model: ServedModel) -> NDArray[Any] | Table | list[str]:
        """The samples `x`; numbers in JSON get the type that the learner began with."""
        x: NDArray[Any] | Table | list[str] = self._needed("x")
        if isinstance(x, np.ndarray) and x.ndim == 0:
            self._refuse_size("one number")
        if not 0 < len(x) <= self._limits.batch:
            self._refuse_size(f"{len(x):,} samples" if len(x) else "no samples")
        if isinstance(x, Table):
            self._check_table(x, model)
            return x
        if isinstance(x, list):
            self._check_texts(x, model)
            return x
        columns = model.live.learner.columns
        if columns is not None and x.shape[1:] != (columns.width,):
            listed = ", ".join(map(shortened, columns.names[:SHOWN])) + ", …" * (len(columns.names) > SHOWN)
            raise ValueError(
                f"the samples of {model.name} have named columns: send objects with a value for each ({listed})"
            )
        if x[0].size > self._limits.sample:
            raise wire.WireError(f"a sample has {x[0].size:,} values, above {self._limits.sample:,}")
        if self._from_json:
            return wire.as_samples(x, model.live.learner.sample_type == torch.uint8)
        return np.array(x)  # a copy that torch may write to

    def _refuse_size(self, size: str) -> None:
        raise wire.WireError(wire.wrong_size(size, self._limits.batch))

    def _check_table(self, table: Table, model: ServedModel) -> None:
        """Raise an error for a table beyond the limits, or where the model's samples have no names."""
        learner = model.live.learner
        if learner.encoder is not None:
            raise ValueError(
                f"{model.name} has an encoder, which takes one sample each, such as a text, not columns with names"
            )
        if learner.columns is None and learner.sample_shape is not None:
            raise ValueError(
                f"x has names of columns, but the first samples of {model.name} had none: send rows of numbers"
            )
        if len(table.names) > self._limits.sample:
            raise wire.WireError(f"a sample has {len(table.names):,} values, above {self._limits.sample:,}")
        width = Columns.width_of(table) if learner.columns is None else learner.columns.width
        if len(table) * width > self._limits.body:
            raise wire.WireError(
                f"x has {len(table):,} samples of {width:,} inputs, categories included: send smaller batches"
            )
        held = (value for part in table.columns if isinstance(part, list) for value in part)
        if any(size_of(value) > self._limits.label for value in (*table.names, *held)):
            raise wire.WireError(f"x has a name or category of more than {self._limits.label:,} characters")

    def _check_texts(self, texts: list[str], model: ServedModel) -> None:
        """Raise an error for texts beyond the limits, or where the model has no encoder for them."""
        if model.live.learner.encoder is None:
            raise ValueError(
                f"x has texts, but {model.name} has no encoder: create a model with one, "
                "`everlearn serve FOLDER --encoder wordllama`"
            )
        longest = max(map(len, texts))
        if longest > self._limits.sample:
            raise wire.WireError(f"a sample has {longest:,} characters, above {self._limits.sample:,}")

    def labels(self, name: str, model: ServedModel | None = None) -> list[Label]:
        """Labels or ids. model: whose number of classes is limited."""
        labels = wire.decode_labels(self._counted(name), name, self._limits.label)
        if any(size_of(label) > self._limits.label for label in labels):
            raise wire.WireError(f"{name} has an entry of more than {self._limits.label:,} characters")
        if model is not None:
            known = set(model.live.classes)
            new = set(labels) - known
            if len(known) + len(new) > self._limits.classes:
                raise wire.WireError(
                    f"{model.name} has {len(known):,} classes, and {len(new):,} more would be above the limit "
                    f"of {self._limits.classes:,}"
                )
        return labels

    def optional_labels(self, name: str) -> list[Label] | None:
        """Labels or ids, if they are given."""
        return None if self._values.get(name) is None else self.labels(name)

    def label(self, name: str) -> Label:
        """One label."""
        (label,) = wire.decode_labels([self._needed(name)], name, self._limits.label)
        return label

    def whole(self, name: str) -> int | None:
        """A whole number, if it is given."""
        value = self._values.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise wire.WireError(f"{name} must be a whole number")
        return value

    def numbers(self, name: str) -> list[float] | None:
        """A list of numbers, if it is given."""
        if self._values.get(name) is None:
            return None
        values = self._counted(name)
        if not (isinstance(values, list) and all(type(value) in (int, float) for value in values)):
            raise wire.WireError(f"{name} must be a list of numbers")
        return values

    def text(self, name: str) -> str | None:
        """A string, if it is given."""
        value = self._values.get(name)
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= self._limits.label):
            raise wire.WireError(f"{name} must be a string of 1 to {self._limits.label:,} characters")
        return value

    def flag(self, name: str) -> bool:
        """A boolean, False by default."""
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise wire.WireError(f"{name} must be true or false")
        return value

    def _counted(self, name: str) -> Any:
        """A field that must be given, with at most one entry for each sample that a request may have."""
        values = self._needed(name)
        if isinstance(values, list) and len(values) > self._limits.batch:
            raise wire.WireError(f"{name} has {len(values):,} entries, above {self._limits.batch:,}")
        return values

    def _needed(self, name: str) -> Any:
        if name not in self._values:
            raise wire.WireError(f"the field {name!r} is missing")
        return self._values[name]


def content_type(request: Request) -> str:
    """The content type of a body; an error unless it is one of the three that a form of another site can't send."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    known = (wire.JSON, wire.NPY, wire.SAFETENSORS)
    if kind not in known:
        raise HTTPException(415, f"the content type is {kind or 'missing'}; possible are {', '.join(known)}")
    return kind


def _query(request: Request) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in query:
            raise wire.WireError(f"the query parameter {name!r} is given twice")
        query[name] = value
    return query


async def read_request(
    request: Request, limits: Limits, names: Sequence[str], read: Callable[[Fields], Result]
) -> Result:
    """What `read` takes from the fields of a request, if its content type is known and its body is not too large.

    names: the fields that the operation has. A large body is decoded and read in another thread, so that other
    requests are answered meanwhile.
    """
    kind = content_type(request)
    try:
        content = await asyncio.wait_for(read_body(request, limits.body), SLOWEST)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {SLOWEST:.0f} seconds") from None
    query = _query(request)

    def decoded() -> Result:
        return read(Fields(wire.decode(content, kind, query, names, limits), limits, kind == wire.JSON))

    return await asyncio.to_thread(decoded) if len(content) > LARGE else decoded()


async def read_body(request: Request, most: int) -> bytes:
    """The body, which is not read further than the limit."""
    too_large = HTTPException(413, f"the body is larger than {most:,} bytes: send smaller batches")
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)
