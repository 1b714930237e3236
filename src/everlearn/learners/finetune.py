"""Finetuning: learn from each batch and nothing else, the lower bound of every comparison."""

from __future__ import annotations

from torch import Tensor

from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxSettings
from everlearn.streams.horizon import Horizon

__all__ = ["Finetune", "IIDOffline", "IIDOnline"]


class Finetune(Learner):
    """Plain SGD with cross-entropy on each batch, once. It has no memory, so it forgets.

    It shows catastrophic forgetting without any countermeasure.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = Finetune("mlp", hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    French, R. M. Catastrophic forgetting in connectionist networks. Trends in Cognitive Sciences, 1999.
    """

    name = "finetune"
    Settings = SoftmaxSettings
    weighs_samples = True

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step of cross-entropy on the batch."""
        self.fit(x, slots, self.weights(len(x), 0))


class IIDOnline(Finetune):
    """Finetuning on the shuffled stream, once: the result of online learning on i.i.d. data.

    It is the same method on another order of the same stream.

    >>> from everlearn import learner, run, stream
    >>> s = stream("split-digits")
    >>> run(learner("iid-online", stream=s), s).accuracy > 0.5
    True

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution. ICCV 2021.
    """

    name = "iid-online"
    scenario = "iid"


class IIDOffline(Finetune):
    """Finetuning on the shuffled stream, with 50 epochs: the result of offline learning.

    It is the same method on another order of the same stream, with the whole stream as its horizon.

    >>> IIDOffline.horizon
    Horizon(extent='stream', samples=None, epochs=50)

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution. ICCV 2021.
    """

    name = "iid-offline"
    scenario = "iid"
    horizon = Horizon("stream", epochs=50)
