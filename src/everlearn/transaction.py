"""Transactions: a change of a learner that fails or is interrupted is undone.

A transaction stores the attributes of the objects that may change (not the objects they refer to), and undo functions
for changes in place. Large tensors are not copied: an update of the weights is computed in full and applied at commit
(`at_commit`), or new tensors replace the old ones (`replace`), which still exist.

Once the commit has started, it is always finished, even if it is interrupted.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from everlearn import foreach
from everlearn.threads import ThreadCount
from everlearn.torch_modes import TorchModes, without_gradients

__all__ = ["PendingUpdate", "Transaction", "Update", "assign", "atomic", "current", "on_undo", "suspended"]

Method = TypeVar("Method", bound=Callable[..., Any])


class _Local(threading.local):
    transaction: Transaction | None = None

    def __init__(self) -> None:
        self.spares: dict[Any, Tensor] = {}


_local = _Local()


def current() -> Transaction | None:
    """The transaction that this thread is in, if any."""
    return _local.transaction


def on_undo(undo: Callable[[], object]) -> None:
    """Register an undo function for the current transaction, before the change is made."""
    if _local.transaction is not None:
        _local.transaction.on_undo(undo)


def assign(array: Any, index: Any, values: Any) -> None:
    """`array[index] = values` for an array or tensor; undone if the transaction fails."""
    if _local.transaction is not None:
        before = array[index]
        if isinstance(before, Tensor):
            before = before.clone()
        elif before.base is not None:  # a view; what is chosen by an array of indices is a copy
            before = before.copy()
        _local.transaction.on_undo(functools.partial(array.__setitem__, index, before))
    array[index] = values


class Transaction:
    """What must be undone if a change fails, and what must be done at commit.

    parts: objects whose attributes may be assigned to.
    generator: a random generator, whose state is restored.
    """

    __slots__ = (
        "_committing",
        "_generator",
        "_kept",
        "_parts",
        "_pending",
        "_random_state",
        "_spares",
        "_undo",
        "_undone",
        "goes_on",
        "last_slopes",
        "norms",
        "point_of_no_return",
        "undo_before",
    )

    def __init__(self, parts: Iterable[object], generator: torch.Generator) -> None:
        self._parts = [(part, vars(part).copy()) for part in parts]
        self._generator, self._random_state = generator, generator.get_state()
        self._undo: list[Callable[[], object]] = []
        self._pending: list[PendingUpdate] = []
        # What must be finite when the batch is done: norms of gradients, and the slopes of the last step by hand.
        self.norms: list[Tensor] = []
        self.last_slopes: tuple[Tensor, ...] = ()
        self._spares: list[Tensor] = []  # that hold these contents, and are used again by later transactions
        self._kept: set[int] = set()  # ids of tensors whose content is remembered
        self._committing = False
        self._undone = False
        self.point_of_no_return: Callable[[], bool] | None = None  # whether a GPU has made the change already
        self.goes_on = False  # whether more happens after a batch; if that fails, the batch is undone, too
        self.undo_before: Transaction | None = None  # a committed one that turned out to have failed

    # Register changes.

    def on_undo(self, undo: Callable[[], object]) -> None:
        """Register an undo function, before the change is made. It may be called even if the change was not made."""
        self._undo.append(undo)

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """Remember the values of these tensors, before they are changed in place."""
        new = [tensor for tensor in tensors if id(tensor) not in self._kept]
        if new:
            before = [_spare(tensor) for tensor in new]
            with torch.no_grad():
                foreach.copy_(before, new)
            self._undo.append(functools.partial(_copy_back, new, before))
            self._spares += before
            self._kept.update(map(id, new))

    def keep_buffers(self, network: nn.Module) -> None:
        """Remember the buffers of a network, which a forward pass in training mode may change or replace."""
        for module in network.modules():
            if module._buffers:
                held = dict(module._buffers)
                self._undo.append(functools.partial(module._buffers.update, held))
                self.keep(part for part in held.values() if part is not None)

    def replace(self, tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Set the data of tensors to these values, without a copy."""
        self._undo.append(functools.partial(_set_data, tensors, [tensor.data for tensor in tensors]))
        _set_data(tensors, values)

    def at_commit(self, update: PendingUpdate) -> None:
        """Make this update when all else is done, or at `flush`."""
        self._pending.append(update)

    def flush(self) -> None:
        """Make the updates that wait, since what they change is needed now."""
        if self._pending:
            self.keep(tensor for update in self._pending for tensor in update.tensors)
            pending, self._pending = self._pending, []
            with torch.no_grad():
                for update in pending:
                    update()

    def is_finite(self) -> bool:
        """Whether every step so far was."""
        sums = [*self.norms, *[slope.sum() for slope in self.last_slopes]]
        return all(map(math.isfinite, sums))

    # Commit or abort.

    def commit(self) -> None:
        """Make the change final."""
        self._committing = True
        if self._pending:
            self._finish()

    def abort(self) -> None:
        """Undo all changes; or, if the commit had started, finish it."""
        if self._committing or (self.point_of_no_return is not None and self.point_of_no_return()):
            self._finish()
            return
        if not self._undone:  # a second time, it would also take back the undoing of the change before
            self.undo()
            self._undone = True
        if self.undo_before is not None:
            self.undo_before.undo()

    def undo(self) -> None:
        """Undo all changes on the host, even after the commit."""
        with torch.inference_mode():  # which may also change the tensors that were made in it
            for undo in reversed(self._undo):
                undo()
        for part, attributes in self._parts:
            part.__dict__ = attributes
        self._generator.set_state(self._random_state)

    def _finish(self) -> None:
        with without_gradients():
            for update in self._pending:
                update()

    def release(self) -> None:
        """The transaction is over: later ones may use its tensors."""
        if self._spares:
            spares, self._spares = self._spares, []
            for spare in spares:
                _local.spares[spare.shape, spare.dtype, spare.device] = spare


class PendingUpdate(Protocol):
    """A change of tensors in place that has no further effect when it is made again, whole or in part."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """What it changes."""

    def __call__(self) -> None:
        """Make it, as far as it is not made yet."""


class Update:
    """A change of tensors by one operation, made once however often it is called: a tensor counts its changes."""

    __slots__ = ("_change", "_version", "tensors")

    def __init__(self, tensors: Sequence[Tensor], change: Callable[[], object]) -> None:
        self.tensors, self._change = tensors, change
        self._version = tensors[0]._version

    def __call__(self) -> None:
        if self.tensors[0]._version == self._version:
            self._change()


def _spare(tensor: Tensor) -> Tensor:
    """A tensor for the content of this one; one of an earlier transaction, so that memory is not taken each time."""
    spare = _local.spares.pop((tensor.shape, tensor.dtype, tensor.device), None)
    same_layout = spare is not None and spare.stride() == tensor.stride()
    if spare is not None and same_layout:
        return spare
    with torch.inference_mode(False):  # it may be used again outside of it
        return torch.empty_like(tensor, requires_grad=False)


def _copy_back(tensors: list[Tensor], values: list[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.data.copy_(value)


def _set_data(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.data = value


def atomic(method: Method) -> Method:
    """A decorator: the method of a learner runs in a transaction, and in one thread at a time.

    Inside another such method of the same learner, it is part of that transaction.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.lock.is_held():
            return method(self, *args, **kwargs)
        if torch.is_inference_mode_enabled():  # tensors made in it can never be trained
            with torch.inference_mode(False):
                return whole(self, *args, **kwargs)
        change = _Change(self)
        # An interrupt may also come while a failed change is being undone, or at the very end of a change. So the
        # undoing is done twice, and an end that was interrupted is made again; that has no further effect.
        try:
            try:
                try:
                    try:
                        transaction = change.begin()
                        result = method(self, *args, **kwargs)
                        transaction.commit()
                        return result
                    except BaseException:
                        change.abort()
                        raise
                except BaseException:
                    change.abort()
                    raise
            finally:
                change.end()
        finally:
            if not change.ended:
                change.end()

    return cast(Method, whole)


class _Change:
    """One change of a learner: its lock, its number of threads, torch's modes, and the transaction."""

    __slots__ = ("_learner", "_lock", "_modes", "_outer", "_threads", "_transaction", "ended")

    def __init__(self, learner: Any) -> None:
        self._learner, self._lock = learner, learner.lock
        self._outer, self._threads = _local.transaction, ThreadCount(learner.settings.threads)
        self._modes = TorchModes()
        self._transaction: Transaction | None = None
        self.ended = False

    def begin(self) -> Transaction:
        self._lock.acquire()
        self._threads.enter()
        begun = Transaction(self._learner.changing_parts(), self._learner.generator)
        self._transaction = _local.transaction = begun
        return begun

    def abort(self) -> None:
        if self._transaction is not None:
            self._transaction.abort()

    def end(self) -> None:
        _local.transaction = self._outer
        self._modes.restore()
        if self._transaction is not None and self._transaction.point_of_no_return is None:
            self._transaction.release()  # else a GPU may still refuse the change: `Captured.settle` goes on
        self._threads.leave()
        self._lock.release()
        self.ended = True


@contextmanager
def suspended() -> Iterator[None]:
    """A context without a transaction."""
    outer, _local.transaction = _local.transaction, None
    try:
        yield
    finally:
        _local.transaction = outer
