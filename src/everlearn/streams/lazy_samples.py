"""Samples that are decoded when they are needed, in other processes, ahead of the learner."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

__all__ = ["LazySamples", "TransformedSamples", "rows", "sample_chunks"]

SMALL = 2**20  # bytes of a batch that is sent without shared memory
AHEAD = 4  # batches that each process decodes ahead
CHUNK = 1000  # samples in memory at once when all of them are passed over


class LazySamples:
    """A sequence of samples, of which only those that are asked for are in memory.

    items: what the samples are made from: file names, or any sequence that is indexed by whole numbers.
    decode: makes the sample of an item, a tensor; all samples have one shape and type.
    workers: processes that decode ahead while the stream is iterated; 0 decodes in this process.

    >>> squares = LazySamples(range(5), lambda number: torch.tensor([number**2]), workers=0)
    >>> len(squares), squares[[1, 3]].tolist(), [part.tolist() for part in squares.subset([4, 2]).batches([[0], [1]])]
    (5, [[1], [9]], [[[16]], [[4]]])
    """

    def __init__(self, items: Any, decode: Callable[[Any], Tensor], workers: int | None = None) -> None:
        self._items, self._decode = items, decode
        self.workers = _spare_cores() if workers is None else workers
        self._places = torch.arange(len(items))
        self._first: Tensor | None = None

    def __len__(self) -> int:
        """The number of samples."""
        return len(self._places)

    def __getitem__(self, index: Any) -> Tensor:
        """One sample for a whole number; for a slice, a list, a tensor or a mask, a tensor of several."""
        chosen = self._places[index]
        if chosen.ndim == 0:
            return self.finish(self._read([int(chosen)]), torch.as_tensor(index).reshape(1))[0]
        return self.finish(self._read(chosen.tolist()), torch.arange(len(self))[index])

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples, then the shape of each."""
        return (len(self), *self._example().shape)

    @property
    def nbytes(self) -> int:
        """Bytes that all samples would need in memory."""
        return len(self) * self._example().nbytes

    def subset(self, indices: Any) -> LazySamples:
        """The samples at these places."""
        chosen = object.__new__(type(self))
        chosen.__dict__ = {**self.__dict__, "_places": self._places[indices]}
        return chosen

    def batches(self, indices: Sequence[Any]) -> Iterator[Tensor]:
        """The samples of each of these lists of places, decoded ahead in other processes."""
        wanted = [torch.as_tensor(part) for part in indices]
        places = [self._places[part].tolist() for part in wanted]
        for read, part in zip(self._decoded(places), wanted, strict=True):
            if isinstance(read, Exception):
                raise read
            yield self.finish(torch.as_tensor(read), part)

    def chunks(self, size: int = CHUNK) -> Iterator[Tensor]:
        """All samples in order, in parts of this size."""
        return self.batches(list(torch.split(torch.arange(len(self)), size)))

    def finish(self, x: Tensor, indices: Tensor) -> Tensor:
        """What is done with decoded samples, those at these places."""
        return x

    def _decoded(self, places: list[list[int]]) -> Iterator[Any]:
        if self.workers == 0 or len(places) < 2:
            return map(self._read, places)
        self._example()  # so that every process knows the shape
        loader: DataLoader[Any] = DataLoader(
            _Batches(self),  # type: ignore[arg-type]
            batch_size=None,
            sampler=places,
            num_workers=self.workers,
            prefetch_factor=AHEAD,
            collate_fn=_as_it_is,
            generator=torch.Generator(),  # else the process's own one would be drawn from
        )
        return iter(loader)

    def _read(self, places: Sequence[int]) -> Tensor:
        """Decode the items at these places."""
        first = self._example()
        read = []
        for place in places:
            sample = self._decode(self._items[place])
            if sample.shape != first.shape or sample.dtype != first.dtype:
                raise ValueError(
                    f"sample {place}{_name(self._items, place)} has the shape {list(sample.shape)} and the type "
                    f"{sample.dtype}, but the first one has {list(first.shape)} and {first.dtype}; pass "
                    "size=(height, width) for images of several sizes, or a transform that makes them alike"
                )
            read.append(sample)
        return torch.stack(read) if read else first.new_empty((0, *first.shape))

    def _example(self) -> Tensor:
        if self._first is None:
            self._first = self._decode(self._items[0])
        return self._first


class TransformedSamples(LazySamples):
    """Lazy samples with a transform of a batch, for all samples or for those of a mask."""

    def __init__(
        self, samples: LazySamples, transform: Callable[[Tensor], Tensor], mask: Tensor | None = None
    ) -> None:
        self.__dict__ |= samples.__dict__
        self._transform, self._mask = transform, mask

    def subset(self, indices: Any) -> LazySamples:
        """The samples at these places."""
        chosen = super().subset(indices)
        assert isinstance(chosen, TransformedSamples)
        chosen._mask = None if self._mask is None else self._mask[indices]
        return chosen

    def finish(self, x: Tensor, indices: Tensor) -> Tensor:
        """Transform decoded samples."""
        changed = self._transform(x)
        if self._mask is None:
            return changed
        return torch.where(self._mask[indices].view(-1, *[1] * (x.ndim - 1)), changed, x)


class _Batches:
    """Batches by the places of their samples, as a worker process reads them; an error is sent, not raised."""

    def __init__(self, samples: LazySamples) -> None:
        self._samples = samples

    def __getitem__(self, places: list[int]) -> Any:
        try:
            read = self._samples._read(places)
        except Exception as error:
            return ValueError(str(error))
        # A small array is sent faster as it is than by shared memory, as torch sends tensors.
        return read.numpy() if read.nbytes <= SMALL and read.dtype != torch.bfloat16 else read


def rows(x: Any, chosen: Sequence[int]) -> Any:
    """These samples, as the kind that they are; of lazy ones, lazily.

    >>> rows(["a text", "another", "a third"], [0, 2])
    ['a text', 'a third']
    """
    places = list(chosen)
    if isinstance(x, LazySamples):
        return x.subset(places)
    if hasattr(x, "iloc"):  # pandas
        return x.iloc[places]
    if isinstance(x, list | tuple):
        return [x[place] for place in places]
    return (x.tocsr() if hasattr(x, "tocsr") else x)[
        places
    ]  # an array, a tensor, polars, sparse rows of scipy


def sample_chunks(x: Any) -> Iterator[Any]:
    """The samples in parts that fit in memory: an array or tensor is one part."""
    return x.chunks() if isinstance(x, LazySamples) else iter((x,))


def _as_it_is(batch: Any) -> Any:
    return batch


def _name(items: Any, place: int) -> str:
    item = items[place]
    return f" ({item})" if isinstance(item, str | os.PathLike) else ""


def _spare_cores() -> int:
    """One process for decoding, two where there are cores for them, none on a machine of one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(2, cores - 1)
