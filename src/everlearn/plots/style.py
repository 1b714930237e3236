"""The style of all pictures: colours, panels, and labels that don't overlap."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from everlearn.evaluation.history import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Histories",
    "abbreviated",
    "colours_in_order",
    "end_labels",
    "line_of",
    "mark_transitions",
    "method_of",
    "panels",
    "save",
]

Histories = Mapping[str, Sequence[History]]
"""For each learner, a history per seed."""

Heights = NDArray[np.float64]

LONGEST = 48
"""Characters of a name in a figure; longer ones are abbreviated."""

INK, QUIET, GRID = "#24292f", "#57606a", "#d0d7de"

# The same line for a method in every picture. Colours that colour-blind readers may confuse differ in their dashes.
COLOURS = {
    "cope": "#0b6fb8",
    "cope+": "#2f9fe0",
    "cope-ce": "#122b5c",
    "finetune": "#c8442e",
    "iid-online": "#868e96",
    "iid-offline": "#24292f",
    "reservoir": "#d98a00",
    "mir": "#009e73",
    "gss": "#cf6fa6",
    "gem": "#7b3294",
    "icarl": "#968a00",
    "curl": "#7a4a21",
    "cn-dpm": "#12707f",
    "er-ace": "#43134c",
    "scr": "#5639e6",
    "pcr": "#8c3f3f",
    "der++": "#92ad09",
    "gdumb": "#4c3232",
    "ocm": "#7bad71",
    "onpro": "#8c0733",
    "gsa": "#5a6b05",
    "mose": "#e639e6",
    "mkd": "#09ad24",
    "ccl-dc": "#586b46",
    "slda": "#e6398f",
    "ncm": "#468c23",
    "knn": "#d067e6",
    "ranpac": "#ad8f71",
}
DASHES = {
    **dict.fromkeys(("cope+", "cope-ce", "curl", "cn-dpm", "der++", "gdumb"), (0, (5, 1.6))),
    **dict.fromkeys(("gss", "gem", "icarl", "ocm", "onpro", "gsa"), (0, (6, 1.4, 1.2, 1.4))),
    **dict.fromkeys(("iid-online", "iid-offline"), (0, (1.4, 1.2))),
    **dict.fromkeys(("mose", "mkd", "ccl-dc"), (0, (6, 1.2, 1.2, 1.2, 1.2, 1.2))),
    **dict.fromkeys(("slda", "ncm", "knn", "ranpac"), (0, (2.6, 1.2))),
}
# For up to ten tasks or classes, and for learners of the user's own.
TEN = [
    *("#332288", "#1f9e80", "#d1495b", "#5b8fe6", "#0f5f2a"),
    *("#b04fa3", "#d19a1b", "#7a1f4b", "#85802a", "#929aa2"),
]


def line_of(name: str, names: Sequence[str]) -> dict[str, Any]:
    """The colour and dashes of a learner; one of the user's own gets one of ten colours, by its name.

    names: all learners of the figure. Where two would get the same colour, the second takes the next.

    >>> line_of("mir", ["mir"]), line_of("mine", ["mir", "mine"])
    ({'color': '#009e73', 'linestyle': '-'}, {'color': '#1f9e80', 'linestyle': '-'})
    """
    known = method_of(name)
    if known is not None:
        return {"color": COLOURS[known], "linestyle": DASHES.get(known, "-")}
    place, before = _own_place(name, names)
    # From the eleventh on, colours come again, with other dashes.
    dashes = ["-", *dict.fromkeys(DASHES.values())]
    return {"color": TEN[place], "linestyle": dashes[before // len(TEN) % len(dashes)]}


def _own_place(name: str, names: Sequence[str]) -> tuple[int, int]:
    """Which of the ten colours a learner of the user's own gets, and how many others of the figure come before it."""
    taken: list[int] = []
    for other in sorted({name, *(other for other in names if method_of(other) is None)}):
        place = crc32(other.encode("utf-8", "surrogatepass")) % len(TEN)
        free = [n for n in range(len(TEN)) if n not in taken[len(taken) // len(TEN) * len(TEN) :]]
        place = next((n for n in free if n >= place), free[0])
        if other == name:
            return place, len(taken)
        taken.append(place)
    raise AssertionError("unreachable")


def method_of(name: str) -> str | None:
    """The method whose colour a learner gets: a variant has its method's colour, a variant of CoPE that of `cope+`.

    >>> method_of("curl, online"), method_of("cope, not renormalised"), method_of("mine")
    ('curl', 'cope+', None)
    """
    if name in COLOURS:
        return name
    base = name.split(", ")[0]
    return None if base not in COLOURS else "cope+" if base == "cope" else base


def abbreviated(names: Sequence[str], most: int = LONGEST) -> list[str]:
    """Names for a figure: long ones without their middle, as long as no two become the same.

    >>> abbreviated(["cope", "a name with far too many words in it"], most=20)
    ['cope', 'a name with …s in it']
    """
    end = (most - 1) * 2 // 5
    found = [each if len(each) <= most else f"{each[: most - 1 - end]}…{each[-end:]}" for each in names]
    # The place among the names keeps those apart that differ in the middle.
    return [each if found.count(each) == 1 else f"{each} ({n + 1})" for n, each in enumerate(found)]


def colours_in_order(count: int) -> list[str]:
    """Colours for tasks or classes in order: ten distinct ones, or a scale from dark to light if there are more.

    >>> colours_in_order(2), len(set(colours_in_order(100)))
    (['#332288', '#1f9e80'], 100)
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if count <= len(TEN):
        return TEN[:count]
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 0.82, count))]


def panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with this many panels of this size in inches, at most four in a row.

    >>> figure, axes = panels(6, width=3, height=2)
    >>> len(axes), figure.get_size_inches().tolist()
    (6, [9.0, 4.0])
    """
    from matplotlib.figure import Figure

    if count == 0:
        raise ValueError("there is nothing to draw: pass the histories of at least one learner")
    rows = math.ceil(count / 4)
    columns = math.ceil(count / rows)
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.remove()
    for ax in axes[:count]:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(QUIET)
        ax.tick_params(color=QUIET, labelsize=8.5)
        ax.set_axisbelow(True)
    return figure, axes[:count]


def over_stream(count: int, what: str) -> tuple[Figure, list[Axes]]:
    """Panels with samples seen on the x-axis, one large or several smaller; `what` labels the y-axis of each row.

    >>> figure, axes = over_stream(1, "accuracy, %")
    >>> axes[0].get_xlabel(), axes[0].get_ylabel()
    ('samples seen', 'accuracy, %')
    """
    figure, axes = panels(count, *((7.2, 3.9) if count == 1 else (4.4, 3.2)))
    for ax in axes:
        ax.set_xlabel("samples seen")
        ax.locator_params(axis="x", nbins=6)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.grid(axis="y", color=GRID, linewidth=0.6)
        if first_in_row(ax):
            ax.set_ylabel(what)
    return figure, axes


def first_in_row(ax: Axes) -> bool:
    """Whether a panel is the first of its row."""
    place = ax.get_subplotspec()
    return place is not None and place.is_first_col()


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure to a file, in the format of its suffix; the folder is created if necessary."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Without the date, the same picture is the same file.
    metadata = {"Date": None} if target.suffix == ".svg" else None
    figure.savefig(target, dpi=150, bbox_inches="tight", pad_inches=0.1, metadata=metadata)
    return target


def title(ax: Axes, text: str, name: str, names: Sequence[str], pad: float = 16) -> None:
    """A panel's title in its learner's colour."""
    ax.set_title(text, color=line_of(name, names)["color"], fontweight="bold", fontsize=11, pad=pad)


def transitions(history: History) -> list[tuple[int, int]]:
    """After how many samples each task began, and its number; a task that comes back is listed every time.

    >>> from everlearn.evaluation.history import from_matrix
    >>> transitions(from_matrix([[0.9], [0.7, 0.8]]))
    [(0, 0), (1, 1)]
    """
    first = (0, history[0].task)
    return [first, *((old.samples, new.task) for old, new in pairwise(history) if new.task != old.task)]


def mark_transitions(ax: Axes, history: History, colours: Mapping[int, str] | None = None) -> None:
    """A line where each task begins, with its number above if there is room."""
    begun, end = transitions(history), max(history[-1].samples, 1)
    ax.set_xlim(0, end)
    if len(begun) == 1:
        return
    places = np.array([start for start, _ in begun]) * (_points(ax)[0] / end)
    gaps = np.diff([*places, _points(ax)[0]])
    in_full = bool(gaps.min() > 36)
    stride = next((n for n in (1, 2, 5, 10) if np.diff(places[::n]).min(initial=math.inf) > 14), 1)
    free_from = -math.inf
    for number, ((start, task), place) in enumerate(zip(begun, places, strict=True)):
        ax.axvline(start, color=GRID, linewidth=0.9, zorder=0)
        if number % stride == 0 and place >= free_from:
            word = f"task {task + 1}" if in_full else str(task + 1)
            _above(ax, start, word, colours[task] if colours else QUIET, "left")
            free_from = place + 4.6 * len(word) + 3
    if not in_full:
        _above(ax, 0, "task", QUIET, "right")


def _above(ax: Axes, x: float, word: str, colour: str, side: str) -> None:
    aside = 2 if side == "left" else -5
    ax.annotate(
        word, (x, 1), xycoords=ax.get_xaxis_transform(), xytext=(aside, 3), textcoords="offset points",
        fontsize=8, color=colour, ha=side, annotation_clip=False,
    )  # fmt: skip


def end_labels(ax: Axes, labels: Sequence[tuple[float, str, str]], size: float = 9) -> None:
    """Names beside the right ends of lines, pushed apart; each is (height, name, colour)."""
    shown = sorted((label for label in labels if math.isfinite(label[0])), key=lambda label: label[0])
    low, high = ax.get_ylim()
    unit = (high - low) / _points(ax)[1]
    heights = np.array([height for height, _, _ in shown])
    moves = (spread(heights, 1.1 * size * unit, low, high) - heights) / unit  # in points
    crowded = bool((np.abs(moves) > 0.4 * size).any())
    for (height, name, colour), move in zip(shown, moves, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 1}
        ax.annotate(
            name, (ax.get_xlim()[1], height), xytext=(20 if crowded else 6, move), textcoords="offset points",
            color=colour, fontsize=size, fontweight="bold", va="center", annotation_clip=False,
            arrowprops={**leader, "relpos": (0, 0.5)} if crowded else None,
        )  # fmt: skip


def spread(
    heights: Sequence[float] | NDArray[Any], gap: float, low: float, high: float
) -> NDArray[np.float64]:
    """Ascending heights, moved as little as possible: neighbours a gap apart, all between low and high.

    If they don't all fit, the gap shrinks.

    >>> spread([50, 50, 90], gap=10, low=0, high=100)
    array([45., 55., 90.])
    """
    count = len(heights)
    gap = min(gap, (high - low) / max(count - 1, 1))
    steps = gap * np.arange(count)
    # After subtracting the steps, heights must not decrease: pool those that do (isotonic regression).
    pools: list[tuple[float, int]] = []
    for wanted in np.asarray(heights, np.float64) - steps:
        mean, size = float(wanted), 1
        while pools and pools[-1][0] > mean:
            below, many = pools.pop()
            mean, size = (mean * size + below * many) / (size + many), size + many
        pools.append((mean, size))
    level = np.repeat([mean for mean, _ in pools], [size for _, size in pools])
    placed: Heights = np.clip(level, low, max(low, high - gap * (count - 1))) + steps
    return placed


def _points(ax: Axes) -> tuple[float, float]:
    """Width and height of the panel in points, before the layout is computed: a little less than in the end."""
    figure, box = ax.get_figure(root=True), ax.get_position()
    assert figure is not None
    width, height = figure.get_size_inches()
    return float(72 * width * box.width), float(72 * height * box.height)
