"""Changes of a live learner: calls are taken in order, journaled and applied, one at a time.

All calls that wait are journaled in one commit, which runs in a thread of its own while the first of them is applied.
A call returns when it is applied and on disk. The thread that opened the learner applies its own calls if no others
wait, which saves two switches between threads; all other calls are applied by one thread of the writer's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from everlearn.live.entries import Change, Entry
from everlearn.live.interrupts import InterruptsWait
from everlearn.live.journal import Journal, LiveError
from everlearn.live.model import Model, NotRecorded
from everlearn.live.no_effect import result_without_effect
from everlearn.live.results import check_same_kind
from everlearn.live.storage import Storage
from everlearn.live.worker import Outcome, Worker

__all__ = ["Busy", "Call", "Writer"]

GROUP = 64  # calls in one commit
GROUP_BYTES = 2**24


class Busy(LiveError):
    """Too many calls wait to be applied; try again later."""


class Call:
    """A change that waits to be applied, or an action that runs between two changes."""

    def __init__(self, change: Change | None, action: Callable[[], Any] | None = None) -> None:
        self.change, self.action = change, action
        self.outcome = Outcome()
        self.repeats: list[Call] = []  # the same request again, while this one waits

    @property
    def is_alone(self) -> bool:
        """Whether nothing may be journaled behind it before it is done."""
        return self.change is None or self.change.kind in ("delete", "forget")

    def succeed(self, result: Any) -> None:
        """Give the result to the caller."""
        for call in (self, *self.repeats):
            call.outcome.succeed(result)

    def fail(self, error: BaseException) -> None:
        """Raise an error in the caller."""
        for call in (self, *self.repeats):
            call.outcome.fail(error)


class Writer:
    """Applies calls one after the other.

    between: called after each group of calls, and when `wake` was called; returns after how many seconds it must be
        called again, if it must.
    most: calls that may wait; None for any number.
    """

    def __init__(
        self, model: Model, storage: Storage, between: Callable[[], float | None], most: int | None
    ) -> None:
        self.model, self._storage, self._between, self._most = model, storage, between, most
        self.journal: Journal = storage.journal
        self.step_seconds = self.commit_seconds = 0.0  # rolling means
        self._committer: Worker = storage.committer
        self._calls: deque[Call] = deque()
        self._condition = threading.Condition()
        self._applying = threading.Lock()
        self._opener = threading.get_ident()
        self._woken = self._closing = False
        self._broken: str | None = None
        self._counts = model.learner.batches, model.learner.samples
        self._thread = threading.Thread(target=self._run, name="everlearn learner", daemon=True)
        self._thread.start()

    # For callers, in any thread.

    def submit(self, call: Call) -> Any:
        """Wait until a call is applied and durable; returns its result or raises its error."""
        with InterruptsWait():
            if not self._is_applied_here(call):
                self._queue(call)
        return call.outcome.result()

    def _is_applied_here(self, call: Call) -> bool:
        """Apply a call in this thread, if it may and no others wait; False if it did not."""
        if self._calls or not self.hold():
            return False
        try:
            if self._closing:
                return False
            self._process([call])
            again = self._after_group()
        finally:
            self.release()
        if again is not None:
            self.wake()
        return True

    def _queue(self, call: Call) -> None:
        """Let the thread apply a call."""
        with self._condition:
            if self._closing:
                raise LiveError("this live learner is closed: open the folder again")
            if self._most is not None and len(self._calls) >= self._most:
                raise Busy(f"{len(self._calls)} calls wait already: try again later")
            self._calls.append(call)
            self._condition.notify()

    def hold(self) -> bool:
        """Keep the learner unchanged until `release`; False if this thread did not open it, or it changes now."""
        return threading.get_ident() == self._opener and self._applying.acquire(blocking=False)

    def release(self) -> None:
        """Let the learner change again."""
        self._applying.release()

    def wake(self) -> None:
        """Call `between` soon."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def use(self, model: Model) -> None:
        """Go on with another model, between two changes."""
        self.model = model
        self._counts = model.learner.batches, model.learner.samples

    def stop(self, reason: str) -> None:
        """Refuse all later calls: the learner is no longer the one of the journal."""
        self._broken = reason

    @property
    def is_broken(self) -> bool:
        """Whether the learner is no longer the one of the journal."""
        try:
            self._check()
        except LiveError:
            return True
        return False

    def waiting(self) -> int:
        """The number of calls that wait."""
        return len(self._calls)

    def close(self) -> None:
        """Apply what waits, and end the thread."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()
        if threading.get_ident() != self._opener:
            with self._applying:  # wait until the opener's thread has applied a call of its own
                pass

    # In the thread.

    def _run(self) -> None:
        again: float | None = None  # seconds until `between` must be called
        while True:
            with self._condition:
                if not (self._calls or self._woken or self._closing):
                    self._condition.wait(again)
                group = self._take()
                self._woken = False
                if not group and self._closing:
                    return
            with self._applying:
                self._process(group)
                again = self._after_group()

    def _after_group(self) -> float | None:
        """Call `between`. Its error fails no call and does not end the thread: `status` shows it."""
        try:
            return self._between()
        except Exception as error:
            self._storage.error = f"{type(error).__name__}: {error}"
            return None

    def _take(self) -> list[Call]:
        """The calls of the next commit."""
        group: list[Call] = []
        size = 0
        while self._calls and len(group) < GROUP and size < GROUP_BYTES:
            if group and self._calls[0].is_alone:
                break
            call = self._calls.popleft()
            group.append(call)
            if call.is_alone:
                break
            size += len(call.change.samples or b"") if call.change is not None else 0
        return group

    def _process(self, group: list[Call]) -> None:
        try:
            self._check()
            if group and group[0].action is not None:
                group[0].succeed(group[0].action())
            else:
                calls = self._without_repeats(group)
                self._apply([call for call in calls if not self._is_answered(call)])
                if self.model.statistics.alarm_due and self._broken is None:
                    self._alarm()
        except BaseException as error:  # of a check or an action; those of changes are handled in `_apply`
            for call in group:
                if not call.outcome.is_known:
                    call.fail(error)

    def _check(self) -> None:
        """Raise an error if the learner is no longer the one of the journal."""
        learner = self.model.learner
        if self._broken is None and self._counts != (learner.batches, learner.samples):
            self._broken = "the learner was changed by a call of its own, which the journal does not hold"
        if self._broken is not None:
            raise LiveError(f"{self._broken}: close this live learner and open the folder again")

    def _without_repeats(self, group: list[Call]) -> list[Call]:
        """The calls that are no retries of an earlier request; retries get its result."""
        first: dict[str, Call] = {}
        left: list[Call] = []
        for call in group:
            assert call.change is not None
            request = call.change.request_id
            if request is not None and request in self.model.requests:
                try:
                    call.succeed(self.model.requests.result(request, call.change.kind))
                except ValueError as error:
                    call.fail(error)
            elif request is not None and request in first:
                self._repeat(first[request], call)
            else:
                left.append(call)
                if request is not None:
                    first[request] = call
        return left

    def _repeat(self, first: Call, call: Call) -> None:
        """Let a retry get the result of the first call, which is not made yet."""
        assert first.change is not None and call.change is not None
        try:
            check_same_kind(str(call.change.request_id), first.change.kind, call.change.kind)
        except ValueError as error:
            call.fail(error)
        else:
            first.repeats.append(call)

    def _is_answered(self, call: Call) -> bool:
        """Answer a call that changes nothing, which is not journaled; False if it changes something."""
        assert call.change is not None
        try:
            result = result_without_effect(self.model, self._storage, call.change)
        except ValueError as error:
            result = error
        if result is None:
            return False
        self.model.remember(call.change, result)
        if isinstance(result, ValueError):
            call.fail(result)
        else:
            call.succeed(result)
        return True

    def _apply(self, calls: list[Call]) -> None:
        """Journal calls in one commit, and apply them one by one."""
        if not calls:
            return
        now = time.time()
        entries = [
            Entry(self.model.position + i, now, call.change)
            for i, call in enumerate(calls, 1)
            if call.change is not None
        ]
        commit = self._committer.submit(self._append, entries)
        for i, (call, entry) in enumerate(zip(calls, entries, strict=True)):
            try:
                started = time.perf_counter()
                result = self.model.apply(entry, commit.result)
                self.step_seconds += 0.05 * (time.perf_counter() - started - self.step_seconds)
            except Exception as error:
                failure = self._refuse(call, entry, commit, error)
                if failure is not None:
                    for other in calls[i + 1 :]:
                        other.fail(failure)
                    return
            else:
                self._counts = self.model.learner.batches, self.model.learner.samples
                self._answer(call, entry, result)

    def _answer(self, call: Call, entry: Entry, result: Any) -> None:
        """Give the result of a change to its caller; of a deletion, once no file has the samples any more."""
        try:
            if entry.change.kind == "delete":
                self._storage.erase(self.model, [entry])
        except Exception as error:
            if entry.change.request_id is not None:
                self.model.requests.drop(entry.change.request_id)  # a retry erases them
            words = f"deleted, but older files still hold the samples: {error}; call delete again"
            call.fail(LiveError(words))
        else:
            call.succeed(result)

    def _alarm(self) -> None:
        """Make the change that a drift detector called for; if it can't be written, with the next call."""
        before = self.model.position
        self._apply([Call(Change.make("alarm", None))])
        self.model.statistics.alarm_due = self.model.position == before

    def _append(self, entries: list[Entry]) -> None:
        started = time.perf_counter()
        self.journal.append(entries)
        self.commit_seconds += 0.05 * (time.perf_counter() - started - self.commit_seconds)

    def _refuse(self, call: Call, entry: Entry, commit: Outcome, error: Exception) -> BaseException | None:
        """Fail a call, and set it aside if the learner refused it; returns the error of all later calls, if any."""
        commit.wait()
        if commit.error is not None:
            call.fail(error)
            return commit.error
        if isinstance(error, NotRecorded):
            failure = self._take_back(entry, error)
            call.fail(failure)
            return failure
        reason = self.model.refuse(entry, error)
        try:
            self._committer.submit(self.journal.refuse, entry.position, reason).result()
        except LiveError as failure:
            self._broken = f"a refused change could not be marked in the journal ({failure})"
        call.fail(error)
        return None

    def _take_back(self, entry: Entry, error: NotRecorded) -> LiveError:
        """Remove a change from the journal that could not be recorded, so that the folder can be opened again."""
        self._broken = f"change {entry.position} could not be recorded ({error})"
        with contextlib.suppress(LiveError):  # else the next opening names the entry
            self._committer.submit(self.journal.cut, entry.position - 1).result()
        return LiveError(f"{self._broken}: close this live learner and open the folder again")
