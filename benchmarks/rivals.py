"""Accuracy over cost of the methods of today, from stored runs: a table in Markdown for each column, and a picture.

    python benchmarks/rivals.py P1 [--store results] [--out docs/images/rivals-P1.png]

Cost is how many images pass a network for each new image. The line joins the methods that none beats at a lower cost.
What authors report stands as a cross.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from everlearn.experiments.collect import collect_runs
from everlearn.paper.experiment import experiment
from everlearn.paper.methods import Method, frontier, methods, methods_view
from everlearn.paper.tables import Table, fill
from everlearn.paper.writers import to_markdown

OURS, OTHERS = "#0b6fb8", "#57606a"


def draw(ax: Any, table: Table, column: str) -> None:
    """One column of a panel: accuracy over cost."""
    found = [method for method in methods(table, column) if method.cost]
    line = frontier(found)
    ax.plot([each.cost for each in line], [each.accuracy for each in line], color="#d0d7de", zorder=1)
    for method in found:
        colour = OURS if method.name == "cope+" else OTHERS
        ours = method.cell.ours
        assert ours is not None
        ax.errorbar(method.cost, ours.mean, ours.std, fmt="o", color=colour, capsize=2, markersize=5)
        write(ax, method.name, method.cost, ours.mean, colour)
    reported = [Method(cell) for cell in table.cells if cell.cell.column == column and cell.cell.published]
    for method in reported:
        published = method.cell.cell.published
        assert published is not None
        ax.plot(method.cost, published.mean, "x", color=OTHERS)
        write(ax, f"{method.name}, reported", method.cost, published.mean, OTHERS)
    highest = max(each.cost for each in [*found, *reported])
    ax.set(xscale="log", title=f"{table.title.split(':')[0]}, {column}", ylabel="accuracy, %")
    ax.set_xlabel("images per new image")
    ticks = [5, 10, 20, 40, 80, 160, 320]
    ax.set_xticks([tick for tick in ticks if tick / 2 < highest], minor=False)
    ax.set_xticks([], minor=True)
    ax.set_xlim(right=2.2 * highest)
    ax.set_xticklabels([str(tick) for tick in ticks if tick / 2 < highest])
    ax.spines[["top", "right"]].set_visible(False)


def write(ax: Any, name: str, cost: float, accuracy: float, colour: str) -> None:
    """The name of a method, below its point."""
    ax.annotate(name, (cost, accuracy), (5, -11), textcoords="offset points", color=colour, fontsize=8)


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
        for ax, (table, column) in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
            draw(ax, table, column)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=150)


if __name__ == "__main__":
    main()
