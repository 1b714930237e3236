"""Learners as classifiers for River: `learn_one`, `predict_one`, and features that appear and disappear.

Requires River: `pip install 'everlearn[river]'`.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from everlearn.adapters.common import cope_settings, make_learner, probabilities, store_parameters
from everlearn.adapters.minibatcher import MiniBatcher
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
    """Everything that the classifiers share except their parameters."""

    network: str | nn.Module
    batch_size: int
    seed: int | None
    device: str

    def _start(self, kind: str | type[Learner], settings: dict[str, Any] | None) -> None:
        """Create the learner."""
        seed = random.randrange(2**31) if self.seed is None else self.seed
        learner = make_learner(kind, self.network, seed, self.device, settings)
        self._batcher = MiniBatcher(learner, self.batch_size)

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def learner_(self) -> Learner:
        """The learner, for its memory, its prototypes or `save`. It has not seen the records that are waiting."""
        return self._batcher.learner

    @property
    def classes(self) -> list[Label]:
        """The labels learnt so far in order of appearance, including those of waiting records."""
        return self.learner_.classes

    @property
    def waiting(self) -> int:
        """How many records are waiting until their batch is full."""
        return len(self._batcher)

    def learn_waiting(self) -> None:
        """Learn from the waiting records now, although they are fewer than a batch."""
        self._batcher.learn_waiting()

    def learn_one(self, x: Record, y: Label) -> None:
        """Learn from a record. It waits until `batch_size` records have arrived."""
        self._batcher.learn_one(x, y)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn from a dataframe, row by row as with `learn_one`; NaN stands for a missing feature."""
        frame = dataframe.into_frame(X)
        labels = dataframe.into_series(y).to_list()
        self._batcher.learn_many(frame.columns, _numbers(frame), labels)

    # River's labels are str, int or bool; these may be any label of a learner.
    def predict_one(self, x: Record, **kwargs: Any) -> Label:  # type: ignore[override]
        """The predicted label of a record; None before the first label is learnt."""
        return self.learner_.predict(self._batcher.row(x))[0] if self.classes else None

    def predict_proba_one(  # type: ignore[override]
        self, x: Record, **kwargs: Any
    ) -> dict[Label, float]:
        """The probability of each label learnt so far."""
        return dict(zip(self.classes, self._probabilities(self._batcher.row(x))[0].tolist(), strict=True))

    def predict_many(self, X: Any) -> Any:
        """The predicted label of each row, as a series."""
        frame = dataframe.into_frame(X)
        rows = self._batcher.rows(frame.columns, _numbers(frame))
        labels = self.learner_.predict(rows) if self.classes and len(rows) else [None] * len(rows)
        return dataframe.to_native_series(labels, name=None, like=frame)

    def predict_proba_many(self, X: Any) -> Any:
        """The probabilities of each row, with a column for each label learnt so far."""
        frame = dataframe.into_frame(X)
        rows = self._batcher.rows(frame.columns, _numbers(frame))
        columns = dict(zip(self.classes, self._probabilities(rows).T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _probabilities(self, rows: Any) -> NDArray[np.float64]:
        if not self.classes or not len(rows):
            return np.zeros((len(rows), len(self.classes)))
        return probabilities(self.learner_, rows)


def _numbers(frame: Any) -> NDArray[np.float64]:
    """The values of a dataframe; NaN for missing ones."""
    try:
        return dataframe.to_numpy(frame)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a dataframe must hold only numbers; encode the other columns first: {error}"
        ) from None


class OnlineClassifier(_RiverClassifier):
    """Any learner of everlearn as a classifier for River.

    Parameters
    ----------
    learner
        The name of a learner, such as `"cope"`, `"mir"` or `"reservoir"`, or your own subclass of `Learner`. Learners
        that need tasks (`"gem"`, `"icarl"`) raise a ValueError.
    network
        `"mlp"`, whose input grows with the number of features; or a module, whose number of inputs is fixed.
    batch_size
        How many records are collected before the learner learns from them.
    seed
        Determines initialisation, replay and memory; None for a random one.
    device
        `"cpu"`, `"cuda"`, `"mps"` or another torch device, or `"auto"`. Small batches are not faster on a GPU.
    settings
        The settings of the learner by name, such as `{"memory_size": 500}`. See `help(everlearn.CoPE)` for CoPE's.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | OnlineClassifier("reservoir", seed=0, settings={"hidden": 64})
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()).get() > 0.8
    True

    """

    @store_parameters
    def __init__(
        self,
        learner: str | type[Learner] = "cope",
        network: str | nn.Module = "mlp",
        batch_size: int = 10,
        seed: int | None = None,
        device: str = "cpu",
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._start(learner, settings)


class CoPEClassifier(_RiverClassifier):
    """CoPE as a classifier for River: one evolving prototype per class, and a class-balanced replay memory.

    Parameters
    ----------
    network
        `"mlp"`, whose input grows with the number of features; or a module, whose number of inputs is fixed.
    batch_size
        How many records are collected before the learner learns from them.
    seed
        Determines initialisation, replay and memory; None for a random one.
    device
        `"cpu"`, `"cuda"`, `"mps"` or another torch device, or `"auto"`. Small batches are not faster on a GPU.
    learning_rate
        Step size of SGD.
    iterations
        Gradient steps per batch, each with newly drawn replay samples.
    hidden
        Units in each hidden layer of the MLP.
    memory_size
        Samples in the replay memory, divided equally among the classes seen.
    temperature
        Temperature τ of the PPP-loss; lower values concentrate it on the most similar prototypes.
    momentum
        Share of a prototype that stays when a batch updates it. Lower values adapt faster.
    class_means
        Let the prototype of a class be the mean of its features; for features that stay fixed.
    embedding
        Size of the embedding; by default that of the network (100 for the MLP).
    renormalise
        Scale prototypes back to unit length after each update, as in the paper's text but not in its released code.
        None does so for rows of numbers.
    pseudo_prototypes
        Use the samples of a batch as additional prototypes of their class in the loss.
    gradient
        Gradient through the pseudo-prototypes: `"released"` (as in the released code), `"full"` or
        `"detached"`.
    reference_batch
        Weigh negative pairs as if a batch had this many samples, so that the loss does not grow with the
        batch size.
    learn_prototypes
        Prototypes follow the gradient of the cross-entropy over them, in place of the PPP-loss and the momentum.
    recalibrate
        Predict with prototypes that are recomputed from the replay memory after each batch.
    recalibrate_every
        Batches after which these are recomputed, at the next prediction.
    replayed
        Samples replayed in each iteration; by default as many as the batch has.
    averaging
        Decay per batch of averaged weights that are used for prediction; 0 uses the current weights. None here
        and below: a value that suits the first samples, rows or images.
    blend
        Predict with the current and the averaged weights, by how well each predicted lately.
    new_share
        Share of a step that the new samples have, however many are replayed; 0 means by their number.
    half_life
        Samples of a class after which a stored one counts half; 0 means that they do not age.
    drift
        Which stored samples lose their place where the meaning of the data changes: `"contradiction"`, `"alarm"` or
        `"none"`.
    calibration
        Fit probabilities to predictions of new samples: `"none"`, `"temperature"`, `"replay"`, `"prior"` or `"full"`.
    whiten
        Compare fixed features by their covariance within classes.
    standardise
        Scale every feature to mean 0 and standard deviation 1 over the samples seen so far.
    clip
        Largest length of an SGD step; longer steps are shortened to it. None means no limit.
    threads
        CPU threads to compute with; more than one helps only for large networks.
    optimizer
        `"sgd"`, `"adam"` or `"adamw"`.
    optimizer_momentum
        Momentum of SGD; 0 means none.
    weight_decay
        Weight decay of the optimiser.
    second_moment
        Decay of the second moment of Adam.
    precision
        `"full"`, or `"mixed"` to train ResNets on a GPU with convolutions in bfloat16.

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

    @store_parameters
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
        class_means: bool | None = None,
        embedding: int | None = None,
        renormalise: bool | None = None,
        pseudo_prototypes: bool | None = None,
        gradient: Gradient = "released",
        reference_batch: int | None = None,
        learn_prototypes: bool = False,
        recalibrate: bool = False,
        recalibrate_every: int = 1,
        replayed: int | None = None,
        averaging: float | None = None,
        blend: bool | None = None,
        new_share: float | None = None,
        half_life: int | None = None,
        drift: str | None = None,
        calibration: str | None = None,
        whiten: bool | None = None,
        standardise: bool | None = None,
        clip: float | None = None,
        threads: int = 1,
        optimizer: str = "sgd",
        optimizer_momentum: float = 0.0,
        weight_decay: float = 0.0,
        second_moment: float = 0.999,
        precision: str = "full",
    ) -> None:
        self._start("cope", cope_settings(self))
