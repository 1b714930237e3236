"""Streams of real records in time order, and River's synthetic ones: no tasks, no test set, concepts that drift.

They are evaluated prequentially: every batch is predicted before it is learnt.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from everlearn.streams.base import Batch, Stream
from everlearn.streams.formats import DataError
from everlearn.streams.record_files import read_mails, read_rows

__all__ = ["RECORD_STREAMS", "RecordStream", "record_stream"]

Folder = str | os.PathLike[str] | None

WORDS = 1024  # columns that the words of a mail are hashed to
CONCEPTS, LENGTH = 4, 5_000  # of a synthetic stream, one concept after the other
NOISE = 0.1  # the share of labels that are random in SEA


class RecordStream(Stream):
    """Samples in the order in which they were recorded.

    x: `[samples, features]`. y: their labels. seed: of a synthetic stream; a recorded one has one order only.
    texts: what an encoder gets in place of x, where the samples are texts.
    """

    imbalance = None

    def __init__(
        self,
        name: str,
        x: Tensor,
        y: Tensor,
        batch_size: int = 1,
        seed: int = 0,
        texts: list[str] | None = None,
    ) -> None:
        self.name, self.x, self.y, self.texts = name, x, y, texts
        self.batch_size: int = batch_size
        self.seed = seed

    def __iter__(self) -> Iterator[Batch]:
        """The batches in order."""
        for start in range(0, len(self.x), self.batch_size):
            part = slice(start, start + self.batch_size)
            yield Batch(self.x[part], self.y[part])

    def __len__(self) -> int:
        """How many batches the stream sends."""
        return math.ceil(len(self.x) / self.batch_size)

    @property
    def samples(self) -> int:
        """How many samples it sends."""
        return len(self.x)

    @property
    def tells(self) -> frozenset[str]:
        """The classes; there are no tasks."""
        return frozenset({"classes"})

    @functools.cached_property
    def classes(self) -> list[int]:
        """The labels it sends, sorted."""
        labels: list[int] = np.unique(self.y.numpy()).tolist()
        return labels


def record_stream(name: str, batch_size: int = 1, seed: int = 0, data_dir: Folder = None) -> RecordStream:
    """The stream of this name, one of RECORD_STREAMS.

    batch_size: how many samples arrive together; records come one by one unless it is set.
    seed: of the generator, if the stream is synthetic.
    data_dir: the folder with the data; by default `$EVERLEARN_DATA`, then the user's cache folder.
    """
    x, y = RECORD_STREAMS[name](data_dir, seed)
    texts = [mail.text for mail in read_mails(data_dir)] if name == "spam" else None
    return RecordStream(name, x, y, batch_size, seed, texts)


def _recorded(name: str, data_dir: Folder, seed: int) -> tuple[Tensor, Tensor]:
    rows = read_rows(name, data_dir)
    return torch.tensor(rows[:, :-1]), torch.from_numpy(rows[:, -1].astype(np.int64))


def _spam(data_dir: Folder, seed: int) -> tuple[Tensor, Tensor]:
    """The words of each mail, hashed to columns and scaled to unit length; 1 is spam."""
    from sklearn.feature_extraction.text import HashingVectorizer  # type: ignore[import-untyped,unused-ignore]

    mails = read_mails(data_dir)
    hashed = HashingVectorizer(n_features=WORDS).transform(mail.text for mail in mails)
    return (
        torch.from_numpy(hashed.toarray().astype(np.float32)),
        torch.tensor([int(mail.label == "spam") for mail in mails]),
    )


def _synthetic(kind: str, data_dir: Folder, seed: int) -> tuple[Tensor, Tensor]:
    """Four concepts of River's generator, 5,000 records of each in turn."""
    try:
        from river.datasets import synth
    except ImportError:
        raise DataError(f"the stream {kind} is made by River: pip install 'everlearn[river]'") from None
    rows, labels = [], []
    for concept in range(CONCEPTS):
        generator = (
            synth.SEA(concept, seed=seed, noise=NOISE) if kind == "sea" else synth.Agrawal(concept, seed=seed)
        )
        for record, label in itertools.islice(generator, LENGTH):
            rows.append([float(value) for value in record.values()])
            labels.append(int(label))
    return torch.tensor(rows), torch.tensor(labels)


RECORD_STREAMS: dict[str, Callable[[Folder, int], tuple[Tensor, Tensor]]] = {
    "elec2": functools.partial(_recorded, "elec2"),
    "weather": functools.partial(_recorded, "weather"),
    "covtype": functools.partial(_recorded, "covtype"),
    "spam": _spam,
    "sea": functools.partial(_synthetic, "sea"),
    "agrawal": functools.partial(_synthetic, "agrawal"),
}
