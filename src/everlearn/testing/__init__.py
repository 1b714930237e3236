"""Check that a learner of your own keeps what every learner of the library promises.

>>> from everlearn import Finetune
>>> from everlearn.testing import check_learner
>>> check_learner(Finetune)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from everlearn.core.learner import Learner
from everlearn.testing.checks import CHECKS, Check
from everlearn.testing.requirements import BrokenPromise
from everlearn.testing.samples import SMALL, Subject, random_numbers_restored, subject_of
from everlearn.user_code import place_in_user_code

__all__ = ["CHECKS", "SMALL", "Outcome", "Subject", "check_learner", "outcomes"]


class Outcome(NamedTuple):
    """What came out of one check.

    promise: what it checks, in a sentence. failure: what is wrong, or None. reason: why it does not apply, or None.
    """

    promise: str
    failure: Exception | None = None
    reason: str | None = None

    @property
    def why(self) -> str | None:
        """Why the promise is broken, with the place in the code, or why it does not apply; in one line."""
        return self.reason if self.failure is None else _in_one_line(self.failure)


def check_learner(
    kind: type[Learner], network: str | Callable[[], nn.Module] = "mlp", **settings: Any
) -> None:
    """Run all checks; raise an AssertionError at the first promise that is not kept.

    network: a name, or a function that makes a module for samples of six numbers. settings: of the learner, beside
        those that make it small.
    """
    for outcome in outcomes(subject_of(kind, network, settings)):
        if outcome.failure is not None:
            raise AssertionError(f"{kind.__name__}: {outcome.promise} {outcome.why}") from outcome.failure


def outcomes(subject: Subject) -> Iterator[Outcome]:
    """Run all checks, one after the other."""
    for check in CHECKS:
        promise = (check.__doc__ or check.__name__).strip()
        try:
            yield Outcome(promise, reason=_run(check, subject))
        except Exception as error:
            yield Outcome(promise, failure=error)


def _run(check: Check, subject: Subject) -> str | None:
    """Run a check, also of a learner that draws from torch's global generator, which is restored."""
    with random_numbers_restored():
        return check(subject)


def _in_one_line(error: Exception) -> str:
    """An error in one line, with its place in the user's code, or else where it was raised."""
    place, said = place_in_user_code(error), " ".join(str(error).split())
    if isinstance(error, BrokenPromise):
        return said if place is None else f"{said} ({place})"
    if place is None:
        call = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(call.filename).name}, line {call.lineno}, in {call.name}"
    name = type(error).__name__
    return f"{name}: {said} ({place})" if said else f"{name} ({place})"
