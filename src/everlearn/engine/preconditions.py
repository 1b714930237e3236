"""The terms of a run, agreed on before anything runs: its order, who is told what, and who watches for changes."""

from __future__ import annotations

from typing import Any

from everlearn.core.learner import Learner
from everlearn.streams.base import Stream
from everlearn.streams.horizon import Horizon
from everlearn.streams.paradigms import Paradigm
from everlearn.streams.scenarios import rearranged

__all__ = ["StreamError", "as_detector", "changes", "check_told", "failed", "in_order"]


class StreamError(RuntimeError):
    """The stream itself failed; the learner keeps all that came before."""


def in_order(stream: Stream, learner: Learner) -> Stream:
    """The stream in the order that the learner asks for."""
    return stream if learner.scenario is None else rearranged(stream, learner.scenario)


def check_told(
    learner: Learner, stream: Stream, told: Paradigm | None, horizon: Horizon, infer: str | None
) -> None:
    """Refuse what needs to be told more than it is, before anything runs."""
    if infer not in (None, "novelty"):
        raise ValueError(f'infer is "novelty" or None, not {infer!r}')
    if told is not None and told.iid and getattr(stream, "scenario", "iid") != "iid":
        raise ValueError(
            f'{told.name} learning is from an iid stream, but {stream.name!r} is not: scenario="iid"'
        )
    hides = told is not None and not told.learner_told_t
    known = _tells(stream) - ({"t", "tasks"} if hides else set()) | ({"t"} if infer else set())
    wanted: dict[str, frozenset[str]] = {learner.name: frozenset(learner.needs)}
    if horizon.extent == "task":
        wanted["a horizon of one task"] = frozenset({"t"})
    if told is not None and told.learner_told_t:
        wanted[f"{told.name} learning"] = frozenset({"t"})
    for who, needs in wanted.items():
        missing = needs - known
        if missing:
            where = f"{told.name} learning" if told is not None and hides else repr(stream.name)
            remedy = '; infer="novelty" infers t from the stream' if "t" in missing else ""
            raise ValueError(
                f"{who} must be told {' and '.join(sorted(missing))}, which {where} hides{remedy}"
            )


def _tells(stream: Stream) -> frozenset[str]:
    """What a stream tells; a user's own says so with its first batch, which may fail."""
    try:
        return stream.tells
    except Exception as error:
        raise failed(stream, 1, error) from error


def failed(stream: Stream, number: int, error: Exception) -> StreamError:
    failure = StreamError(f"the stream {stream.name!r} failed at batch {number}: {error}")
    failure.__cause__ = error
    return failure


def changes(before: Any, now: Any) -> bool:
    """Whether a task has ended: there was one, and this is another."""
    return before is not None and now is not None and now != before


def as_detector(detector: Any) -> Any:
    if detector != "adwin":
        if detector is not None and not hasattr(detector, "update"):
            raise ValueError(f'detector is "adwin" or one of River\'s drift detectors, not {detector!r}')
        return detector
    try:
        from river import drift
    except ImportError:
        raise ImportError("ADWIN comes with River: pip install 'everlearn[river]'") from None
    return drift.ADWIN()  # type: ignore[no-untyped-call]
