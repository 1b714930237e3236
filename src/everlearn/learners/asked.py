"""What was asked and waits for its label."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from everlearn.checkpoint import State
from everlearn.memory.labels import Label, decode_label, encode_label

__all__ = ["Asked"]


class Asked:
    """The samples that wait for their labels, by id, the oldest first."""

    def __init__(self) -> None:
        self.samples: dict[Label, Tensor] = {}

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, ids: Sequence[Label], x: Tensor, size: int) -> None:
        """Keep these, and of all that wait only the last `size`."""
        waiting = self.samples.copy()
        for key, sample in zip(ids, x, strict=True):
            waiting.pop(key, None)  # asked again: it now is the newest
            waiting[key] = sample.clone()
        for key in list(waiting)[: max(len(waiting) - size, 0)]:
            del waiting[key]
        self.samples = waiting

    def remove(self, ids: Iterable[Label]) -> None:
        """These wait no longer."""
        gone = set(ids)
        self.samples = {key: sample for key, sample in self.samples.items() if key not in gone}

    def keep_only(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Drop what is not of this kind: asked before the first batch, it could never be learnt."""
        of_kind = {
            key: sample
            for key, sample in self.samples.items()
            if (tuple(sample.shape), sample.dtype) == (shape, dtype)
        }
        self.samples = of_kind

    def nbytes(self) -> int:
        """Bytes of the samples that wait."""
        return sum(sample.nbytes for sample in self.samples.values())

    def state(self) -> State:
        """The samples, and their ids as bytes of JSON; nothing where nothing waits."""
        if not self.samples:
            return {}
        ids = json.dumps([encode_label(key) for key in self.samples]).encode()
        return {
            "asked.ids": torch.frombuffer(bytearray(ids), dtype=torch.uint8),
            "asked.samples": torch.stack(list(self.samples.values())),
        }

    def restore(self, state: State) -> None:
        """Take up a state that `state` gave."""
        if "asked.ids" in state:
            ids = [decode_label(code) for code in json.loads(bytes(state["asked.ids"].tolist()))]
            self.samples = dict(zip(ids, state["asked.samples"].clone(), strict=True))
