"""Which samples in a learner's memory belong to which ids.

A learner's memory holds samples without ids. The index holds a digest of the bytes of every sample that was learnt
under an id, and finds samples in the memory by it. Entries of samples that have left the memory are dropped now and
then, so that the index stays about as long as the memory. Of samples with equal bytes, as many ids stay as the memory
has of them, the newest.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from everlearn.label_json import Label, decode_label, encode_label

__all__ = ["SampleIndex", "digests"]

DIGEST = 16  # bytes
LEAST = 1000  # entries before the first are dropped


def digests(x: Tensor) -> list[bytes]:
    """A digest of each sample.

    >>> first, second, third = digests(torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]]))
    >>> first == second, first == third
    (True, False)
    """
    flat = x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    rows = flat.reshape(len(x), -1)
    return [hashlib.blake2b(row.data, digest_size=DIGEST).digest() for row in rows]


class SampleIndex:
    """The ids under which samples were learnt, by the digest of the sample."""

    def __init__(self) -> None:
        self._ids: dict[bytes, list[Label]] = {}
        self._count = 0  # of ids
        self._limit = LEAST

    def __len__(self) -> int:
        return self._count

    def add(self, ids: Sequence[Label], x: Tensor, stored: Any) -> None:
        """Samples were learnt under these ids. stored: a function that returns all samples in the memory."""
        for key, digest in zip(ids, digests(x), strict=True):
            self._ids.setdefault(digest, []).append(key)
            self._count += 1
        if self._count > self._limit:
            self.keep_only(stored())
            self._limit = max(LEAST, 2 * self._count)

    def keep_only(self, stored: Tensor) -> None:
        """Drop the ids of samples that are not among these; one id stays for each of them, the newest."""
        copies = Counter(digests(stored) if len(stored) else ())
        self._ids = {digest: ids[-copies[digest] :] for digest, ids in self._ids.items() if copies[digest]}
        self._count = sum(map(len, self._ids.values()))

    def find(self, ids: Collection[Label], stored: Tensor) -> dict[int, Label]:
        """The places of the stored samples that belong to these ids, and the id of each.

        Samples with equal bytes can't be told apart: of those learnt under several ids, as many are found as belong
        to these ids.
        """
        found: dict[int, Label] = {}
        left = {digest: [key for key in held if key in ids] for digest, held in self._ids.items()}
        for place, digest in enumerate(digests(stored) if len(stored) else []):
            if left.get(digest):
                found[place] = left[digest].pop(0)
        return found

    def ids(self) -> set[Label]:
        """All ids."""
        return {key for held in self._ids.values() for key in held}

    def remove(self, ids: Collection[Label]) -> None:
        """Drop all entries of these ids."""
        kept = {digest: [key for key in held if key not in ids] for digest, held in self._ids.items()}
        self._ids = {digest: held for digest, held in kept.items() if held}
        self._count = sum(map(len, self._ids.values()))

    # State.

    def state(self) -> dict[str, Tensor]:
        """The index as tensors."""
        ids = json.dumps([[encode_label(key) for key in held] for held in self._ids.values()]).encode()
        return {
            "digests": torch.frombuffer(bytearray(b"".join(self._ids) or b"\0"), dtype=torch.uint8),
            "ids": torch.frombuffer(bytearray(ids), dtype=torch.uint8),
            "limit": torch.tensor(self._limit),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned."""
        held = json.loads(bytes(state["ids"].numpy()))
        all_digests = bytes(state["digests"].numpy())
        self._ids = {
            all_digests[DIGEST * i : DIGEST * (i + 1)]: [decode_label(code) for code in codes]
            for i, codes in enumerate(held)
        }
        self._count, self._limit = sum(map(len, held)), int(state["limit"])
