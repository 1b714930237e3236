"""What was asked and waits for its label."""

from __future__ import annotations

import json
from collections.abc import Sequence

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
        for key, sample in zip(ids, x, strict=True):
            self.samples.pop(key, None)  # asked again: it now is the newest
            self.samples[key] = sample.clone()
        for key in list(self.samples)[: max(len(self) - size, 0)]:
            del self.samples[key]

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
