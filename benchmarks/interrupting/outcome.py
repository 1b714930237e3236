"""What must hold after an interruption."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from interrupting.calls import CALLS, OtherChanged, at_start, begun, done, with_state
from interrupting.outside import differing, frozen, in_another_thread, process
from interrupting.points import TRACED, Point, Tracer, ctrl_c
from interrupting.subjects import TROUBLE, batch, task

__all__ = ["Expected", "expected", "interrupt", "what_is_wrong"]


@dataclasses.dataclass
class Expected:
    """A learner in one of the states allowed: the state, its predictions, and the state a batch later."""

    state: dict[str, Any]
    predicted: Any
    later: dict[str, Any]


def predicted(learner: Any) -> Any:
    """The predictions of a learner for some samples, to the bit."""
    x, _ = batch("abcde", 77)
    if not learner.classes:
        return None
    return learner.predict(x), learner.predict_proba(x).tobytes(), learner.classes, learner.exemplars()


def later(learner: Any) -> dict[str, Any]:
    """The state one batch later."""
    learner.observe(*batch("bacb", 78), task(learner, 1))
    return frozen(learner.state_dict())


@functools.cache
def expected(name: str, variant: str, call: str) -> tuple[Expected, Expected]:
    """What is right before the call, and after it."""
    before = _before(
        name, variant, "first" if call == "first" else "observe"
    )  # other calls find the same state
    return before, _expected(name, variant, done(name, variant, call))


@functools.cache
def _before(name: str, variant: str, call: str) -> Expected:
    return _expected(name, variant, begun(name, variant, call))


def _expected(name: str, variant: str, state: dict[str, Any]) -> Expected:
    learner = with_state(name, variant, state)
    return Expected(frozen(state), predicted(learner), later(learner))


def interrupt(point: Point) -> tuple[str, str] | None:
    """Interrupt a call at one point. None if all that must hold does; else what does not, and where it was raised."""
    victim = at_start(point.learner, point.variant, point.call)
    before, after = expected(point.learner, point.variant, point.call)
    outside = process()
    raised: BaseException | None = None
    with Tracer(*((point.kind, point.event, point.error) if point.kind in TRACED else ("",))) as tracer:
        try:
            TROUBLE.expect(point.kind, point.event, point.error)
            CALLS[point.call](victim)
        except BaseException as problem:
            raised = problem
    TROUBLE.expect()
    place = ":".join(map(str, tracer.places[-1])) if tracer.places else f"{point.kind} {point.event}"
    if process() != outside:
        torch.set_grad_enabled(True)
        return "the process: torch's generator, modes or threads", place
    if isinstance(raised, OtherChanged):
        return str(raised), place
    if point.error is ctrl_c and not isinstance(raised, KeyboardInterrupt):
        return f"KeyboardInterrupt became {raised!r}", place
    if raised is None:
        before = after
    elif point.kind not in TRACED:  # nothing can have been done yet
        after = before
    wrong = what_is_wrong(victim, before, after)
    return None if wrong is None else (wrong, place)


def what_is_wrong(victim: Any, before: Expected, after: Expected) -> str | None:
    """What of a learner is neither as before nor as after a call."""
    try:
        state = in_another_thread(victim.state_dict)
        if state is None:
            return "it stays locked for other threads"
        state = frozen(state)
        if state == after.state:
            right = after
        elif state == before.state:
            right = before
        else:
            return f"not before: {differing(state, before.state)}; not after: {differing(state, after.state)}"
        if predicted(victim) != right.predicted:
            return "the state is right, but it predicts otherwise"
        ahead = later(victim)
        if ahead != right.later:
            return f"the state is right, but the next batch makes other {differing(ahead, right.later)}"
    except Exception as problem:
        return f"it can't go on: {type(problem).__name__}: {problem}"
    return None
