"""A learner at one moment, for predictions alone."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.memory.labels import Label

if TYPE_CHECKING:
    from everlearn.learners.foundation import Foundation
    from everlearn.learners.predicting import Predicting

__all__ = ["Snapshot", "Turn", "in_turn"]

Method = TypeVar("Method", bound=Callable[..., Any])


class Turn:
    """Whose turn it is: a lock that one thread holds at a time. A copy of it is a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


def in_turn(method: Method) -> Method:
    """What this method of a learner does, another thread finds done or not begun, never half done."""

    @functools.wraps(method)
    def waiting(self: Foundation, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast(Method, waiting)


class Snapshot:
    """A learner at one moment: immutable, and safe to ask from other threads while the learner goes on.

    batches, samples: how much the learner had observed.
    """

    def __init__(self, still: Predicting, exemplars: dict[Label, int]) -> None:
        self._still = still
        self._exemplars = exemplars
        self.batches, self.samples = still.batches, still.samples
        self.settings = still.settings

    @property
    def classes(self) -> list[Label]:
        """The labels seen by then, in the order first seen."""
        return self._still.classes

    @property
    def prototypes(self) -> dict[Label, Tensor]:
        """The prototype of each class, where the learner has any."""
        return dict(getattr(self._still, "prototypes", {}))

    def exemplars(self) -> dict[Label, int]:
        """How many exemplars of each class the replay memory held."""
        return dict(self._exemplars)

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen by then."""
        return self._still.predict(x)

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        return self._still.predict_proba(x)

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made."""
        return self._still.embed(x)
