"""Nearest class mean on fixed features."""

from __future__ import annotations

from torch import Tensor

from everlearn.core.fixed_features import FixedFeatureLearner
from everlearn.memory.class_means import ClassMeans
from everlearn.memory.labels import Label

__all__ = ["NCM"]


class NCM(FixedFeatureLearner):
    """Predicts the class whose mean of all features so far is nearest, by the Euclidean distance.

    It stores one mean and one count per class. It is meant for features of a pretrained model: `NCM("identity")`, or
    with an `encoder`. Nothing is trained: learning rate, iterations and optimiser change nothing.

    >>> import torch
    >>> learner = NCM("identity")
    >>> learner.observe(torch.tensor([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0]]), ["low", "low", "high"])
    >>> learner.predict(torch.tensor([[3.0, 1.0], [8.0, 7.0]]))
    ['low', 'high']
    >>> learner.prototypes["low"].tolist()
    [1.0, 0.0]

    Mensink, T., Verbeek, J., Perronnin, F. and Csurka, G. Distance-Based Image Classification: Generalizing to New
    Classes at Near-Zero Cost. IEEE TPAMI, 2013.
    """

    name = "ncm"
    class_means: ClassMeans

    def scores(self, x: Tensor) -> Tensor:
        """−‖f − μ_c‖² for each class seen."""
        features, means = self.features(x), self.class_means.means
        return 2 * features @ means.T - means.square().sum(1) - features.square().sum(1, keepdim=True)

    @property
    def prototypes(self) -> dict[Label, Tensor]:
        """The mean μ_c of each class seen."""
        return dict(zip(self.classes, self.class_means.means.clone() if self.classes else (), strict=True))
