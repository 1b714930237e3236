"""The learner's horizon while a run goes on: what was observed since it began, to be passed over again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from everlearn.core.learner import Learner
from everlearn.memory.labels import Label, as_labels, decode_label, encode_label
from everlearn.streams.horizon import Horizon

__all__ = ["HorizonMemory"]


class HorizonMemory:
    """Keeps the samples of the horizon if they are to be revisited, and lets a learner revisit them."""

    def __init__(self, horizon: Horizon, seed: int) -> None:
        self.horizon = horizon
        self._keeps = horizon.epochs > 1
        self._generator = torch.Generator().manual_seed(seed)
        self._forget()

    def _forget(self) -> None:
        self.samples = 0
        self._x: list[torch.Tensor] = []
        self._y: list[Label] = []
        self._t: list[Any] = []
        self._batch = 0

    def add(self, x: Any, y: Any, t: Any) -> None:
        """A batch was observed."""
        self.samples += len(x)
        if self._keeps:
            self._x.append(torch.as_tensor(x))
            self._y += as_labels(y)
            self._t += [t] * len(x)
            self._batch = max(self._batch, len(x))

    def over(self, transition: bool = False) -> bool:
        """Whether the horizon ends here; `transition` says that a task has."""
        extent, window = self.horizon.extent, self.horizon.samples
        if extent == "window":
            return self.samples >= (window or 0)
        return extent == "batch" or (extent == "task" and transition)

    def close(self, learner: Learner, progress: Callable[[int], None]) -> bool:
        """Pass over the horizon again as often as it says, then end it. Whether that may have changed the learner."""
        if not self.samples:
            return False
        x = torch.cat(self._x) if self._keeps else torch.empty(0)
        for _ in range(self.horizon.epochs - 1):
            for part in self._parts(by_task="t" in learner.needs):
                places = part.tolist()
                tasks = {self._t[place] for place in places}
                learner.revisit(
                    x[part], [self._y[i] for i in places], tasks.pop() if len(tasks) == 1 else None
                )
                progress(len(part))
        learner.end_horizon()
        self._forget()
        return self._keeps or type(learner).end_horizon is not Learner.end_horizon

    def _parts(self, by_task: bool) -> Sequence[torch.Tensor]:
        """The places of the samples in a new order, in batches; `by_task`: no batch is of two tasks."""
        order = torch.randperm(len(self._y), generator=self._generator)
        if not by_task or len(set(self._t)) == 1:
            return torch.split(order, self._batch)
        tasks: dict[Any, list[int]] = {}
        for place in order.tolist():
            tasks.setdefault(self._t[place], []).append(place)
        parts = [part for places in tasks.values() for part in torch.split(torch.tensor(places), self._batch)]
        return [parts[i] for i in torch.randperm(len(parts), generator=self._generator)]

    # State.

    def state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What is kept of the horizon, as plain values and tensors."""
        plain = {
            "samples": self.samples,
            "y": [encode_label(label) for label in self._y],
            "t": self._t,
            "batch": self._batch,
        }
        kept = {"samples": torch.cat(self._x)} if self._x else {}
        return plain, {"generator": self._generator.get_state(), **kept}

    def restore(self, plain: dict[str, Any], kept: dict[str, torch.Tensor]) -> None:
        """Take up what `state` gave."""
        self.samples, self._t, self._batch = plain["samples"], plain["t"], plain["batch"]
        self._y = [decode_label(code) for code in plain["y"]]
        self._x = [kept["samples"]] if "samples" in kept else []
        self._generator.set_state(kept["generator"])
