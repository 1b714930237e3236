"""The embedding and the prototypes in two dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.evaluation.representation import project
from everlearn.memory.labels import Label, as_labels
from everlearn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["embedding_plane", "push_apart"]

Points = NDArray[np.float64]

MOST_DOTS = 4000


def embedding_plane(features: Tensor, labels: Any, prototypes: Mapping[Label, Tensor]) -> Figure:
    """Samples as dots and prototypes as stars, on the two principal components of the features.

    features: `[n, d]`. labels: one for each. prototypes: a vector of size d for each class.

    >>> import torch
    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> figure = embedding_plane(features, ["a", "a", "b"], {"a": features[0], "b": features[2]})
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['a', 'b']
    """
    names = as_labels(labels)
    plane = project(features, prototypes)
    classes = list(dict.fromkeys([*prototypes, *names]))
    colours = dict(zip(classes, style.colours_in_order(len(classes)), strict=True))
    few = len(classes) <= 20
    figure, (ax,) = style.panels(1, 5.6, 5.2)
    shown = np.unique(
        np.linspace(0, len(names) - 1, MOST_DOTS).astype(int)
    )  # evenly spaced, if there are many
    across, up = plane.samples.cpu().numpy()[shown].T
    inks = [colours[names[i]] for i in shown]
    ax.scatter(across, up, s=14 if len(shown) < 1000 else 6, c=inks, alpha=0.5, linewidth=0)
    stars = np.array([vector.tolist() for vector in plane.prototypes.values()]).reshape(-1, 2)
    inks = [colours[label] for label in plane.prototypes]
    size = 170 if few else 50
    ax.scatter(stars[:, 0], stars[:, 1], s=size, c=inks, marker="*", edgecolor=style.INK, linewidth=0.9)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(
        xlabel=f"first component, {100 * plane.explained[0]:.0f} % of the variance", xticks=[],
        ylabel=f"second component, {100 * plane.explained[1]:.0f} % of the variance", yticks=[],
    )  # fmt: skip
    figure.draw_without_rendering()  # computes the layout, so that labels can be placed in points
    _name_stars(ax, stars, [str(label) for label in plane.prototypes], inks, few)
    return figure


def _name_stars(ax: Axes, stars: Points, words: Sequence[str], inks: Sequence[str], few: bool) -> None:
    """A label beside each star that covers no other label or star, with a line to the star if it is far."""
    from matplotlib.patheffects import withStroke

    figure = ax.get_figure(root=True)
    assert figure is not None
    font, extent = (10, 11) if few else (7, 6)
    points = ax.transData.transform(stars) * 72 / figure.dpi
    sizes = np.array([[0.65 * font * len(word) + 2, font] for word in words]).reshape(-1, 2)
    above = points + np.array([0, (font + extent) / 2])
    offsets = push_apart(above, sizes, points, np.full((len(points), 2), extent)) - points
    leader = {"arrowstyle": "-", "color": style.QUIET, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
    for word, ink, (x, y), (right, up) in zip(words, inks, stars, offsets, strict=True):
        text = ax.annotate(
            word, (x, y), xytext=(right, up), textcoords="offset points", ha="center", va="center",
            fontsize=font, fontweight="bold", color=ink,
            arrowprops=leader if np.hypot(right, up) > 1.6 * font else None,
        )  # fmt: skip
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])


def push_apart(
    centres: Points, sizes: Points, fixed_centres: Points, fixed_sizes: Points, rounds: int = 500
) -> Points:
    """Boxes `[n, 2]`, moved until none overlaps another or a fixed one, or the rounds are over.

    >>> boxes, size = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[4.0, 4.0], [4.0, 4.0]])
    >>> push_apart(boxes, size, np.empty((0, 2)), np.empty((0, 2))).round(1).tolist()
    [[-1.5, 0.0], [2.5, 0.0]]
    """
    count = len(centres)
    placed = np.concatenate([centres, fixed_centres])
    extents = np.concatenate([sizes, fixed_sizes])
    room = (extents[:count, None] + extents[None]) / 2  # [n, all, 2]
    order = np.arange(len(placed))
    tie = np.sign(order[:count, None] - order)[..., None] * np.array(
        [1e-6, 2e-6]
    )  # for boxes at the same position
    # Two boxes that may move share the distance; next to a fixed box, the other moves all of it.
    share = np.where(order < count, 0.5, 1.0)[:, None]
    for _ in range(rounds):
        apart = placed[:count, None] - placed[None] + tie
        overlap = room - np.abs(apart)
        covers = (overlap > 1e-3).all(2) & (order[:count, None] != order)
        if not covers.any():
            break
        along = overlap.argmin(2)[..., None] == np.arange(2)  # the direction in which they overlap less
        placed[:count] += np.where(covers[..., None] & along, np.sign(apart) * overlap * share, 0).sum(1)
    return placed[:count]
