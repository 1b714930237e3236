"""Accuracy over cost for every setting that was tried for `cope+`, from the runs that `benchmarks/beyond.py` wrote.

    python benchmarks/frontier.py docs/studies/split-mnist.jsonl docs/studies/split-cifar10.jsonl --out FILE

Cost is how many images pass the network for each new one: iterations · (|B_n| + replayed) / |B_n|.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

BATCH = 10
WAYS = {"", "evolving", "from memory", "mirrored", "evolving, mirrored", "from memory, mirrored"}


def cost(settings: dict[str, Any]) -> float:
    """Images processed per new image."""
    return settings.get("iterations", 1) * (BATCH + (settings.get("replayed") or BATCH)) / BATCH


def points(path: Path) -> list[tuple[float, float, dict[str, Any]]]:
    """Cost, validation accuracy in percent (mean over seeds, the best way to predict) and settings of each."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        runs.setdefault(json.dumps([row["learner"], row["settings"]], sort_keys=True), []).append(row)
    found = []
    for rows in runs.values():
        ways = set.intersection(*(set(row) for row in rows)) & WAYS
        best = max(statistics.mean(row[way] for row in rows) for way in ways)
        found.append((cost(rows[0]["settings"]), 100 * best, rows[0]["settings"]))
    return sorted(found, key=lambda point: point[:2])


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
        for x, y, settings in found:
            plain = settings.get("augmentation", "none") == "none"
            ax.plot(
                x, y, "s" if plain else "o", color="#8c959f" if plain else "#0b6fb8", alpha=0.8, markersize=5
            )
        for x in sorted({x for x, _, _ in found}):
            best = max(y for cost, y, _ in found if cost == x)
            if not frontier or best > frontier[-1][1]:
                frontier.append((x, best))
                print(f"{path.stem}: {x:g} images per new one, {best:.2f} %")
        ax.plot(*zip(*frontier, strict=True), color="#0b6fb8", linewidth=1)
        ax.set_title(path.stem)
        ax.set_xlabel("images processed per new image")
        ax.set_ylabel("validation accuracy, %")
        ax.spines[["top", "right"]].set_visible(False)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=130)


if __name__ == "__main__":
    main()
