"""A store and an experiment whose every name is an attempt to run a script, or to write somewhere else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from runs_made_up import run, stored

from everlearn.experiments.job import Job
from everlearn.experiments.record import Record

SCRIPT = "<script>hacked=1</script>"
COMMENT = "<!--<script>"
IMAGE = '"><img src=x onerror=hacked=1>'
OUTSIDE = "../../outside"
FORMULA = r"$\frac{$"

EXPERIMENT = """
title = '''</title><script>hacked=1</script>'''
source = '''Table 1 "><img src=x onerror=hacked=1>'''
notes = ['''<script>hacked=1</script>''']
place = 1
seeds = 2

[[panels]]
title = '''<!--<script> panel'''
figure = "table"
source = '''"><img src=x onerror=hacked=1>'''
all = { stream = "split-mnist" }

[panels.rows]
'<!--<script>' = { learner = "cope" }
'"><img src=x onerror=hacked=1>' = { learner = "mir" }

[panels.columns]
'</script><script>hacked=1</script>' = {}

[panels.published]
'<!--<script>' = { '</script><script>hacked=1</script>' = [93.0, 1.0] }
"""


def records() -> list[Record]:
    """Runs with hostile names of learners and streams, settings, machines and errors."""
    made = []
    for number, (learner, stream) in enumerate(
        [(SCRIPT, IMAGE), (COMMENT, OUTSIDE), (IMAGE, COMMENT), (FORMULA, SCRIPT), (OUTSIDE, FORMULA)]
    ):
        for seed in range(2):
            record = run(Job("cope", "split-mnist", seed), 60.0 + number)
            job: dict[str, Any] = record.job | {
                "learner": learner,
                "stream": stream,
                "settings": {},
            }
            extra = {"version": SCRIPT, "hardware": IMAGE, "settings": {COMMENT: IMAGE, SCRIPT: COMMENT}}
            footprint = {COMMENT: 1_000_000, IMAGE: 500_000}
            result = record.result | {"footprint": footprint}
            made.append(
                dataclasses.replace(
                    record, key=f"{IMAGE}{COMMENT}{number}-{seed}", job=job, result=result, **extra
                )
            )
    failed = dataclasses.replace(made[0], key=SCRIPT, error=f"ValueError: {IMAGE}{COMMENT}", result=None)
    return [*made, failed]


def store(folder: Path) -> Path:
    """A store of these runs, and of two that belong to the experiment."""
    valid = [run(Job(name, "split-mnist", seed), 90.0) for name in ("cope", "mir") for seed in range(2)]
    return stored(folder / "store.sqlite", [*records(), *valid])


def experiment_file(folder: Path) -> Path:
    """A user's experiment, in a file with a hostile name."""
    path = folder / '"><img src=x onerror=hacked=1>.toml'
    path.write_text(EXPERIMENT, "utf-8")
    return path
