"""Augmentation of images while learning: random views, colours and mixtures, or a user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.core.settings import ReplaySettings
from everlearn.networks import as_input
from everlearn.randomness import DrawFrom
from everlearn.training.affine_views import AffineViews
from everlearn.training.strong_views import STRONG_VIEWS, StrongViews
from everlearn.training.views import (
    Change,
    Colours,
    CutOut,
    Mixtures,
    Turns,
    Views,
    image_size,
    mirrored,
    shifted,
)

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Augmentation", "ImageChanges", "SeveralViews", "scores_over_views"]

Augmentation = Callable[[Tensor], Tensor]
"""A user's function of a batch that returns one of the same shape; it is called before bytes become 0 … 1."""


# The views of images with one channel, which may be digits or letters, and of those in colour.
AUTOMATIC = {1: "shift", 3: "crop-flip"}


class ImageChanges:
    """The augmentation of every image of B = B_n ∪ B_M in each iteration, as the settings say.

    x: the first batch; raises a ValueError if a setting can't be applied to samples like these.
    """

    def __init__(self, settings: ReplaySettings, x: Tensor, device: torch.device) -> None:
        self.own: Any = settings.augmentation if callable(settings.augmentation) else None
        self.changes = list(self._wanted(settings, x, device))
        self.turns: Tensor | None = None  # how often each image is turned in the running iteration

    @staticmethod
    def _wanted(settings: ReplaySettings, x: Tensor, device: torch.device) -> Iterator[Change]:
        shape = tuple(x.shape[1:])
        for name in ("colour", "mixing"):
            if getattr(settings, name) and not (x.is_floating_point() or x.dtype == torch.uint8):
                raise ValueError(f"{name} takes bytes or floating numbers, not samples of {x.dtype}")
        for name in ("colour", "mirrored", "shifted", "cutout", "turned"):
            if getattr(settings, name, 0):
                smallest = min(image_size(f"the setting `{name}`", shape, settings.width))
                if name == "shifted" and settings.shifted >= smallest:
                    raise ValueError(
                        f"shifted must be less than the size of the images, {smallest} pixels, not {settings.shifted}"
                    )
        kind: Any = settings.augmentation
        if kind == "auto":
            kind = AUTOMATIC.get(shape[0] if len(shape) == 3 else 0, "none")
        if kind == "affine" or kind in STRONG_VIEWS:
            if not (x.is_floating_point() or x.dtype == torch.uint8):
                raise ValueError(
                    f"augmentation {kind} takes bytes or floating numbers, not samples of {x.dtype}"
                )
            affine = kind == "affine"
            yield AffineViews(shape, settings.width) if affine else StrongViews(kind, shape, settings.width)
        elif not callable(kind) and kind != "none":
            yield Views(kind, shape, settings.width, device)
        if settings.cutout:
            yield CutOut(settings.cutout, *image_size("the setting `cutout`", shape, settings.width))
        if settings.colour:
            yield Colours(settings.colour)
        if settings.mixing:
            yield Mixtures(settings.mixing)
        if turned := getattr(settings, "turned", 0):
            yield Turns(turned, *image_size("the setting `turned`", shape, settings.width), device)

    def draw(self, generator: torch.Generator, iterations: int, images: int) -> tuple[NDArray[np.int64], ...]:
        """Random numbers that choose the change of each image: one `[iterations, images]` per kind of change."""
        return tuple(
            torch.randint(change.count(images), (iterations, images), generator=generator).numpy()
            for change in self.changes
        )

    def change(
        self, x: Tensor, old: Tensor, numbers: Sequence[Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The augmented images of B_n and B_M for one iteration."""
        if self.own is None and not numbers:
            return x, old
        both = torch.cat([x, old])
        if self.own is not None:
            with DrawFrom(generator):
                both = self.own_view(self.own, both)
        for change, number in zip(self.changes, numbers, strict=True):
            both = change(both, number)
            self.turns = change.turns(number) if isinstance(change, Turns) else None
        return both[: len(x)], both[len(x) :]

    @staticmethod
    def own_view(function: Augmentation, x: Tensor) -> Tensor:
        """The output of a user's function for a batch, after checks."""
        try:
            seen = function(x)
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
                f"the augmentation must return floating numbers or {x.dtype}, its input, but returned {seen.dtype}"
            )
        if not seen.isfinite().all():
            raise ValueError("the augmentation gave NaN or infinity")
        return seen

    def nbytes(self) -> int:
        """Bytes of the tables that the changes use."""
        return sum(change.nbytes() for change in self.changes)


def scores_over_views(learner: Learner, x: Tensor) -> Tensor:
    """The scores of samples; with `mirrored` or `shifted`, their mean over each image and these views of it."""
    pixels, both_ways = (getattr(learner.settings, name, 0) for name in ("shifted", "mirrored"))
    if not pixels and not both_ways:
        return learner.scores(x)
    height, width = image_size("prediction over views", tuple(x.shape[1:]), learner.settings.width)
    views = [x, *shifted(x, height, width, pixels)] if pixels else [x]
    if both_ways:
        views += [mirrored(view, width) for view in views]
    scores = learner.scores(views[0])
    for view in views[1:]:
        scores = scores + learner.scores(view)
    return scores / len(views)


class SeveralViews(ImageChanges):
    """Several copies of each image in every iteration, `[copies, images, ...]`, as floats.

    First come the images as they are, or the versions that `versions` makes of each; then a random view of each of
    these; then views of the images themselves until there are `views` of each. Where the settings change nothing, as
    with samples that are no images, a view is the sample itself.

    versions: a function of images `[images, channels, height, width]` that returns `[v · images, ...]`, all images in
        the first version first. Samples of another shape have one version.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        x: Tensor,
        device: torch.device,
        views: int = 1,
        versions: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(settings, x, device)
        self._make = versions if versions is not None and x.dim() == 4 else _as_it_is
        self.versions = len(self._make(x[:1]))
        self._views = views

    def draw(self, generator: torch.Generator, iterations: int, images: int) -> tuple[NDArray[np.int64], ...]:
        """Random numbers for every view of each image: one `[iterations, all views]` per kind of change."""
        return super().draw(generator, iterations, (self.versions + self._views - 1) * images)

    def change(
        self, x: Tensor, old: Tensor, numbers: Sequence[Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """All copies of the images of B_n and B_M for one iteration, each `[copies, images, ...]`."""
        both = torch.cat([x, old])
        made = self._make(both)
        many = torch.cat([made, *[both] * (self._views - 1)])
        seen, _ = super().change(many, many[:0], numbers, generator)
        copies = torch.cat([as_input(made), as_input(seen)])
        copies = copies.view(-1, len(both), *copies.shape[1:])
        return copies[:, : len(x)], copies[:, len(x) :]


def _as_it_is(x: Tensor) -> Tensor:
    return x
