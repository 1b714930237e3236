"""Small batches for checks, and learners that are made anew for each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.core.learner import Learner
from everlearn.memory.labels import Label
from everlearn.messages import nearest
from everlearn.networks import is_own
from everlearn.randomness import DrawFrom

__all__ = [
    "SMALL",
    "Subject",
    "batches",
    "random_numbers_restored",
    "revisit",
    "samples",
    "subject_of",
    "teach",
    "teach_all",
]

# Settings that make a learner small, where it has them.
SMALL = MappingProxyType({"hidden": 16, "embedding": 8, "memory_size": 30, "iterations": 2})


def batches(
    count: int = 6, size: int = 5, labels: Sequence[Label] = ("a", "b", "c"), seed: int = 0
) -> Iterator[tuple[Tensor, list[Label]]]:
    """Batches of Gaussian samples, one blob per label."""
    generator = torch.Generator().manual_seed(seed)
    for i in range(count):
        y = [labels[(i // 2 + j) % len(labels)] for j in range(size)]
        centres = torch.tensor([[3.0 * labels.index(label)] for label in y])
        yield torch.randn(size, 6, generator=generator) + centres, y


def samples(count: int, seed: int = 0) -> Tensor:
    """Gaussian samples around zero, `[count, 6]`."""
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def teach(learner: Learner, x: Any, y: Any, t: int = 0) -> None:
    """Observe a batch, with its task if the learner needs it."""
    learner.observe(x, y, t if "t" in learner.needs else None)


def teach_all(learner: Learner) -> None:
    """Observe six batches, in tasks of two."""
    for i, (x, y) in enumerate(batches()):
        teach(learner, x, y, i // 2)


def revisit(learner: Learner, x: Any, y: Any, t: int = 0) -> None:
    """Revisit a batch, with its task if the learner needs it."""
    learner.revisit(x, y, t if "t" in learner.needs else None)


@contextmanager
def random_numbers_restored() -> Iterator[None]:
    """A context in which torch's global generator begins at the same place, and after which it is as before."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


@dataclasses.dataclass(frozen=True)
class Subject:
    """A learner to check: its class, its network, and settings beside those that make it small."""

    kind: type[Learner]
    network: str | Callable[[], nn.Module] = "mlp"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def make(self, seed: int = 0, **settings: Any) -> Learner:
        """A new one. Those of SMALL and of the arguments that it doesn't have are left out."""
        small = dict(SMALL)
        if self.network == "identity":
            del small["embedding"]  # which is the sample as it is
        fields, may_lack = self.kind.Settings.__dataclass_fields__, SMALL.keys() | settings.keys()
        wanted = {**small, **self.settings, **settings}
        chosen = {name: value for name, value in wanted.items() if name in fields or name not in may_lack}
        return self.kind(self.new_network(), seed=seed, device="cpu", **chosen)

    @property
    def network_is_own(self) -> bool:
        """Whether its network is none of the library's."""
        return not isinstance(self.network, str) or is_own(self.network)

    def new_network(self) -> str | nn.Module:
        """The name of the network; or a new one, whose weights are the same each time."""
        if isinstance(self.network, str):
            return self.network
        with DrawFrom(torch.Generator().manual_seed(0)):
            return self.network()

    def taught(self, **settings: Any) -> Learner:
        """A new one that has observed some batches."""
        learner = self.make(**settings)
        teach_all(learner)
        return learner


def subject_of(kind: Any, network: Any, settings: Mapping[str, Any]) -> Subject:
    """The subject that a user describes; raises a TypeError or ValueError if it can't observe a first batch."""
    if not isinstance(kind, type):
        hint = "" if not isinstance(kind, Learner) else f": give {type(kind).__name__} itself"
        raise TypeError(f"a check takes the class of a learner, not {_short(kind)}{hint}")
    if not (issubclass(kind, Learner) and hasattr(kind, "name")):
        raise TypeError(
            f"a check takes a subclass of everlearn.Learner that sets `name`, not {kind.__name__}"
        )
    if isinstance(network, nn.Module) or not (isinstance(network, str) or callable(network)):
        raise TypeError(
            "network is a name or a function that makes a module, since each check needs its own; not "
            + _short(network)
        )
    known = list(kind.Settings.__dataclass_fields__)
    for name in settings:
        if name not in known:
            raise TypeError(f"{kind.__name__} has no setting {name!r}{nearest(name, known)}")
    subject = Subject(kind, network, settings)
    learner = subject.make()
    try:
        with random_numbers_restored():
            teach(learner, *next(batches()))
    except ValueError:
        raise
    except Exception:
        pass  # no mistake in the options: the checks tell what the learner does wrong
    return subject


def _short(thing: object) -> str:
    return repr(thing) if isinstance(thing, str | int | float) else f"an object of {type(thing).__name__}"
