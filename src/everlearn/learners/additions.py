"""What can be added to learning with replay: more of it, other views of the images, averaged weights.

Each is a setting, and off by default. `CoPE+` is CoPE with them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.checkpoint import State
from everlearn.learners.base import Learner, Settings
from everlearn.learners.state import under
from everlearn.memory.labels import Label
from everlearn.networks import SoftmaxNetwork
from everlearn.randomness import DrawFrom
from everlearn.training.views import (
    AUGMENTATIONS,
    Change,
    Colours,
    Mixtures,
    Views,
    image_size,
    mirrored,
)
from everlearn.transaction import current

__all__ = ["Additions", "WithAdditions"]


@dataclasses.dataclass(frozen=True)
class Additions(Settings):
    """Settings of a learner with replay that go beyond the paper."""

    replayed: int | None = None
    """exemplars replayed in each iteration; by default as many as the batch has samples"""
    augmentation: str = "none"
    """a random view of every image in each iteration: none, shift, crop-flip; or, in Python, a function of a batch"""
    width: int | None = None
    """the width of the images in pixels, where grey ones come flat and are augmented, coloured or mirrored"""
    colour: float = 0.0
    """brightness, contrast and, of images in colour, saturation are multiplied by 1 ± up to this in each iteration"""
    mixing: float = 0.0
    """up to this share of another image of the batch in every image, which keeps its own label; 0 for none"""
    averaging: float = 0.0
    """decay per batch of the averaged weights that predictions are made with; 0 for the weights as they are"""
    mirrored: bool = False
    """predict from each image and its mirror image, the mean of the scores of both"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("replayed", self.replayed is None or self.replayed >= 1, "at least 1")
        known = ["none", *AUGMENTATIONS]
        self._check(
            "augmentation", callable(self.augmentation) or self.augmentation in known, " or ".join(known)
        )
        self._check("width", self.width is None or self.width >= 1, "at least 1")
        self._check("colour", 0 <= self.colour <= 1, "at least 0 and at most 1")
        self._check("mixing", 0 <= self.mixing < 1, "at least 0 and below 1")
        self._check("averaging", 0 <= self.averaging < 1, "at least 0 and below 1")


class WithAdditions(Learner):
    """A learner with replay that knows the settings of `Additions`."""

    settings: Any
    _changes: Sequence[Change] = ()  # what is done to every image of B, one after the other
    _average: Average | None = None
    _newest = 0  # how many batches had been observed when the newest class came

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        super().__init__(network, seed=seed, device=device, **settings)
        if callable(self.settings.augmentation):
            self.tensors_alone, self._captured = False, None  # nobody knows what a user's function does

    def _try(self, x: Tensor) -> None:
        """A user's function may refuse a batch, too, and is tried on it before anything changes."""
        super()._try(x)
        if callable(self.settings.augmentation):
            with DrawFrom(torch.Generator()):
                self._own_view(x.to(self.device, copy=True))

    def drawn(self, batch: int) -> int:
        """As many as were asked for, or as the batch has."""
        return self.settings.replayed or batch

    def shape(self, batch: int) -> tuple[Hashable, ...]:
        """What is added to a plan counts as well."""
        added = self.settings
        changed = added.augmentation, added.colour > 0, added.mixing > 0
        return *super().shape(batch), *changed, added.averaging > 0

    def prepare(self, labels: list[Label], keep: bool = True) -> list[NDArray[np.int64]]:
        """As any learner's; before the replay how every image is changed, and the newest class's age."""
        slots, *plan = super().prepare(labels, keep)
        shown = (self.settings.iterations, len(slots) + plan[0].shape[1])
        added = [
            torch.randint(change.count(shown[1]), shown, generator=self.generator).numpy()
            for change in self._changes
        ]
        if self._average is not None:
            added.append(np.array([self.batches - self._newest]))
        return [slots, *added, *plan]

    def learn(self, x: Tensor, slots: Tensor, *plan: Tensor) -> None:
        """One batch, with what was added. plan: as `prepare` gives it."""
        assert self.memory is not None
        numbers, plan = plan[: len(self._changes)], plan[len(self._changes) :]
        age, plan = (plan[0], plan[1:]) if self._average is not None else (None, plan)
        recalled = self.memory.recall(plan[0])
        outcomes = []
        for i in range(self.settings.iterations):
            shown, old = self._changed(x, recalled[i], [number[i] for number in numbers])
            outcomes.append(self.step(shown, slots, old, plan[1][i]))
        self._finish(x, slots, outcomes, plan)
        if self._average is not None and age is not None:
            self._average.follow(self.settings.averaging, age)

    def _changed(self, x: Tensor, old: Tensor, numbers: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The images of B_n and B_M as one iteration sees them."""
        own = callable(self.settings.augmentation)
        if not own and not numbers:
            return x, old
        both = torch.cat([x, old])
        if own:
            with DrawFrom(self.generator):
                both = self._own_view(both)
        for change, number in zip(self._changes, numbers, strict=True):
            both = change(both, number)
        return both[: len(x)], both[len(x) :]

    def _own_view(self, x: Tensor) -> Tensor:
        """What a user's function makes of a batch, if that can be learnt from."""
        try:
            seen = self.settings.augmentation(x)
        except Exception as error:
            raise ValueError(
                f"the augmentation can't take a batch of shape {list(x.shape)}: {error}"
            ) from error
        if not isinstance(seen, Tensor) or seen.shape != x.shape:
            got = list(seen.shape) if isinstance(seen, Tensor) else type(seen).__name__
            raise ValueError(
                f"the augmentation must keep the shape of a batch, {list(x.shape)}, but gave {got}"
            )
        if not (seen.is_floating_point() or seen.dtype == x.dtype):
            raise ValueError(
                f"the augmentation must give floating numbers or {x.dtype}, as it is given, but gave {seen.dtype}"
            )
        if not seen.isfinite().all():
            raise ValueError("the augmentation gave NaN or infinity")
        return seen

    def _answer(self, x: Tensor) -> Tensor:
        scores = super()._answer(x)
        if not self.settings.mirrored:
            return scores
        _, width = image_size("the setting `mirrored`", tuple(x.shape[1:]), self.settings.width)
        return (scores + super()._answer(mirrored(x, width))) / 2

    @property
    def _predictor(self) -> nn.Module:
        return super()._predictor if self._average is None else self._average.network

    def _begin(self, x: Tensor) -> None:
        changes = list(self._wanted(x))
        super()._begin(x)
        self._changes = changes

    def _wanted(self, x: Tensor) -> Iterator[Change]:
        """What the settings say is done to samples like these, or a sentence that it can't be."""
        added, shape = self.settings, tuple(x.shape[1:])
        for name in ("colour", "mixing"):
            if getattr(added, name) and not (x.is_floating_point() or x.dtype == torch.uint8):
                raise ValueError(f"{name} takes bytes or floating numbers, not samples of {x.dtype}")
        for name in ("colour", "mirrored"):
            if getattr(added, name):
                image_size(f"the setting `{name}`", shape, added.width)
        if not callable(added.augmentation) and added.augmentation != "none":
            yield Views(added.augmentation, shape, added.width, self.device)
        if added.colour:
            yield Colours(added.colour)
        if added.mixing:
            yield Mixtures(added.mixing)

    def _use(self, network: nn.Module) -> None:
        super()._use(network)
        if self.settings.averaging:
            self._average = Average(network, self._average)

    def _open_classes(self, classes: int) -> None:
        super()._open_classes(classes)
        self._newest = self.batches

    def _forget_class(self, slot: int) -> None:
        average, self._average = self._average, None
        super()._forget_class(slot)
        if average is not None and self.network is not None:
            average = average.copy()
            average.forget(slot)
            self._average = Average(self.network, average)

    def _merge(self, other: Any, slots: NDArray[np.int64]) -> None:
        super()._merge(other, slots)
        self._newest += other.batches  # which count from now on, but have taught this network nothing

    def _hold_still(self, still: Any) -> None:
        super()._hold_still(still)
        if self._average is not None:
            still._average = self._average.copy()

    def footprint(self) -> dict[str, int]:
        """Bytes of the operational memory, and of the averaged weights and the table of views if there are any."""
        held = {} if self._average is None else {"averaged weights": self._average.nbytes()}
        tables = sum(change.nbytes() for change in self._changes)
        return super().footprint() | held | ({"views": tables} if tables else {})

    def _parts(self) -> State:
        parts = super()._parts()
        if self._average is not None:
            weights = self._average.network.state_dict()
            parts |= {f"average.{name}": part.clone() for name, part in weights.items()}
            parts["newest"] = torch.tensor(self._newest)
        return parts

    def _take_parts(self, state: State) -> None:
        self._check_network(under("network.", state))  # what else there is depends on it
        super()._take_parts(state)
        if self._average is not None:
            self._average.network.load_state_dict(under("average.", state))
            self._newest = int(state["newest"])


class Average:
    """The average of a network's weights, batch-norm's statistics included: a network to predict with.

    The decay never reaches further back than the newest class: while that is `age` batches old, it is at most
    (1 + age) / (10 + age). So a short task at a stream's end isn't drowned by what came before.
    """

    def __init__(self, network: nn.Module, before: Average | None = None) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        if before is not None:  # the network has grown: what is new starts as it is
            theirs = self.network.state_dict()
            for name, part in before.network.state_dict().items():
                shared = tuple(
                    slice(min(sizes)) for sizes in zip(part.shape, theirs[name].shape, strict=True)
                )
                theirs[name][shared] = part[shared]
        self._means, self._weights = self._floats(self.network), self._floats(network)

    @staticmethod
    def _floats(network: nn.Module) -> list[Tensor]:
        """The tensors that are averaged, each once: layers may share one."""
        parts = dict(network.named_parameters(remove_duplicate=False)) | dict(
            network.named_buffers(remove_duplicate=False)
        )
        held = (parts[name] for name in network.state_dict(keep_vars=True) if name in parts)
        return list({id(part): part for part in held if part.is_floating_point()}.values())

    @torch.no_grad()
    def follow(self, decay: float, age: Tensor) -> None:
        """Move towards the weights as they are now. Tensors alone."""
        if not self._means:  # a fixed embedding
            return
        transaction = current()
        if age.is_cuda:
            if transaction is not None:
                transaction.keep(self._means)
            share = 1 - ((1 + age[0]) / (10 + age[0])).clamp(max=decay)
            changes = torch._foreach_sub(self._weights, self._means)
            torch._foreach_mul_(changes, share)
            torch._foreach_add_(self._means, changes)
            return
        young = (1 + int(age)) / (10 + int(age))
        move = functools.partial(torch._foreach_lerp_, self._means, self._weights, 1 - min(decay, young))
        if transaction is None:
            move()
        else:
            transaction.at_commit(self._means, move)

    def forget(self, slot: int) -> None:
        """Remove the logit of a class, if there are any; those after it move down by one."""
        if isinstance(self.network, SoftmaxNetwork):
            for part in self.network.head.parameters():
                part.data = torch.cat([part[:slot], part[slot + 1 :]])

    def copy(self) -> Average:
        """The same, which stays as it is."""
        return Average(self.network)

    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self._means)


Augmentation = Callable[[Tensor], Tensor]
"""A user's own: a function of a batch, as it came, that gives one of the same shape; bytes become 0 … 1 after it."""
