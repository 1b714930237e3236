"""How the settings of `cope+` were chosen: CoPE with every combination of a grid, on a validation part of the stream.

    python benchmarks/beyond.py STREAM [--imbalance 1 3 5] [--seeds 2] [--set iterations=3,5 learning_rate=0.01 ...]
        [--learners cope] [--test] [--out FILE]

Learners begin from the settings that they have on the stream.
A tenth of the training samples is held out to choose by; `--test` measures on the test set what was chosen. Each
run is judged by its evolving prototypes and by those taken from the memory, and with mirror images and without. Runs
of equal shape share a GPU as one cohort; without a GPU each has a process of its own. A line of JSON per run goes to
FILE, the means to the terminal.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from everlearn.core.learner import Learner
from everlearn.engine.cohort import Cohort, shape_of
from everlearn.engine.loop import Run
from everlearn.experiments.runner import Job, open_run
from everlearn.experiments.settings import benchmark_settings

Row = dict[str, Any]


def value(word: str) -> Any:
    """A setting as it was typed: a number, none, true or false, or a name."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def grid(words: list[str]) -> list[dict[str, Any]]:
    """All combinations of `name=value,value,...`."""
    names = [word.split("=")[0] for word in words]
    choices = [[value(part) for part in word.split("=")[1].split(",")] for word in words]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*choices)]


def judged(run: Run, job: Job) -> Row:
    """The accuracy of a run at its end, the mean over the tasks: in every way to predict that its learner has."""
    row: Row = {"learner": job.learner, "stream": job.stream, "imbalance": job.imbalance, "seed": job.seed}
    row |= {"settings": job.settings, "seconds": run.result().seconds}
    for name, setting in ways(run.learner).items():
        run.learner.settings = dataclasses.replace(run.learner.settings, **setting)
        hits = [
            sum(a == b for a, b in zip(run.learner.predict(x), y.tolist(), strict=True)) / len(y)
            for x, y in run.stream.tests
        ]
        row[name] = statistics.mean(hits)
    return row


def ways(learner: Learner) -> dict[str, dict[str, bool]]:
    """The settings that only tell how to predict, by the names they have in a row."""
    prototypes: dict[str, dict[str, bool]] = {"": {}}
    if hasattr(learner.settings, "recalibrate"):
        prototypes = {"evolving": {"recalibrate": False}, "from memory": {"recalibrate": True}}
    if (
        not hasattr(learner.settings, "mirrored") or len(learner.sample_shape or ()) < 3
    ):  # digits, or no images
        return prototypes
    return {
        f"{name}, mirrored".removeprefix(", ") if mirrored else name: setting | {"mirrored": mirrored}
        for mirrored in (False, True)
        for name, setting in prototypes.items()
    }


def alone(job: Job) -> Row:
    torch.set_num_threads(1)
    run = open_run(job)
    run.finish()
    return judged(run, job)


def together(jobs: list[Job]) -> Iterator[Row]:
    """Those of equal shape as one cohort."""
    runs = [(open_run(job), job) for job in jobs]
    for shape in dict.fromkeys(shape_of(run) for run, _ in runs):
        members = [(run, job) for run, job in runs if shape_of(run) == shape]
        Cohort([run for run, _ in members]).finish()
        yield from (judged(run, job) for run, job in members)


def executed(jobs: list[Job]) -> Iterator[Row]:
    if torch.cuda.is_available() and all(job.device != "cpu" for job in jobs):
        yield from together(jobs)
    else:
        from joblib import Parallel, delayed

        workers = Parallel(n_jobs=len(os.sched_getaffinity(0)), return_as="generator_unordered")
        yield from workers(delayed(alone)(job) for job in jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream")
    parser.add_argument("--imbalance", type=int, nargs="*", default=[None])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--learners", nargs="*", default=["cope"])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE,...")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    jobs = [
        Job(
            learner,
            options.stream,
            seed,
            imbalance=imbalance,
            device=options.device,
            settings=benchmark_settings(learner, options.stream, imbalance is not None) | settings,
            validation=not options.test,
        )
        for learner in options.learners
        for settings in grid(options.set)
        for imbalance in options.imbalance
        for seed in range(options.seeds)
    ]
    rows: dict[str, list[Row]] = {}
    for row in executed(jobs):
        key = f"{row['learner']} {json.dumps(row['settings'])}"
        rows.setdefault(key, []).append(row)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if len(rows[key]) == options.seeds * len(options.imbalance):
            judgements = [way for way in row if isinstance(row[way], float) and way != "seconds"]
            means = [f"{way} {100 * statistics.mean(r[way] for r in rows[key]):.2f}" for way in judgements]
            print(f"{options.stream} {key}: {', '.join(means)}; {row['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
