"""`everlearn reproduce real-streams`: our learners beside those of other libraries, on streams of records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlearn.experiments.options import SweepOptions

__all__ = ["NAME", "show_scoreboard"]

NAME = "real-streams"
FILE = "real-streams.jsonl"  # beside the store


def show_scoreboard(options: SweepOptions, dry_run: bool = False) -> int:
    """Run what is missing, print a line for each run as it ends, then the table; returns the exit code."""
    from rich.console import Console
    from rich.table import Table

    from everlearn.experiments.scoreboard import MODELS, SEEDS, read_scores, scoreboard, table
    from everlearn.streams.record_stream import RECORD_STREAMS

    path = Path(options.store).with_name(FILE)
    seeds = options.seeds or SEEDS
    if dry_run:
        runs = len(options.streams or RECORD_STREAMS) * len(options.learners or MODELS) * seeds
        print(f"{runs} runs, of which {path} has {len(read_scores(path))} runs of this or another selection")
        return 0
    scores = []
    for score in scoreboard(path, options.streams, options.learners, seeds, options.data_dir):
        scores.append(score)
        print(
            f"{score.model} on {score.stream}, seed {score.seed}: {100 * score.accuracy:.2f} %, "
            f"{score.records_per_second:,.0f} records/s",
            file=sys.stderr,
        )
    columns = ("stream", "model", "accuracy %", "kappa", "calibration error", "records/s", "records", "seeds")
    shown = Table(*columns, title=f"prequential, in {path}", title_justify="left")
    for row in table(scores):
        shown.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(shown)
    return 0
