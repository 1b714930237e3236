"""The learner's horizon during a run: the samples since it began, to be revisited when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from everlearn.core.learner import Learner
from everlearn.core.row_selection import labels_of
from everlearn.core.validation import check_samples
from everlearn.encoders import Features
from everlearn.memory.labels import Label, decode_label, encode_label
from everlearn.streams.base import sample_count
from everlearn.streams.horizon import Horizon

__all__ = ["HorizonMemory"]


class HorizonMemory:
    """Keeps the samples of the horizon if they will be revisited, and lets a learner revisit them."""

    def __init__(self, horizon: Horizon, seed: int) -> None:
        self.horizon = horizon
        self._keeps = horizon.epochs > 1
        self._generator = torch.Generator().manual_seed(seed)
        self._clear()

    def _clear(self) -> None:
        self.samples = 0
        self._x: list[torch.Tensor] = []
        self._y: list[Label] = []
        self._t: list[Any] = []
        self._batch = 0
        self._revisited = False

    def add(self, learner: Learner, x: Any, y: Any, t: Any) -> None:
        """Add a batch that the learner observed, as it encodes frames, texts and the like."""
        self.samples += sample_count(x)
        if self._keeps:
            samples = check_samples(learner, x, "revisit")
            self._x.append(samples)
            self._y += labels_of(learner, y, f"{type(learner).__name__}.observe")
            self._t += [t] * len(samples)
            self._batch = max(self._batch, len(samples))

    def over(self, transition: bool = False) -> bool:
        """Whether the horizon ends here. transition: whether a task has just ended."""
        extent, window = self.horizon.extent, self.horizon.samples
        if extent == "window":
            return self.samples >= (window or 0)
        return extent == "batch" or (extent == "task" and transition)

    def close(self, learner: Learner, progress: Callable[[int], None]) -> bool:
        """Revisit the horizon for its other epochs, then end it. Returns whether the learner may have changed."""
        if not self.samples:
            return False
        if self._keeps and not self._revisited:
            x = torch.cat(self._x)
            for part in self.parts(by_task="t" in learner.needs):
                tasks = {self._t[place] for place in part.tolist()}
                task = tasks.pop() if len(tasks) == 1 else None
                samples = x[part] if learner.encoder is None else Features(x[part])
                learner.revisit(samples, self.labels_at(part), task)
                progress(len(part))
        learner.end_horizon()
        self._clear()
        return self._keeps or type(learner).end_horizon is not Learner.end_horizon

    def parts(self, by_task: bool = False) -> Iterator[torch.Tensor]:
        """The positions of the samples in the order in which the other epochs revisit them, in batches."""
        for _ in range(self.horizon.epochs - 1):
            yield from self._parts(by_task)

    def labels_at(self, part: torch.Tensor) -> list[Label]:
        """The labels of the samples at these positions."""
        return [self._y[place] for place in part.tolist()]

    def mark_revisited(self) -> None:
        """The learner has revisited all `parts` already, so that `close` only ends the horizon."""
        self._revisited = True

    def _parts(self, by_task: bool) -> Sequence[torch.Tensor]:
        """The positions of the samples in a new order, in batches. by_task: no batch mixes two tasks."""
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
        """The horizon so far, as plain values and tensors."""
        plain = {
            "samples": self.samples,
            "y": [encode_label(label) for label in self._y],
            "t": self._t,
            "batch": self._batch,
        }
        kept = {"samples": torch.cat(self._x)} if self._x else {}
        return plain, {"generator": self._generator.get_state(), **kept}

    def restore(self, plain: dict[str, Any], kept: dict[str, torch.Tensor]) -> None:
        """Continue from what `state` returned."""
        self.samples, self._t, self._batch = plain["samples"], plain["t"], plain["batch"]
        self._y = [decode_label(code) for code in plain["y"]]
        self._x = [kept["samples"]] if "samples" in kept else []
        self._generator.set_state(kept["generator"])
