"""Check that a learner of your own keeps what every learner of the library promises.

>>> from everlearn import Finetune
>>> from everlearn.testing import check_learner
>>> check_learner(Finetune)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import nn

from everlearn.core.learner import Learner
from everlearn.testing.checks import CHECKS
from everlearn.testing.samples import SMALL, Subject

__all__ = ["CHECKS", "SMALL", "Outcome", "Subject", "check_learner", "outcomes"]


class Outcome(NamedTuple):
    """What came out of one check.

    promise: what it checks, in a sentence. failure: what is wrong, or None. reason: why it does not apply, or None.
    """

    promise: str
    failure: Exception | None = None
    reason: str | None = None


def check_learner(
    kind: type[Learner], network: str | Callable[[], nn.Module] = "mlp", **settings: Any
) -> None:
    """Run all checks; raise an AssertionError at the first promise that is not kept.

    network: a name, or a function that makes a module for samples of six numbers. settings: of the learner, beside
        those that make it small.
    """
    for outcome in outcomes(Subject(kind, network, {**SMALL} | settings)):
        if outcome.failure is not None:
            raise AssertionError(f"{kind.__name__}: {outcome.promise} {outcome.failure}") from outcome.failure


def outcomes(subject: Subject) -> Iterator[Outcome]:
    """Run all checks, one after the other."""
    for check in CHECKS:
        promise = (check.__doc__ or check.__name__).strip()
        try:
            yield Outcome(promise, reason=check(subject))
        except Exception as error:
            yield Outcome(promise, failure=error)
