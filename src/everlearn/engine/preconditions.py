"""What is checked before a run starts: the order of the stream, what a learner needs, its room, the detector."""

from __future__ import annotations

from typing import Any

from everlearn.core.learner import Learner
from everlearn.core.validation import check_room
from everlearn.memory.labels import is_missing
from everlearn.streams.base import Stream
from everlearn.streams.horizon import Horizon
from everlearn.streams.paradigms import Paradigm
from everlearn.streams.scenarios import rearranged

__all__ = [
    "StreamError",
    "as_detector",
    "check_classes",
    "check_needs",
    "in_order",
    "is_transition",
    "stream_failed",
]


class StreamError(RuntimeError):
    """The stream itself failed; the learner keeps everything it learnt before."""


def in_order(stream: Stream, learner: Learner) -> Stream:
    """The stream in the order that the learner asks for."""
    return stream if learner.scenario is None else rearranged(stream, learner.scenario)


def check_needs(
    learner: Learner, stream: Stream, paradigm: Paradigm | None, horizon: Horizon, infer: str | None
) -> None:
    """Raise a ValueError if the learner, the horizon or the paradigm needs what the stream does not provide."""
    if infer not in (None, "novelty"):
        raise ValueError(f'infer is "novelty" or None, not {infer!r}')
    if paradigm is not None and paradigm.iid and getattr(stream, "scenario", "iid") != "iid":
        raise ValueError(
            f"{paradigm.name} learning needs an iid stream, but {stream.name!r} is not: "
            'scenario="iid" (--scenario iid)'
        )
    hides_t = paradigm is not None and not paradigm.learner_gets_t
    provided = _provided(stream) - ({"t", "tasks"} if hides_t else set()) | ({"t"} if infer else set())
    wanted: dict[str, frozenset[str]] = {learner.name: frozenset(learner.needs)}
    if horizon.extent == "task":
        wanted["a horizon of one task"] = frozenset({"t"})
    if paradigm is not None and paradigm.learner_gets_t:
        wanted[f"{paradigm.name} learning"] = frozenset({"t"})
    for who, needs in wanted.items():
        missing = needs - provided
        if missing:
            where = f"{paradigm.name} learning" if paradigm is not None and hides_t else repr(stream.name)
            remedy = (
                '; infer="novelty" (--infer novelty) infers t from the stream' if missing == {"t"} else ""
            )
            raise ValueError(f"{who} needs {' and '.join(sorted(missing))}, which {where} hides{remedy}")


def check_classes(learner: Learner, stream: Stream) -> None:
    """Raise a ValueError if the memory has no room for the classes that a stream is known to send."""
    labels = [label for label in stream.classes or () if not is_missing(label)]
    check_room(learner, len({*learner.classes, *labels}))


def _provided(stream: Stream) -> frozenset[str]:
    """The information a stream provides; a user's own stream reads its first batch for that, which may fail."""
    try:
        return stream.tells
    except Exception as error:
        raise stream_failed(stream, 1, error) from error


def stream_failed(stream: Stream, number: int, error: Exception) -> StreamError:
    """The error to raise when a stream failed to yield the batch with this number."""
    failure = StreamError(f"the stream {stream.name!r} failed at batch {number}: {error}")
    failure.__cause__ = error
    return failure


def is_transition(before: Any, now: Any) -> bool:
    """Whether one task ended and another begins."""
    return before is not None and now is not None and now != before


def as_detector(detector: Any) -> Any:
    """The drift detector: ADWIN by name, one of the user's own, or None."""
    if detector != "adwin":
        if detector is not None and not hasattr(detector, "update"):
            raise ValueError(f'detector is "adwin" or one of River\'s drift detectors, not {detector!r}')
        return detector
    try:
        from river import drift
    except ImportError:
        raise ImportError("ADWIN comes with River: pip install 'everlearn[river]'") from None
    return drift.ADWIN()  # type: ignore[no-untyped-call]
