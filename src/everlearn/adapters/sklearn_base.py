"""The scikit-learn interface of a learner, without its parameters."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import nn

from everlearn.adapters.common import check_batch_size, deserialize, make_learner, probabilities, serialize
from everlearn.core.learner import Learner
from everlearn.core.row_selection import as_weights
from everlearn.core.table import Table, as_table, is_dataframe
from everlearn.core.validation import check_batch
from everlearn.core.wrong_samples import check_mask
from everlearn.memory.labels import is_missing, shortened
from everlearn.messages import is_whole

__all__ = ["SklearnClassifier"]

Method = TypeVar("Method", bound=Callable[..., Any])


def _unchanged_if_refused(method: Method) -> Method:
    """A decorator: the attributes of the estimator are as before where the method raises an error."""

    @functools.wraps(method)
    def whole(self: Any, *arguments: Any, **named: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *arguments, **named)
        except BaseException:
            self.__dict__ = before
            raise

    return cast(Method, whole)


class SklearnClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """`fit`, `partial_fit`, `predict` and `predict_proba`; a subclass adds the parameters."""

    network: str | nn.Module
    batch_size: int
    epochs: int
    random_state: Any
    device: str

    @abstractmethod
    def _kind(self) -> tuple[str | type[Learner], dict[str, Any] | None]:
        """The learner and its settings."""

    @_unchanged_if_refused
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from these samples only; anything learnt before is discarded.

        The rows are shuffled and observed once in batches, then revisited in `epochs` - 1 further passes.

        X: an array, sparse rows, or a DataFrame, whose columns of text or categories are encoded by the learner.
        sample_weight: how much each sample counts in the loss; one of weight 0 is left out.
        """
        if not is_whole(self.epochs, least=1):
            raise ValueError(f"epochs must be a whole number, at least 1, not {self.epochs!r}")
        X, y, weights = self._checked(X, y, sample_weight, reset=True)
        random = check_random_state(self.random_state)
        learner = self._new(random)
        for epoch in range(self.epochs):
            order = random.permutation(len(y))
            shuffled = None if weights is None else weights[order]
            self._learn(learner.revisit if epoch else learner.observe, X[order], y[order], 0, shuffled)
        learner.end_horizon()
        self.learner_, self.classes_, self.calls_ = learner, np.unique(y), 1
        return self

    @_unchanged_if_refused
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more samples, once and in their order; new labels may appear in any call.

        For a learner that needs tasks, each call is a task.

        classes: labels that will appear later. They get a column in `predict_proba` from now on. Optional.
        sample_weight: how much each sample counts in the loss; one of weight 0 is left out.
        """
        first = not hasattr(self, "learner_")
        X, y, weights = self._checked(X, y, sample_weight, reset=first)
        learner = self._new(check_random_state(self.random_state)) if first else self.learner_
        known = _distinct(
            [y, *([] if first else [self.classes_]), *([] if classes is None else [_announced(classes)])]
        )
        call = 0 if first else self.calls_
        # So that an invalid row raises an error before the first batch is learnt.
        check_batch(learner, X, y, "partial_fit" if isinstance(X, Table) else "observe")
        self._learn(learner.observe, X, y, call, weights)
        learner.end_horizon()
        self.learner_, self.classes_, self.calls_ = learner, known, call + 1
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The predicted label of each sample, among those seen so far."""
        X = self._samples(X)
        columns = self._columns()
        predicted: NDArray[Any] = self.classes_[[columns[label] for label in self.learner_.predict(X)]]
        return predicted

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probabilities of each sample, with a column for each of `classes_`."""
        X = self._samples(X)
        columns = self._columns()
        answer = np.zeros((len(X) if isinstance(X, Table) else X.shape[0], len(self.classes_)))
        answer[:, [columns[label] for label in self.learner_.classes]] = probabilities(self.learner_, X)
        return answer

    def _checked(self, X: Any, y: Any, weights: Any, reset: bool) -> tuple[Any, NDArray[Any], Any]:
        """Samples, labels and weights, without the samples of weight 0."""
        check_batch_size(self.batch_size)
        _check_labels(y)
        X = self._rows(X, reset)
        if isinstance(X, Table):
            if not len(X):
                raise ValueError(f"{type(self).__name__} got a DataFrame without rows: give at least one")
            y = column_or_1d(y, warn=True)
            check_consistent_length(X, y)
        else:
            X, y = validate_data(self, X, y, dtype=np.float32, reset=reset, accept_sparse="csr")
        check_classification_targets(y)
        if weights is None:
            return X, y, None
        weights = _check_sample_weight(weights, X, ensure_non_negative=True)
        weights = as_weights(weights, len(y), type(self).__name__)
        counts = np.flatnonzero(weights > 0)
        return X[counts], y[counts], weights[counts]

    def _samples(self, X: Any) -> Any:
        check_is_fitted(self, "learner_")
        X = self._rows(X, reset=False)
        if isinstance(X, Table):
            return X
        return validate_data(self, X, dtype=np.float32, reset=False, accept_sparse="csr")

    def _rows(self, X: Any, reset: bool) -> Any:
        """A DataFrame that has columns of categories, or whose learner knows such, as a table; else X as it is."""
        _check_names(X)
        name = type(self).__name__
        check_mask(X, name)
        encodes = not reset and self.learner_.columns is not None
        if not is_dataframe(X):
            if encodes:
                raise ValueError(f"{name} takes a DataFrame, as the first one, not {type(X).__name__}")
            return X
        table = as_table(X, name)
        if not table.has_categories and not encodes:
            return X
        if not reset and not encodes:
            column = next(
                each for each, part in zip(table.names, table.columns, strict=True) if isinstance(part, list)
            )
            raise ValueError(
                f"{name} takes numbers in the column {shortened(column)}, as in the first samples: encode it, or "
                "fill in what is missing"
            )
        validate_data(self, X, reset=reset, skip_check_array=True)
        return table

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _new(self, random: np.random.RandomState) -> Learner:
        kind, settings = self._kind()
        learner = make_learner(kind, self.network, int(random.randint(2**31 - 1)), self.device, settings)
        if learner.settings.unknown is not None:
            raise ValueError(
                "unknown can't be set here, because a scikit-learn classifier predicts one of its classes; use the "
                "learner itself to get UNKNOWN as an answer"
            )
        return learner

    def _learn(self, learn: Callable[..., None], X: Any, y: Any, task: int, weights: Any) -> None:
        """Learn in batches of at most `batch_size`, of nearly equal sizes."""
        for rows in np.array_split(np.arange(len(y)), math.ceil(len(y) / self.batch_size)):
            learn(X[rows], y[rows], task, *([] if weights is None else [weights[rows]]))

    def _columns(self) -> dict[Any, int]:
        return {label: column for column, label in enumerate(self.classes_.tolist())}

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | ({"learner_": serialize(self.learner_)} if "learner_" in state else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        restored = (
            {"learner_": deserialize(state["learner_"], state["device"])} if "learner_" in state else {}
        )
        super().__setstate__(state | restored)


def _check_names(X: Any) -> None:
    """Raise a TypeError if only some columns of a dataframe are named by strings."""
    kinds = {"str" if isinstance(name, str) else type(name).__name__ for name in getattr(X, "columns", ())}
    if "str" in kinds and len(kinds) > 1:
        raise TypeError(
            f"the columns of X are named by {' and '.join(sorted(kinds))}; use strings for all of them, "
            "X.columns = X.columns.astype(str), or for none"
        )


def _check_labels(y: Any) -> None:
    """Raise a ValueError if a label among texts is missing; scikit-learn finds it among numbers only."""
    if not isinstance(y, list | tuple):
        kind = str(getattr(y, "dtype", "")).lower().partition("(")[0]
        listed = kind in ("object", "str", "string", "category", "categorical", "enum")
        y = (y.to_list() if hasattr(y, "to_list") else y.tolist()) if listed else ()
    for place, label in enumerate(y):
        if is_missing(label):
            raise ValueError(f"y has no label (None or NaN) for sample {place}: leave such samples out")


def _announced(classes: Any) -> NDArray[Any]:
    """The labels of `classes`; a ValueError if it is not a sequence of such."""
    labels = np.asarray(classes)
    if labels.ndim != 1 or any(map(is_missing, labels.tolist())):
        raise ValueError(f"classes is a list or an array of labels, not {shortened(classes)}")
    return labels


def _distinct(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The labels of all parts, sorted; a ValueError if they can't be sorted together."""
    kinds = {{"O": "text", "U": "text", "S": "bytes"}.get(part.dtype.kind, "numbers") for part in parts}
    if len(kinds) > 1:
        raise ValueError(f"all labels must be of one kind, but there are {' and '.join(sorted(kinds))}")
    labels = np.concatenate(parts)
    if labels.dtype.kind == "f" and all(part.dtype.kind in "biu" for part in parts):
        # Signed and unsigned numbers of 64 bits, which floating ones can't hold.
        labels = np.array([label for part in parts for label in part.tolist()])
    try:
        return np.unique(labels)
    except TypeError:
        raise ValueError("all labels must be of one kind, but there are text and others") from None
