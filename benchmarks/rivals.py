"""Accuracy over cost of the recent methods, from stored runs: a table in Markdown for each column, and a picture.

    python benchmarks/rivals.py P1 [--store results] [--out docs/images/rivals-P1.png]

Cost is how many images pass a network for each new image. The line joins the methods that none beats at a lower cost.
What authors report stands as a cross.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.experiments.collect import collect_runs
from everlearn.paper.experiment import experiment
from everlearn.paper.methods import Method, frontier, methods, methods_view
from everlearn.paper.tables import Table, fill
from everlearn.paper.writers import to_markdown
from everlearn.plots.plane import push_apart

OURS, OTHERS = "#0b6fb8", "#57606a"


Name = tuple[str, float, float, str]  # of a method: where its point is, and its colour


def draw(ax: Any, table: Table, column: str) -> list[Name]:
    """One column of a panel: accuracy over cost; returns the names to write."""
    found = [method for method in methods(table, column) if method.cost]
    line = frontier(found)
    ax.plot([each.cost for each in line], [each.accuracy for each in line], color="#d0d7de", zorder=1)
    names: list[Name] = []
    for method in found:
        colour = OURS if method.name == "cope+" else OTHERS
        ours = method.cell.ours
        assert ours is not None
        ax.errorbar(method.cost, ours.mean, ours.std, fmt="o", color=colour, capsize=2, markersize=5)
        names.append((method.name, method.cost, ours.mean, colour))
    reported = [Method(cell) for cell in table.cells if cell.cell.column == column and cell.cell.published]
    for method in reported:
        published = method.cell.cell.published
        assert published is not None
        ax.plot(method.cost, published.mean, "x", color=OTHERS)
        names.append((f"{method.name}, reported", method.cost, published.mean, OTHERS))
    highest = max(each.cost for each in [*found, *reported])
    ax.set(xscale="log", title=f"{table.title.split(':')[0]}, {column}", ylabel="accuracy, %")
    ax.set_xlabel("images per new image")
    ticks = [5, 10, 20, 40, 80, 160, 320]
    ax.set_xticks([tick for tick in ticks if tick / 2 < highest], minor=False)
    ax.set_xticks([], minor=True)
    ax.set_xlim(right=5 * highest)
    ax.set_xticklabels([str(tick) for tick in ticks if tick / 2 < highest])
    ax.spines[["top", "right"]].set_visible(False)
    return names


def write(ax: Any, names: list[Name]) -> None:
    """The names of the methods beside their points; none covers another or a point."""
    points = ax.transData.transform([(cost, accuracy) for _, cost, accuracy, _ in names]) * 72 / ax.figure.dpi
    sizes = np.array([(4.6 * len(name) + 4, 10) for name, *_ in names])
    beside = points + np.stack([sizes[:, 0] / 2 + 4, np.full(len(names), -6.0)], 1)
    placed = push_apart(beside, sizes, points, np.full((len(names), 2), 6.0))
    for (name, cost, accuracy, colour), offset in zip(names, placed - points, strict=True):
        ax.annotate(
            name, (cost, accuracy), tuple(offset), textcoords="offset points",
            color=colour, fontsize=8, ha="center", va="center",
        )  # fmt: skip


def main() -> None:
    """Print the tables and write the picture."""
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("protocol", choices=["P0", "P1", "P2", "P3"])
    parser.add_argument("--store", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tables = fill(experiment(f"rivals-{options.protocol}"), collect_runs([options.store]))
    parts = [(table, column) for table in tables for column in table.filled_columns]
    parts = [(table, column) for table, column in parts if len(methods(table, column)) > 1]
    if not parts:
        parser.exit(1, f"{options.store} has no runs of two methods in {options.protocol}\n")
    for table, column in parts:
        print(f"{table.title} {column}\n\n{to_markdown(methods_view(table, column))}")
    if options.out is not None:
        figure = Figure(figsize=(5.2 * len(parts), 3.6), layout="constrained")
        axes = figure.subplots(1, len(parts), squeeze=False)[0]
        names = [draw(ax, table, column) for ax, (table, column) in zip(axes, parts, strict=True)]
        figure.draw_without_rendering()  # computes the layout, so that names can be placed in points
        for ax, of_panel in zip(axes, names, strict=True):
            write(ax, of_panel)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=150)


if __name__ == "__main__":
    main()
