"""D: the part of the stream that a learner may revisit."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from everlearn.messages import is_whole, nearest

__all__ = ["Extent", "Horizon"]

Extent = Literal["batch", "window", "task", "stream"]


@dataclasses.dataclass(frozen=True)
class Horizon:
    """How much of the stream a learner may revisit, and how many times.

    extent: `batch` (online, D = B), `window`, `task`, or the whole `stream` (offline, D = S).
    samples: the size of a window in samples.
    epochs: passes over the horizon. The first one is in the order of the stream, later ones are shuffled.

    >>> Horizon("stream", epochs=50)
    Horizon(extent='stream', samples=None, epochs=50)
    """

    extent: Extent = "batch"
    samples: int | None = None
    epochs: int = 1

    def __post_init__(self) -> None:
        if self.extent not in get_args(Extent):
            raise ValueError(f"there is no horizon {self.extent!r}{nearest(self.extent, get_args(Extent))}")
        if (self.extent == "window") != (self.samples is not None) or (
            self.samples is not None and self.samples < 1
        ):
            raise ValueError(
                "a window needs a number of samples, at least 1, and no other horizon has one; "
                f"got {self.extent!r} with samples={self.samples}"
            )
        if not is_whole(self.epochs, least=1):
            raise ValueError(f"epochs must be at least 1, not {self.epochs!r}, and a whole number")
