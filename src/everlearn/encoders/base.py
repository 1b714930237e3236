"""An encoder: samples in, vectors out, in batches and without gradients."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from everlearn.arrays import as_tensor

__all__ = ["OWN_ENCODER", "Encoder", "Features", "as_it_is", "own_encoder", "parts", "same_encoder"]

BATCH = 32  # samples per call of the model
OWN_ENCODER = "own:"  # before the name of an encoder that is the user's own object


@dataclasses.dataclass(frozen=True)
class Features:
    """Samples that are encoded already: a learner with an encoder takes them as they are.

    values: `[samples, d]`.
    """

    values: Any


class Encoder:
    """Turns samples into vectors, `[samples, d]` in float32 on the CPU; its model is loaded when it is first used.

    name: what a saved learner names it by.
    load: returns a function of a batch of samples that returns a vector for each.
    version: identifies the model, so that its output can be cached; None if it is not known what the model computes.
    batch: samples per call of the model.

    >>> lengths = Encoder("lengths", lambda: lambda texts: [[len(text), 1.0] for text in texts])
    >>> lengths(["a", "word"]).tolist()
    [[1.0, 1.0], [4.0, 1.0]]
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Callable[[Any], Any]],
        version: str | None = None,
        batch: int = BATCH,
    ) -> None:
        self.name, self.version = name, version
        self._load, self._batch = load, batch
        self._model: Callable[[Any], Any] | None = None

    def __call__(self, x: Any, where: str = "the encoder") -> Tensor:
        """The vector of each sample. where: the called method, for error messages."""
        size = _length(x, where)
        if size == 0:
            raise ValueError(f"{where} got an empty batch")
        if self._model is None:
            self._model = self._load()
        with torch.inference_mode():
            found = [self._vectors(part, where) for part in parts(x, self._batch)]
        if len({part.shape[1] for part in found}) > 1:
            raise ValueError(f"the encoder {self.name} gives vectors of different sizes")
        vectors = torch.cat(found)
        if len(vectors) != size:
            raise ValueError(f"the encoder {self.name} gave {len(vectors)} vectors for {size} samples")
        return vectors.clone()  # no inference tensor, which autograd can't use

    def _vectors(self, part: Any, where: str) -> Tensor:
        assert self._model is not None
        try:
            given = self._model(part)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"{where}: the encoder {self.name} can't take these samples: {reason}"
            ) from error
        wrong = f"an encoder returns a vector of numbers for each sample, [n, d], but {self.name} returned"
        try:
            vectors = as_tensor(given if isinstance(given, Tensor | list) else np.asarray(given))
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"{wrong} a {type(given).__name__} that is no array of numbers") from None
        if vectors.ndim != 2 or not vectors.dtype.is_floating_point:
            raise ValueError(f"{wrong} {list(vectors.shape)} of {vectors.dtype}")
        return vectors.detach().to("cpu", torch.float32)

    def __repr__(self) -> str:
        return f"Encoder({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_model": None}  # a copy loads its own


def _length(x: Any, where: str) -> int:
    if isinstance(x, str | bytes | set | frozenset | Mapping) or not hasattr(x, "__len__"):
        raise ValueError(f"{where} takes a batch of samples, such as a list of texts, not {type(x).__name__}")
    if getattr(x, "ndim", 1) == 0:
        raise ValueError(f"{where} got x of shape [], but it takes a batch of samples, [n, ...]")
    return len(x)


def parts(x: Any, size: int) -> Iterator[Any]:
    """The samples in batches of at most this size: slices of an array or a tensor, else lists."""
    samples = x if isinstance(x, Tensor | np.ndarray) else list(x)
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def own_encoder(given: Any) -> Encoder:
    """The encoder that a user's own module, function or object with a method `encode` makes."""
    named = given if hasattr(given, "__qualname__") else type(given)
    name = OWN_ENCODER + named.__qualname__
    if callable(getattr(given, "encode", None)):
        return Encoder(name, partial(_encoding, given))
    if isinstance(given, nn.Module):
        return Encoder(name, partial(_frozen, given), _module_version(given))
    return Encoder(name, partial(as_it_is, given))


def as_it_is(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function itself: what an encoder loads where there is nothing to load."""
    return function


def same_encoder(saved: str | None, own: str | None) -> bool:
    """Whether a state with one encoder may be loaded by a learner with the other, both by name.

    A user's own may have any name: a function that moves in the code gets another one.

    >>> same_encoder("own:<lambda>", "own:Tickets.encode"), same_encoder("wordllama", "own:Tickets.encode")
    (True, False)
    """
    both_own = all(str(name).startswith(OWN_ENCODER) for name in (saved, own))
    return both_own or saved == own


def _as_list(part: Any) -> Any:
    return part if isinstance(part, Tensor | list) else part.tolist()


def _encoding(given: Any) -> Callable[[Any], Any]:
    return lambda part: given.encode(_as_list(part))


def _frozen(module: nn.Module) -> Callable[[Any], Tensor]:
    def encode(part: Any) -> Tensor:
        module.eval()  # each time, since the program may have trained it
        held = next((each for each in module.parameters()), torch.zeros(()))
        x = as_tensor(part).to(held.device)
        x = x / 255 if x.dtype == torch.uint8 else x
        vectors: Tensor = module(x.to(held.dtype) if x.is_floating_point() else x)
        return vectors

    return encode


def _module_version(module: nn.Module) -> str:
    """A hash of the structure and the weights."""
    digest = hashlib.sha256(repr(module).encode())
    for name, part in module.state_dict().items():
        digest.update(name.encode())
        digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]
