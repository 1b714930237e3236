"""What the calls of a live learner return, and how it is stored for retries of the same request."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

from everlearn.core.delayed_labels import Told
from everlearn.label_json import Label
from everlearn.live.entries import decode_labels, encode_labels

__all__ = ["OBSERVED", "Asked", "Corrected", "Deleted", "LiveTold", "Requests", "check_same_kind"]

REMEMBERED = 10_000  # requests whose results are kept
OF_IDS = ("learnt", "missing", "right", "wrong")  # the parts of results that are ids
OBSERVED = ("observe", None)  # the kind and result of most requests, stored once


@dataclasses.dataclass(frozen=True)
class Asked:
    """The answers of `ask`: labels, and the probability of each if it was requested."""

    labels: list[Label]
    confidences: list[float] | None


class LiveTold(Told):
    """The result of `tell`: the learner's `learnt` and `missing`, and which answers of `ask` were right.

    right, wrong: ids whose answer was the label, or another one.
    """

    right: list[Label]
    wrong: list[Label]

    @classmethod
    def make(
        cls, learnt: list[Label], missing: list[Label], right: list[Label], wrong: list[Label]
    ) -> LiveTold:
        """A result from its four parts."""
        told = cls(learnt, missing)
        told.right, told.wrong = right, wrong
        return told

    def __repr__(self) -> str:
        parts = (
            f"learnt={self.learnt!r}, missing={self.missing!r}, right={self.right!r}, wrong={self.wrong!r}"
        )
        return f"LiveTold({parts})"


@dataclasses.dataclass(frozen=True)
class Deleted:
    """The result of `delete`.

    exemplars: samples removed from the replay memory. waiting: samples removed that waited for a label.
    missing: ids of which neither held a sample. forgotten: classes that have no sample left, and were forgotten.
    rebuilt: whether the network was trained anew from what remains.
    note: what the deletion can't undo.
    """

    exemplars: int
    waiting: int
    missing: list[Label]
    forgotten: list[Label]
    rebuilt: bool
    note: str


@dataclasses.dataclass(frozen=True)
class Corrected:
    """The result of `correct`.

    exemplars: samples in the replay memory that have the right label now. missing: ids without a sample there.
    forgotten: classes that have no sample left, and were forgotten.
    rebuilt: whether the network was trained anew. note: what the correction can't undo.
    """

    exemplars: int
    missing: list[Label]
    forgotten: list[Label]
    rebuilt: bool
    note: str


class Requests:
    """The results of the last requests, by request id, so that a retry gets the result of the first call."""

    def __init__(self) -> None:
        self._results: OrderedDict[str, tuple[str, Any]] = OrderedDict()

    def __contains__(self, request: str) -> bool:
        return request in self._results

    def add(self, request: str, kind: str, result: Any) -> None:
        """Store the result of a request, or the error that it raised."""
        code = _encode(kind, result)
        self._results[request] = OBSERVED if (kind, code) == OBSERVED else (kind, code)
        while len(self._results) > REMEMBERED:
            self._results.popitem(last=False)

    def drop(self, request: str) -> None:
        """Forget a request, so that a retry is done again."""
        self._results.pop(request, None)

    def result(self, request: str, kind: str) -> Any:
        """The result of an earlier request; raises its error if it was refused."""
        found, code = self._results[request]
        check_same_kind(request, found, kind)
        if isinstance(code, dict) and "error" in code:
            raise ValueError(code["error"])
        return _decode(kind, code)

    def ids(self) -> set[Label]:
        """The ids in all results of `tell` and `correct`."""
        codes = (code for _, code in self._results.values() if isinstance(code, dict))
        return {key for code in codes for name in OF_IDS for key in decode_labels(code.get(name, ()))}

    def forget_ids(self) -> None:
        """Drop the ids in all results of `tell` and `correct`, after samples were deleted."""
        for request, (kind, code) in self._results.items():
            if isinstance(code, dict) and "error" not in code:
                self._results[request] = kind, {**code, **{name: [] for name in OF_IDS if name in code}}

    def state(self) -> list[Any]:
        """All results as JSON; of a batch that was observed, the request id alone, since most are."""
        return [
            request if found is OBSERVED else [request, *found] for request, found in self._results.items()
        ]

    def restore(self, state: list[Any]) -> None:
        """Load what `state` returned."""
        pairs = (
            (each, OBSERVED) if isinstance(each, str) else (each[0], (each[1], each[2])) for each in state
        )
        self._results = OrderedDict(pairs)


def check_same_kind(request: str, found: str, kind: str) -> None:
    """Raise a ValueError if a request id was used by a call of another kind."""
    if found != kind:
        raise ValueError(f"the request id {request!r} was used by {found} before: give every request its own")


LABELS = ("labels", "learnt", "missing", "right", "wrong", "forgotten")
KINDS: dict[str, Any] = {"ask": Asked, "tell": LiveTold.make, "delete": Deleted, "correct": Corrected}


def _encode(kind: str, result: Any) -> Any:
    if isinstance(result, Exception):
        return {"error": str(result)}
    if kind not in KINDS:
        return None
    if isinstance(result, LiveTold):
        values = {**result._asdict(), "right": result.right, "wrong": result.wrong}
    else:
        values = vars(result)
    if kind == "delete":
        values = {**values, "missing": []}  # no file keeps the ids of deleted samples
    return {name: encode_labels(value) if name in LABELS else value for name, value in values.items()}


def _decode(kind: str, code: Any) -> Any:
    if code is None:
        return None
    return KINDS[kind](
        **{name: decode_labels(value) if name in LABELS else value for name, value in code.items()}
    )
