"""The promise that a CUDA graph can capture what a learner does with a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from everlearn.testing.requirements import BrokenPromise
from everlearn.testing.samples import Subject, teach_all
from everlearn.training.capturable import HostReads

__all__ = ["host_reads"]


def host_reads(subject: Subject) -> str | None:
    """A step that a CUDA graph may capture consists of tensor operations."""
    learner = subject.make()
    if subject.network_is_own:
        return "its network is your own"
    if not learner.tensors_alone:
        return "it sets tensors_alone = False"
    learn = learner.learn

    def watched(*arguments: Any) -> None:
        with _Watched(), _reads_watched():  # type: ignore[no-untyped-call]
            learn(*arguments)

    vars(learner)["learn"] = watched
    teach_all(learner)
    return None


class _Watched(HostReads):  # type: ignore[no-untyped-call]
    """A context in which a learner may not use operations for which the host needs the values of a tensor."""

    def found(self, name: str) -> None:
        name = name.removeprefix("aten::")
        _refuse("item" if name == "_local_scalar_dense" else name)


@contextmanager
def _reads_watched() -> Iterator[None]:
    """A context in which a learner may not read a tensor by methods that are no operations on a CPU."""
    with ExitStack() as patches:
        for name in ("numpy", "tolist"):
            patches.enter_context(
                patch.object(torch.Tensor, name, _reader(name, getattr(torch.Tensor, name)))
            )
        yield


def _reader(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
    def reader(*arguments: Any, **options: Any) -> Any:
        _refuse(name)
        return read(*arguments, **options)

    return reader


def _refuse(operation: str) -> None:
    """Raise a BrokenPromise if a learner reads values; helpers of the library only do where tensors are on a CPU."""
    if _is_helper(_caller()):
        return
    raise BrokenPromise(
        f"the host needs the values of a tensor ({operation}): use tensor operations only, or set "
        "tensors_alone = False"
    )


def _is_helper(module: str) -> bool:
    return module.startswith("everlearn.") and not module.startswith("everlearn.learners.")


def _caller() -> str:
    """The module whose code called torch."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


_BETWEEN = (__name__, "torch.", "everlearn.randomness", "everlearn.training.capturable")
