"""Accuracy over cost for every setting that was tried for `cope+`, from the runs that `benchmarks/beyond.py` wrote.

    python benchmarks/frontier.py docs/studies/split-mnist.jsonl docs/studies/split-cifar10.jsonl --out FILE

Cost is how many images pass the network for each new one: iterations · (|B_n| + replayed) / |B_n|. What was predicted
with mirror images, at twice the cost of a prediction, is drawn as a ring.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

BATCH = 10
PROTOTYPES = ("", "evolving", "from memory")


def cost(settings: dict[str, Any]) -> float:
    """Images processed per new image."""
    return settings.get("iterations", 1) * (BATCH + (settings.get("replayed") or BATCH)) / BATCH


class Point(NamedTuple):
    """The result of one setting with the better kind of prototypes, as the mean over seeds."""

    cost: float
    accuracy: float  # on validation, in percent
    plain: bool
    mirrored: bool


def points(path: Path) -> list[Point]:
    """Every setting, and once more where it was judged with mirror images, too."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        runs.setdefault(json.dumps([row["learner"], row["settings"]], sort_keys=True), []).append(row)
    found = []
    for rows in runs.values():
        settings = rows[0]["settings"]
        plain = settings.get("augmentation", "none") == "none"
        for mirrored in (False, True):
            names = [f"{name}, mirrored".removeprefix(", ") if mirrored else name for name in PROTOTYPES]
            ways = [name for name in names if all(name in row for row in rows)]
            if ways:
                best = max(statistics.mean(row[way] for row in rows) for way in ways)
                found.append(Point(cost(settings), 100 * best, plain, mirrored))
    return sorted(found)


def main() -> None:
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs") / "frontier.png")
    options = parser.parse_args()
    across = math.ceil(math.sqrt(len(options.studies)))
    down = -(-len(options.studies) // across)
    figure = Figure(figsize=(4 * across, 3.2 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).flatten()
    for ax in places[len(options.studies) :]:
        ax.remove()
    for ax, path in zip(places, options.studies, strict=False):
        found = points(path)
        frontier: list[tuple[float, float]] = []
        for x, y, plain, mirrored in found:
            colour = "#8c959f" if plain else "#0b6fb8"
            inside = "white" if mirrored else colour
            ax.plot(
                x, y, "s" if plain else "o", color=colour, markerfacecolor=inside, alpha=0.8, markersize=5
            )
        for x in sorted({point.cost for point in found}):
            best = max(point.accuracy for point in found if point.cost == x)
            if not frontier or best > frontier[-1][1]:
                frontier.append((x, best))
                print(f"{path.stem}: {x:g} images per new one, {best:.2f} %")
        ax.plot(*zip(*frontier, strict=True), color="#0b6fb8", linewidth=1, zorder=0)
        ax.set_title(path.stem)
        ax.set_xlabel("images processed per new image")
        ax.set_ylabel("validation accuracy, %")
        ax.spines[["top", "right"]].set_visible(False)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=130)


if __name__ == "__main__":
    main()
