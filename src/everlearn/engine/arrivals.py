"""The batches of a stream as they arrive: numbered, counted, up to a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from everlearn.checkpoint import CheckpointError
from everlearn.engine.preconditions import StreamError, stream_failed
from everlearn.streams.base import Batch, Stream, sample_count

__all__ = ["Arrival", "Arrivals"]


class Arrival(NamedTuple):
    """One batch as it arrived.

    number: 1 for the first batch of the stream. samples: how many samples had arrived with it.
    t: the task identifier that the learner gets, None if it gets none.
    """

    number: int
    samples: int
    batch: Batch
    t: Any


class Arrivals:
    """Iterates over a stream once.

    batches: the stream's batches; by default all of them. skip: how many to leave out, for a run that is resumed.
    limit: stop when this number of samples has arrived. reveal_t: whether the learner gets the stream's t.
    failure: set if the stream raised an error. The iteration then just ends, so that a batch that is being learnt
        can be finished before the error is raised.
    """

    def __init__(
        self,
        stream: Stream,
        batches: Iterator[Batch] | None = None,
        skip: int = 0,
        limit: int | None = None,
        reveal_t: bool = True,
    ) -> None:
        self.stream, self.skip, self.limit, self.reveal_t = stream, skip, limit, reveal_t
        self.failure: StreamError | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[Arrival]:
        number = samples = 0
        batches = iter(self.stream) if self._batches is None else self._batches
        while self.limit is None or samples < self.limit:
            try:
                batch = next(batches)
                samples += sample_count(batch.x)
            except StopIteration:
                break
            except CheckpointError:
                raise
            except Exception as error:
                self.failure = stream_failed(self.stream, number + 1, error)
                return
            number += 1
            if number > self.skip:
                yield Arrival(number, samples, batch, batch.t if self.reveal_t else None)
        if number == 0:
            raise StreamError(f"the stream {self.stream.name!r} ended before its first batch")
