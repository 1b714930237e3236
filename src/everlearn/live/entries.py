"""The entries of a journal: one per change of the learner, complete enough to make the same change again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.core.table import Column, Table
from everlearn.label_json import Label, decode_label, encode_label

__all__ = ["Change", "Entry", "checksum_of", "decode_labels", "encode_labels"]


def encode_labels(labels: Iterable[Label]) -> list[Any]:
    """Labels or ids as JSON, with their types."""
    return [encode_label(label) for label in labels]


def decode_labels(codes: Iterable[Any]) -> list[Label]:
    """Labels or ids that `encode_labels` encoded."""
    return [decode_label(code) for code in codes]


class Change:
    """A change that somebody asked for: what the journal stores of it.

    kind: observe, ask, tell, forget, delete or correct.
    detail: JSON: labels, ids, the task, the request id, the shape and type of the samples, and whether an `ask` also
        returns confidences (older journals do not say so).
    samples: the bytes of the samples, if there are any.
    values: the detail, decoded. labels, ids: decoded from it; ids is None if there are none.

    >>> change = Change.make("observe", torch.zeros(2, 3), labels=["a", "b"])
    >>> change.detail
    '{"labels": ["a", "b"], "shape": [2, 3], "type": "float32"}'
    >>> change.x().shape, change.labels
    (torch.Size([2, 3]), ['a', 'b'])
    """

    __slots__ = ("detail", "ids", "kind", "labels", "samples", "values")

    def __init__(
        self,
        kind: str,
        detail: str,
        samples: bytes | bytearray | None,
        values: dict[str, Any] | None = None,
    ) -> None:
        self.kind, self.detail, self.samples = kind, detail, samples
        self.values: dict[str, Any] = json.loads(detail) if values is None else values
        self.labels = decode_labels(self.values.get("labels", ()))
        self.ids = decode_labels(self.values["ids"]) if "ids" in self.values else None

    @classmethod
    def make(cls, kind: str, x: Tensor | Table | None = None, **values: Any) -> Change:
        """A change from samples and values; labels and ids are given as they are, None is left out."""
        held = {name: value for name, value in values.items() if value is not None}
        for name in ("labels", "ids"):
            if name in held:
                held[name] = encode_labels(held[name])
        if x is None:
            return cls(kind, json.dumps(held), None, held)
        if isinstance(x, Table):
            held["columns"], x = _columns(x)
        held |= {"shape": list(x.shape), "type": str(x.dtype).removeprefix("torch.")}
        flat = x.detach().cpu().contiguous().flatten().view(torch.uint8)
        return cls(kind, json.dumps(held), bytearray(flat.numpy()), held)

    @property
    def request_id(self) -> str | None:
        """The request id, if there is one."""
        return self.values.get("request")

    @property
    def source(self) -> tuple[str, Any] | None:
        """The name of an outside source and the position in it, if there is one.

        Raises a ValueError for one that can't be used: version 0.2.0 wrote any value to the journal.
        """
        given = self.values.get("source")
        if given is None:
            return None
        try:
            name, position = given[0], given[1]
            hash(name)
        except (LookupError, TypeError):
            raise ValueError(f"the source {given!r} is not a name and a position") from None
        return name, position

    def x(self) -> Tensor | Table:
        """The samples."""
        return _table(self.values["columns"], self.tensor()) if "columns" in self.values else self.tensor()

    def tensor(self) -> Tensor:
        """The samples; of a table only its numbers."""
        assert self.samples is not None
        kind = getattr(torch, self.values["type"])
        if not self.samples:  # a table of categories alone
            return torch.zeros(self.values["shape"], dtype=kind)
        # A buffer that can be written to, since torch warns of others; nobody writes to it.
        held = self.samples if isinstance(self.samples, bytearray) else bytearray(self.samples)
        return torch.frombuffer(held, dtype=kind).view(self.values["shape"])


def _columns(table: Table) -> tuple[list[Any], Tensor]:
    """A table as JSON, for each column its name, its categories and how many were declared, and all its numbers."""
    found = [
        [encode_label(name), encode_labels(part) if isinstance(part, list) else None, declared]
        for name, part, declared in zip(table.names, table.columns, table.declared, strict=True)
    ]
    numbers = [part for part in table.columns if not isinstance(part, list)]
    rows = np.stack(numbers, 1) if numbers else np.zeros((len(table), 0))
    return found, torch.from_numpy(rows)


def _table(columns: list[Any], numbers: Tensor) -> Table:
    """The table that `_columns` encoded."""
    left = iter(numbers.numpy().T)
    values: list[Column] = [
        next(left) if categories is None else decode_labels(categories) for _, categories, _ in columns
    ]
    return Table(
        [decode_label(name) for name, _, _ in columns], values, [declared for *_, declared in columns]
    )


def checksum_of(position: int, time: float, kind: str, detail: str, samples: bytes | bytearray | None) -> int:
    """The checksum of an entry."""
    head = f"{position} {time!r} {kind} {detail}".encode(errors="surrogatepass")
    return zlib.crc32(samples or b"", zlib.crc32(head))


class Entry:
    """A change with its position in the journal and the time at which it arrived (seconds since 1970).

    checksum: of all these.
    """

    __slots__ = ("change", "checksum", "position", "time")

    def __init__(self, position: int, time: float, change: Change) -> None:
        self.position, self.time, self.change = position, time, change
        self.checksum = checksum_of(position, time, change.kind, change.detail, change.samples)

    @classmethod
    def of(cls, row: Sequence[Any]) -> Entry:
        """The entry in a row of a journal; whether its checksum is that of the row is left to the caller."""
        position, at, kind, detail, samples, *_ = row
        return cls(position, at, Change(kind, detail, None if samples is None else bytes(samples)))

    @property
    def row(self) -> Sequence[Any]:
        """What a journal stores."""
        change = self.change
        return self.position, self.time, change.kind, change.detail, change.samples, self.checksum
