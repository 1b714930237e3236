"""The figures of a report: our runs in each method's colour, the paper's numbers as diamonds beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from everlearn.paper.formatting import in_math, proper, short, signed
from everlearn.paper.tables import MeasuredCell, Table
from everlearn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy_bars", "differences", "drawn", "grouped_bars", "lines", "row_panels"]

PAPER: dict[str, Any] = {
    "marker": "D", "markersize": 5, "markerfacecolor": "white", "markeredgecolor": style.INK,
    "markeredgewidth": 1.1, "linestyle": "none",
}  # fmt: skip
COLUMN = 36
"""Characters of a column's name above a panel; longer ones are abbreviated."""
WHISKER: dict[str, Any] = {"elinewidth": 1.1, "capsize": 2.5, "capthick": 1.1}
HATCHES = {
    "(0, (5, 1.6))": "////",
    "(0, (6, 1.4, 1.2, 1.4))": "xxx",
    "(0, (1.4, 1.2))": "\\\\\\\\",
    "(0, (6, 1.2, 1.2, 1.2, 1.2, 1.2))": "...",
    "(0, (2.6, 1.2))": "---",
}


def drawn(draw: Callable[[], Figure]) -> Figure:
    """A figure in the report's ink, so that a dark page can exchange it; bars are hatched in the page's colour."""
    import matplotlib
    from matplotlib.text import Text

    ink: Any = dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), style.INK
    )
    with matplotlib.rc_context(ink | {"hatch.linewidth": 1.0, "hatch.color": "white"}):
        figure = draw()
    for text in figure.findobj(Text):
        text.set_text(proper(text.get_text()))
    return figure


def accuracy_bars(table: Table) -> Figure:
    """A bar for each row, a panel for each column; the paper's mean ± std as a diamond."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = row_panels(table)
    for ax, column in zip(axes, table.filled_columns, strict=True):
        cells = _column(table, column)
        for place, (row, cell) in enumerate(cells):
            if cell is not None and cell.ours is not None:
                colour = style.line_of(row, table.rows)["color"]
                ax.barh(place, cell.ours.mean, height=0.66, color=colour, linewidth=0)
                _whisker(ax, cell.ours.mean, place, xerr=cell.ours.std or 0)
            if cell is not None and cell.cell.published is not None:
                paper = cell.cell.published
                _whisker(ax, paper.mean, place, xerr=paper.std or 0)
                ax.plot(paper.mean, place, **PAPER, zorder=4)
            _at_right(ax, place, _words(cell))
        ax.set(xlim=(0, 1.04 * _highest([cell for _, cell in cells])), xlabel="accuracy, %")
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.grid(axis="x", color=style.GRID, linewidth=0.6)
    legend = ": bars are ours, diamonds the paper's" if _published(table) else ""
    _legend(figure, f"mean and standard deviation over seeds{legend}")
    return figure


def differences(table: Table) -> Figure:
    """Ours less the paper's, in points, for each row; the paper's own spread as a band behind it."""
    figure, axes = row_panels(table)
    for ax, column in zip(axes, table.filled_columns, strict=True):
        reach = 1.0
        ax.axvline(0, color=style.QUIET, linewidth=1, zorder=0)
        for place, (row, cell) in enumerate(_column(table, column)):
            if cell is None or cell.ours is None or cell.cell.published is None or cell.difference is None:
                continue
            spread, ours = cell.cell.published.std or 0.0, cell.ours.std or 0.0
            colour = style.line_of(row, table.rows)["color"]
            ax.barh(place, 2 * spread, left=-spread, height=0.72, color=style.GRID, linewidth=0, zorder=1)
            face = "white" if cell.outside else colour
            ax.errorbar(
                cell.difference, place, xerr=ours, marker="o", markersize=6.5, color=colour,
                markerfacecolor=face, markeredgewidth=1.6, zorder=3, **WHISKER,
            )  # fmt: skip
            _at_right(ax, place, signed(cell.difference))
            reach = max(reach, spread, abs(cell.difference) + ours)
        ax.set(xlim=(-1.08 * reach, 1.08 * reach), xlabel="ours − paper, points")
        ax.locator_params(axis="x", nbins=5)
    _legend(figure, "band: the paper's ± one standard deviation; hollow: our mean lies outside it")
    return figure


def lines(table: Table) -> Figure:
    """A line for each row over the columns, with error bars; the paper's means as diamonds of the same colour."""
    figure, (ax,) = style.panels(1, 6.4, 3.9)
    ends, called = [], _called(table.rows)
    for row in table.rows:
        line = style.line_of(row, table.rows)
        cells = [(place, table.at(row, column)) for place, column in enumerate(table.columns)]
        ours = [(place, c.ours) for place, c in cells if c is not None and c.ours is not None]
        paper = [
            (place, c.cell.published) for place, c in cells if c is not None and c.cell.published is not None
        ]
        if ours:
            places, means = [place for place, _ in ours], [o.mean for _, o in ours]
            errors = [o.std or 0 for _, o in ours]
            mark: Any = {"marker": "o", "markersize": 4.5, "linewidth": 1.8}
            drawn_line = ax.errorbar(places, means, yerr=errors, **mark, **line, **WHISKER)
            for bar in drawn_line[2]:
                bar.set_linestyle("-")
            across = table.across(row)
            ends.append(
                (means[-1], f"{called[row]} {across.mean:.1f}" if across else called[row], line["color"])
            )
        if paper:
            ax.plot(
                *zip(*((p, q.mean) for p, q in paper), strict=True),
                **PAPER | {"markeredgecolor": line["color"]},
            )
    ax.set_xticks(range(len(table.columns)), _columns(table.columns))
    ax.set(xlim=(-0.25, len(table.columns) - 0.75), xlabel=in_math(table.axis or ""), ylabel="accuracy, %")
    ax.grid(axis="y", color=style.GRID, linewidth=0.6)
    ax.set_title(in_math(table.title), fontsize=11, fontweight="bold", loc="left")
    style.end_labels(ax, ends, size=8.5)
    diamonds = "; diamonds: the paper's" if _published(table) else ""
    _legend(figure, f"± standard deviation over seeds; at the right, the mean over all columns{diamonds}")
    return figure


def grouped_bars(table: Table) -> Figure:
    """For each column a bar per row, with error bars; the legend gives each row's mean over all columns."""
    figure, (ax,) = style.panels(1, 7.2, 3.7)
    rows = [row for row in table.rows if any(c.ours for _, c in _of_row(table, row))]
    width, called = 0.84 / max(len(rows), 1), _called(rows)
    for number, row in enumerate(rows):
        line = style.line_of(row, table.rows)
        across = table.across(row)
        label = f"{called[row]}  {across.mean:.1f}" if across else f"{called[row]}  …"
        shift = (number - (len(rows) - 1) / 2) * width
        for place, cell in _of_row(table, row):
            if cell.ours is not None:
                ax.bar(
                    place + shift, cell.ours.mean, width * 0.9, label=label,
                    color=line["color"], hatch=HATCHES.get(str(line["linestyle"])), linewidth=0,
                )  # fmt: skip
                _whisker(ax, place + shift, cell.ours.mean, yerr=cell.ours.std or 0)
                label = "_"
            if cell.cell.published is not None:
                ax.plot(place + shift, cell.cell.published.mean, **PAPER)
    ax.set_xticks(range(len(table.columns)), _columns(table.columns))
    ax.set(ylabel="accuracy, %", xlabel=in_math(table.axis or ""))
    ax.grid(axis="y", color=style.GRID, linewidth=0.6)
    ax.set_title(in_math(table.title), fontsize=11, fontweight="bold", loc="left")
    ax.legend(
        frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5), title="mean of all columns",
        title_fontsize=8, labelspacing=0.7, handlelength=1.6,
    )  # fmt: skip
    return figure


def row_panels(table: Table) -> tuple[Figure, list[Axes]]:
    """A panel for each column with runs, with the rows' names left of the first, from top to bottom."""
    columns = table.filled_columns
    width = {1: 5.6, 2: 4.4}.get(len(columns), 3.6)
    figure, axes = style.panels(len(columns), width, 0.27 * len(table.rows) + 1.15)
    called = _called(table.rows)
    for ax, column in zip(axes, _columns(columns), strict=True):
        ax.set_ylim(len(table.rows) - 0.4, -0.6)
        names = [called[row] if style.first_in_row(ax) else "" for row in table.rows]
        ax.set_yticks(range(len(table.rows)), names)
        ax.tick_params(axis="y", length=0, labelsize=9)
        ax.spines["left"].set_visible(False)
        ax.set_title(column, fontsize=10.5, fontweight="bold", loc="left")
    return figure, axes


def _called(rows: Sequence[str]) -> dict[str, str]:
    """What each row is called in a figure."""
    return {row: in_math(name) for row, name in zip(rows, style.abbreviated(rows), strict=True)}


def _columns(columns: Sequence[str]) -> list[str]:
    return [in_math(name) for name in style.abbreviated(short(columns), COLUMN)]


def _whisker(ax: Axes, x: float, y: float, **error: Any) -> None:
    """± a deviation, edged in white so that it shows on a dark bar too."""
    for colour, wider in (("white", 1.6), (style.INK, 0.0)):
        width: Any = {"elinewidth": 1.1 + wider, "capthick": 1.1 + wider, "capsize": 2.5 + wider / 2}
        ax.errorbar(x, y, fmt="none", color=colour, zorder=3, **width, **error)


def _legend(figure: Figure, text: str) -> None:
    figure.supxlabel(text, fontsize=8, color=style.QUIET)


def _at_right(ax: Axes, place: int, words: str) -> None:
    ax.annotate(
        words, (1, place), xycoords=("axes fraction", "data"), xytext=(5, 0), textcoords="offset points",
        va="center", fontsize=8, color=style.QUIET,
    )  # fmt: skip


def _words(cell: MeasuredCell | None) -> str:
    if cell is None:  # not part of the report
        return ""
    if cell.ours is None:
        return "no accuracy" if cell.runs else "not run"
    spread = f" ± {cell.ours.std:.1f}" if cell.ours.std is not None else ""
    return f"{cell.ours.mean:.1f}{spread}"


def _column(table: Table, column: str) -> list[tuple[str, MeasuredCell | None]]:
    return [(row, table.at(row, column)) for row in table.rows]


def _of_row(table: Table, row: str) -> list[tuple[int, MeasuredCell]]:
    cells = ((place, table.at(row, column)) for place, column in enumerate(table.columns))
    return [(place, cell) for place, cell in cells if cell is not None]


def _published(table: Table) -> bool:
    return any(cell.cell.published is not None for cell in table.cells)


def _highest(cells: Sequence[MeasuredCell | None]) -> float:
    ours = [c.ours.mean + (c.ours.std or 0) for c in cells if c is not None and c.ours is not None]
    paper = [c.cell.published.mean for c in cells if c is not None and c.cell.published is not None]
    return max([*ours, *paper], default=100.0)
