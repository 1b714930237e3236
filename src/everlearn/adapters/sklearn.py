"""Learners as classifiers for scikit-learn: `fit`, `partial_fit`, `predict`, in pipelines and searches."""

from __future__ import annotations

from typing import Any

from torch import nn

from everlearn.adapters.common import cope_settings, store_parameters
from everlearn.adapters.sklearn_base import SklearnClassifier
from everlearn.core.learner import Learner
from everlearn.losses import Gradient

__all__ = ["EXPECTED_FAILED_CHECKS", "CoPEClassifier", "OnlineClassifier"]

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_methods_subset_invariance": (
        "a float32 network rounds a single sample differently from the same sample in a batch, in the seventh "
        "digit, and the check allows 1e-7"
    ),
    **dict.fromkeys(
        ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
        "a sample of weight 2 counts twice in the loss, but is stored once and takes one place in a batch",
    ),
}
"""The estimator checks of scikit-learn that the classifiers fail, and why."""


class OnlineClassifier(SklearnClassifier):
    """Any learner of everlearn as a classifier for scikit-learn.

    Parameters
    ----------
    learner
        The name of a learner, such as `"cope"`, `"mir"` or `"gem"`, or your own subclass of `Learner`.
    network
        `"mlp"`, sized from the first samples; or a module that maps samples to an embedding.
    batch_size
        Samples in a batch.
    epochs
        Passes of `fit` over its samples; `partial_fit` makes one pass.
    random_state
        Determines initialisation, replay, memory and the order in `fit`.
    device
        `"auto"` (an NVIDIA GPU if there is one), `"cpu"`, `"cuda"`, `"mps"` or another torch device.
    settings
        The settings of the learner by name, such as `{"memory_size": 500}`. See `help(everlearn.CoPE)` for CoPE's.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OnlineClassifier("mir", random_state=0, settings={"hidden": 64})
    >>> bool(cross_val_score(model, X, y).mean() > 0.9)
    True
    """

    learner: str | type[Learner]
    settings: dict[str, Any] | None

    @store_parameters
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
        """Store the parameters."""

    def _kind(self) -> tuple[str | type[Learner], dict[str, Any] | None]:
        return self.learner, self.settings


class CoPEClassifier(SklearnClassifier):
    """CoPE as a classifier for scikit-learn: one evolving prototype per class, and a class-balanced replay memory.

    Parameters
    ----------
    network
        `"mlp"`, sized from the first samples; or a module that maps samples to an embedding.
    batch_size
        Samples in a batch.
    epochs
        Passes of `fit` over its samples; `partial_fit` makes one pass.
    random_state
        Determines initialisation, replay, memory and the order in `fit`.
    device
        `"auto"` (an NVIDIA GPU if there is one), `"cpu"`, `"cuda"`, `"mps"` or another torch device.
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
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), CoPEClassifier(hidden=64, random_state=0))
    >>> bool(cross_val_score(model, X, y, cv=3).mean() > 0.9)
    True

    References
    ----------
    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution. ICCV 2021.
    """

    @store_parameters
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
        """Store the parameters."""

    def _kind(self) -> tuple[str | type[Learner], dict[str, Any] | None]:
        return "cope", cope_settings(self)
