"""A stream whose samples are encoded: a frozen pretrained model turns each into a vector, cached on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from everlearn.encoders import Encoder, encode_with_cache
from everlearn.streams.base import Batch, Stream, Tests
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.lazy_samples import LazySamples
from everlearn.streams.record_stream import RecordStream

__all__ = ["AT", "EncodedStream", "encoded"]

AT = "@"  # between the names of a stream and its encoder


def encoded(stream: Stream, encoder: Encoder) -> Stream:
    """The same stream with the features that an encoder gives; its name is `STREAM@ENCODER`."""
    name = f"{stream.name}{AT}{encoder.name}"
    if isinstance(stream, RecordStream):
        x = encode_with_cache(encoder, stream.x if stream.texts is None else stream.texts)
        return RecordStream(name, x, stream.y, stream.batch_size, stream.seed)
    if not isinstance(stream, DatasetStream):
        return EncodedStream(stream, encoder, name)
    arranged = stream.arrangement
    transforms = [part.transform for part in arranged.segments] + [
        each.transform for each in arranged.concepts
    ]
    if any(transform is not None for transform in transforms):
        raise ValueError(
            f"the scenario {stream.scenario} changes the images themselves, so that they can't be encoded before: "
            "give the encoder to the learner"
        )
    x, x_test = (_encode(encoder, samples) for samples in (stream.source.x, stream.source.x_test))
    return dataclasses.replace(stream, name=name, source=stream.source._replace(x=x, x_test=x_test))


def _encode(encoder: Encoder, x: Tensor | LazySamples) -> Tensor:
    if isinstance(x, LazySamples):
        return torch.cat([encode_with_cache(encoder, chunk) for chunk in x.chunks()])
    return encode_with_cache(encoder, x)


class EncodedStream(Stream):
    """A stream of batches whose samples are encoded when they come."""

    def __init__(self, stream: Stream, encoder: Encoder, name: str) -> None:
        self.name, self._stream, self._encoder = name, stream, encoder
        self.seed, self.batch_size, self.imbalance = stream.seed, stream.batch_size, stream.imbalance

    def __iter__(self) -> Iterator[Batch]:
        """The batches, in order."""
        for batch in self._stream:
            yield batch._replace(x=encode_with_cache(self._encoder, batch.x))

    def __len__(self) -> int:
        """How many batches the stream has; a TypeError if it does not say."""
        return len(self._stream)  # type: ignore[arg-type]

    @property
    def samples(self) -> int | None:
        """How many samples it sends; None if that is unknown."""
        return self._stream.samples

    @property
    def tells(self) -> frozenset[str]:
        """The information for learners."""
        return self._stream.tells

    @property
    def tasks(self) -> int | None:
        """How many tasks there are; None if it does not tell."""
        return self._stream.tasks

    @property
    def classes(self) -> list[Any] | None:
        """All labels it will send; None if it does not tell."""
        return self._stream.classes

    @property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept."""
        return self._encoded(self._stream.tests)

    def tests_at(self, samples: int) -> Tests:
        """The test sets for the distribution after this many samples."""
        return self._encoded(self._stream.tests_at(samples))

    def current(self, samples: int) -> tuple[int, ...]:
        """The concepts that are active after this many samples."""
        return self._stream.current(samples)

    def _encoded(self, tests: Tests) -> Tests:
        return tuple((encode_with_cache(self._encoder, x), y) for x, y in tests)
