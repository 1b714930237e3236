"""Learners as scikit-learn's classifiers: `fit`, `partial_fit`, `predict`, in pipelines and searches."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from everlearn.adapters.common import (
    check_batch_size,
    cope_settings,
    freeze,
    known_parameters,
    make,
    probabilities,
    thaw,
)
from everlearn.core.learner import Learner
from everlearn.losses import Gradient

__all__ = ["EXPECTED_FAILED_CHECKS", "CoPEClassifier", "OnlineClassifier"]

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_methods_subset_invariance": (
        "a float32 network rounds a sample alone otherwise than a sample in a batch, in the seventh digit: "
        "more than the 1e-7 that the check allows"
    ),
}
"""Those of scikit-learn's own checks that the classifiers fail, and why."""


class _SklearnClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the classifiers share: everything but their parameters."""

    network: str | nn.Module
    batch_size: int
    epochs: int
    random_state: Any
    device: str

    @abstractmethod
    def _kind(self) -> tuple[str | type[Learner], dict[str, Any] | None]:
        """Which learner it is, and its settings."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from these samples alone: what was learnt before is gone.

        The rows are shuffled and observed in batches once, then revisited in `epochs` - 1 further passes.
        """
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {self.epochs!r}")
        X, y = self._checked(X, y, reset=True)
        random = check_random_state(self.random_state)
        learner = self._new(random)
        for epoch in range(self.epochs):
            order = random.permutation(len(X))
            self._learn(learner.revisit if epoch else learner.observe, X[order], y[order], 0)
        learner.end_horizon()
        self.learner_, self.classes_, self.calls_ = learner, np.unique(y), 1
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from more samples, once, in the order they come; labels may be new at any time.

        To a learner that must be told tasks, each call is a task.

        classes: labels that will come: they have a column in `predict_proba` from now on. None need be told.
        """
        first = not hasattr(self, "learner_")
        X, y = self._checked(X, y, reset=first)
        learner = self._new(check_random_state(self.random_state)) if first else self.learner_
        known = _together([y, *([] if first else [self.classes_]), *([] if classes is None else [classes])])
        call = 0 if first else self.calls_
        learner.accept(X, y)  # so that a batch in the midst is refused before the first one is learnt
        self._learn(learner.observe, X, y, call)
        learner.end_horizon()
        self.learner_, self.classes_, self.calls_ = learner, np.unique(known), call + 1
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each sample, among those seen so far."""
        X = self._samples(X)
        columns = self._columns()
        predicted: NDArray[Any] = self.classes_[[columns[label] for label in self.learner_.predict(X)]]
        return predicted

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """A row of probabilities per sample, over `classes_`."""
        X = self._samples(X)
        columns = self._columns()
        answer = np.zeros((len(X), len(self.classes_)))
        answer[:, [columns[label] for label in self.learner_.classes]] = probabilities(self.learner_, X)
        return answer

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[NDArray[np.float32], NDArray[Any]]:
        check_batch_size(self.batch_size)
        _check_names(X)
        X, y = validate_data(self, X, y, dtype=np.float32, reset=reset)
        check_classification_targets(y)
        return X, y

    def _samples(self, X: Any) -> Any:
        check_is_fitted(self)
        _check_names(X)
        return validate_data(self, X, dtype=np.float32, reset=False)

    def _new(self, random: np.random.RandomState) -> Learner:
        kind, settings = self._kind()
        learner = make(kind, self.network, int(random.randint(2**31 - 1)), self.device, settings)
        if learner.settings.unknown is not None:
            raise ValueError(
                "unknown can't be set here: a classifier of scikit-learn's answers with one of its classes; "
                "`learner_.predict` of a learner by itself may say none of these"
            )
        return learner

    def _learn(self, learn: Callable[[Any, Any, int], None], X: Any, y: Any, task: int) -> None:
        """In batches of at most `batch_size`, as equal as can be."""
        for rows in np.array_split(np.arange(len(X)), math.ceil(len(X) / self.batch_size)):
            learn(X[rows], y[rows], task)

    def _columns(self) -> dict[Any, int]:
        return {label: column for column, label in enumerate(self.classes_.tolist())}

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | ({"learner_": freeze(self.learner_)} if "learner_" in state else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        learnt = {"learner_": thaw(state["learner_"], state["device"])} if "learner_" in state else {}
        super().__setstate__(state | learnt)


def _check_names(X: Any) -> None:
    """Refuse a dataframe that names some of its columns by words and others not."""
    kinds = {"str" if isinstance(name, str) else type(name).__name__ for name in getattr(X, "columns", ())}
    if "str" in kinds and len(kinds) > 1:
        raise TypeError(
            f"X names its columns by {' and '.join(sorted(kinds))}: name all of them by strings, "
            "X.columns = X.columns.astype(str), or none"
        )


def _together(parts: list[Any]) -> NDArray[Any]:
    """Labels from several places, if they can be sorted among each other."""
    labels = [np.asarray(part) for part in parts]
    kinds = {{"O": "text", "U": "text", "S": "bytes"}.get(part.dtype.kind, "numbers") for part in labels}
    if len(kinds) > 1:
        raise ValueError(
            f"labels must be of one kind, but there are {' and '.join(sorted(kinds))} among them"
        )
    return np.concatenate(labels)


class OnlineClassifier(_SklearnClassifier):
    """Any learner of everlearn's, by its name, as a classifier of scikit-learn's.

    learner: the name of a learner, or a class of your own.
    network: `"mlp"`, sized from the first samples; or a module that maps samples to an embedding.
    batch_size: samples in a batch.
    epochs: passes of `fit` over its samples; `partial_fit` makes one.
    random_state: fixes initialisation, replay, memory and the order in `fit`.
    device: `"auto"` (a GPU if there is one), or a torch device by name.
    settings: the learner's settings, by name.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OnlineClassifier("mir", random_state=0, settings={"hidden": 64})
    >>> bool(cross_val_score(model, X, y).mean() > 0.9)
    True
    """

    @known_parameters
    def __init__(
        self,
        learner: str | type[Learner] = "cope",
        *,
        network: str | nn.Module = "mlp",
        batch_size: int = 10,
        epochs: int = 10,
        random_state: Any = None,
        device: str = "auto",
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.learner = learner
        self.network = network
        self.batch_size = batch_size
        self.epochs = epochs
        self.random_state = random_state
        self.device = device
        self.settings = settings

    def _kind(self) -> tuple[str | type[Learner], dict[str, Any] | None]:
        return self.learner, self.settings


class CoPEClassifier(_SklearnClassifier):
    """CoPE as a classifier of scikit-learn's: prototypes that evolve, and a balanced memory.

    network: `"mlp"`, sized from the first samples; or a module that maps samples to an embedding.
    batch_size: samples in a batch.
    epochs: passes of `fit` over its samples; `partial_fit` makes one.
    random_state: fixes initialisation, replay, memory and the order in `fit`.
    device: `"auto"` (a GPU if there is one), or a torch device by name.
    The other parameters are the settings of `everlearn.CoPE`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), CoPEClassifier(hidden=64, random_state=0))
    >>> bool(cross_val_score(model, X, y, cv=3).mean() > 0.9)
    True

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution. ICCV 2021.
    """

    @known_parameters
    def __init__(
        self,
        *,
        network: str | nn.Module = "mlp",
        batch_size: int = 10,
        epochs: int = 10,
        random_state: Any = None,
        device: str = "auto",
        learning_rate: float = 0.01,
        iterations: int = 1,
        hidden: int = 400,
        memory_size: int = 2000,
        temperature: float = 0.1,
        momentum: float = 0.99,
        embedding: int | None = None,
        renormalise: bool = True,
        pseudo_prototypes: bool = True,
        gradient: Gradient = "released",
    ) -> None:
        self.network = network
        self.batch_size = batch_size
        self.epochs = epochs
        self.random_state = random_state
        self.device = device
        self.learning_rate = learning_rate
        self.iterations = iterations
        self.hidden = hidden
        self.memory_size = memory_size
        self.temperature = temperature
        self.momentum = momentum
        self.embedding = embedding
        self.renormalise = renormalise
        self.pseudo_prototypes = pseudo_prototypes
        self.gradient = gradient

    def _kind(self) -> tuple[str | type[Learner], dict[str, Any] | None]:
        return "cope", cope_settings(self)
