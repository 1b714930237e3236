"""Learners as River's classifiers: `learn_one`, `predict_one`, features that come and go.

Needs River: `pip install 'everlearn[river]'`.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from everlearn.adapters.common import cope_settings, known_parameters, make, probabilities
from everlearn.adapters.minibatcher import Gathering
from everlearn.core.learner import Learner
from everlearn.losses import Gradient
from everlearn.memory.labels import Label

try:
    from river import base
    from river.utils import dataframe
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"everlearn.adapters.river needs River 0.26 or newer ({error}): pip install 'everlearn[river]'"
    ) from None

__all__ = ["CoPEClassifier", "OnlineClassifier"]

Record = Mapping[Hashable, Any]


class _RiverClassifier(base.MiniBatchClassifier):
    """What the classifiers share: everything but their parameters."""

    network: str | nn.Module
    batch_size: int
    seed: int | None
    device: str

    def _begin(self, kind: str | type[Learner], settings: dict[str, Any] | None) -> None:
        seed = random.randrange(2**31) if self.seed is None else self.seed
        self._gathering = Gathering(make(kind, self.network, seed, self.device, settings), self.batch_size)

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def learner_(self) -> Learner:
        """The learner itself: its memory, its prototypes, `save`. It has not seen what waits."""
        return self._gathering.learner

    @property
    def classes(self) -> list[Label]:
        """The labels told so far, in the order first told, those that wait included."""
        return self.learner_.classes

    @property
    def waiting(self) -> int:
        """How many records wait for their batch to be full."""
        return len(self._gathering)

    def learn_waiting(self) -> None:
        """Learn from the records that wait, though they are fewer than a batch."""
        self._gathering.learn_waiting()

    def learn_one(self, x: Record, y: Label) -> None:
        """Learn from a record; it waits until `batch_size` of them have come."""
        self._gathering.tell(x, y)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn from a dataframe, row after row as by `learn_one`; NaN stands for a missing feature."""
        frame = dataframe.into_frame(X)
        labels = dataframe.into_series(y).to_list()
        self._gathering.tell_many(frame.columns, _numbers(frame), labels)

    # River's own labels are str, int or bool; these may be anything that a learner takes.
    def predict_one(self, x: Record, **kwargs: Any) -> Label:  # type: ignore[override]
        """The label of a record among those told so far; None before the first."""
        return self.learner_.predict(self._gathering.row(x))[0] if self.classes else None

    def predict_proba_one(  # type: ignore[override]
        self, x: Record, **kwargs: Any
    ) -> dict[Label, float]:
        """The probability of each label told so far."""
        return dict(zip(self.classes, self._probabilities(self._gathering.row(x))[0].tolist(), strict=True))

    def predict_many(self, X: Any) -> Any:
        """The label of each row, as a series."""
        frame = dataframe.into_frame(X)
        rows = self._gathering.rows(frame.columns, _numbers(frame))
        labels = self.learner_.predict(rows) if self.classes and len(rows) else [None] * len(rows)
        return dataframe.to_native_series(labels, name=None, like=frame)

    def predict_proba_many(self, X: Any) -> Any:
        """The probability of each label told so far, a column each."""
        frame = dataframe.into_frame(X)
        rows = self._gathering.rows(frame.columns, _numbers(frame))
        columns = dict(zip(self.classes, self._probabilities(rows).T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _probabilities(self, rows: Any) -> NDArray[np.float64]:
        if not self.classes or not len(rows):
            return np.zeros((len(rows), len(self.classes)))
        return probabilities(self.learner_, rows)


def _numbers(frame: Any) -> NDArray[np.float64]:
    """The values of a dataframe, NaN where there is none."""
    try:
        return dataframe.to_numpy(frame)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a dataframe must hold numbers alone, encode the rest before: {error}") from None


class OnlineClassifier(_RiverClassifier):
    """Any learner of everlearn's, by its name, as a classifier of River's.

    Parameters
    ----------
    learner
        The name of a learner, or a class of your own. Those that must be told tasks (gem, icarl) are refused.
    network
        `"mlp"`, whose input grows with the features; or a module, with the input that its first linear layer has.
    batch_size
        So many records are gathered before the learner learns from them.
    seed
        Fixes initialisation, replay and memory.
    device
        A torch device by name, or `"auto"`. Small batches gain nothing on a GPU.
    settings
        The learner's settings, by name.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | OnlineClassifier("reservoir", seed=0, settings={"hidden": 64})
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()).get() > 0.8
    True

    """

    @known_parameters
    def __init__(
        self,
        learner: str | type[Learner] = "cope",
        network: str | nn.Module = "mlp",
        batch_size: int = 10,
        seed: int | None = None,
        device: str = "cpu",
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.learner = learner
        self.network = network
        self.batch_size = batch_size
        self.seed = seed
        self.device = device
        self.settings = settings
        self._begin(learner, settings)


class CoPEClassifier(_RiverClassifier):
    """CoPE as a classifier of River's: prototypes that evolve with the stream, and a balanced memory.

    Parameters
    ----------
    network
        `"mlp"`, whose input grows with the features; or a module, with the input that its first linear layer has.
    batch_size
        So many records are gathered before the learner learns from them.
    seed
        Fixes initialisation, replay and memory.
    device
        A torch device by name, or `"auto"`. Small batches gain nothing on a GPU.
    learning_rate
        Step size of plain SGD.
    iterations
        Gradient steps per batch, each with fresh replay.
    hidden
        Units in each hidden layer of the MLP.
    memory_size
        Exemplars in the replay memory, shared equally by the classes seen.
    temperature
        The concentration of the PPP-loss.
    momentum
        How much of a prototype stays when a batch moves it.
    embedding
        The size of the embedding; by default the network's own.
    renormalise
        Bring prototypes back to unit length after each move.
    pseudo_prototypes
        Let the samples of a batch act as proxies of their class in the loss.
    gradient
        What pseudo-prototypes pass on: released, full or detached.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | CoPEClassifier(hidden=64, seed=0)
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()).get() > 0.8
    True

    References
    ----------
    [^1]: De Lange, M. and Tuytelaars, T. Continual Prototype Evolution. ICCV 2021.

    """

    @known_parameters
    def __init__(
        self,
        network: str | nn.Module = "mlp",
        batch_size: int = 10,
        seed: int | None = None,
        device: str = "cpu",
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
        self.seed = seed
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
        self._begin("cope", cope_settings(self))
