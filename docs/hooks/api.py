"""The API pages: one per room, made from the docstrings. A new learner's file is found by itself."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LEARNERS = Path(__file__).parents[2] / "src" / "everlearn" / "learners"

# Room: a sentence about it, and what is shown of it, in this order.
ROOMS = {
    "learners": (
        "The contract that all learners share, then one class per method with its settings.",
        [
            "experiments.settings.learner",
            "learners.load",
            "learners.registry",
            "core.learner.Learner",
            "core.settings.Settings",
            "core.settings.ReplaySettings",
            "core.delayed_labels.Told",
            "core.snapshot.Snapshot",
        ],
    ),
    "streams": (
        "S: what arrives. A stream by name, your own, recordings, the horizon and the paradigms.",
        [
            "streams.stream",
            "streams.names",
            "streams.base.Stream",
            "streams.base.Batch",
            "streams.user_stream.as_stream",
            "streams.recording",
            "streams.playback",
            "streams.horizon.Horizon",
            "streams.paradigms",
            "streams.datasets",
        ],
    ),
    "memory": (
        "M: what is kept. Replay memories, prototypes, the table of labels.",
        [
            "memory.base.ReplayMemory",
            "memory.class_balanced.BalancedMemory",
            "memory.reservoir.ReservoirMemory",
            "memory.ring.RingMemory",
            "memory.scored.ScoredMemory",
            "memory.herded",
            "memory.short_term",
            "memory.prototypes.Prototypes",
            "memory.labels.LabelTable",
        ],
    ),
    "losses": ("The PPP-loss.", ["losses.ppp.ppp_loss"]),
    "evaluation": (
        "The second agent: the evaluator, and the metrics as pure functions of a history.",
        [
            "evaluation.evaluator.Evaluator",
            "evaluation.history",
            "evaluation.metrics",
            "evaluation.prequential",
            "evaluation.representation",
        ],
    ),
    "engine": (
        "How a learner meets a stream.",
        ["engine.loop.run", "engine.result.Result", "engine.clock.Clock", "engine.preconditions.StreamError"],
    ),
    "experiments": (
        "Running jobs: settings per benchmark, runners, the store, statistics over seeds.",
        [
            "experiments.settings",
            "experiments.job.Job",
            "experiments.runner",
            "experiments.sweep",
            "experiments.store",
            "experiments.significance",
        ],
    ),
    "paper": (
        "The paper as data: its experiments and claims, the comparison with its numbers, the report.",
        ["paper.reproduce", "paper.experiment", "paper.tables", "paper.claims", "paper.report"],
    ),
    "adapters": ("In scikit-learn and in River.", ["adapters.sklearn", "adapters.river"]),
}

# The contract is shown whole, though it is written in parts.
OPTIONS = {"core.learner.Learner": "\n    options:\n      inherited_members: true"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each room."""
    for room, (sentence, shown) in ROOMS.items():
        names = shown + (_methods() if room == "learners" else [])
        blocks = "\n\n".join(f"::: everlearn.{name}{OPTIONS.get(name, '')}" for name in names)
        page = f"# {room.capitalize()}\n\n{sentence}\n\n{blocks}\n"
        files.append(File.generated(config, f"api/{room}.md", content=page))
    return files


def _methods() -> list[str]:
    """Every class in learners/ that has a name, each with its settings where it has its own."""
    found = []
    for path in sorted(LEARNERS.glob("*.py")):
        kinds = [part for part in ast.parse(path.read_text("utf-8")).body if isinstance(part, ast.ClassDef)]
        defined = {kind.name for kind in kinds}
        for kind in kinds:
            if any(
                isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "name" for part in kind.body
            ):
                own = {kind.name, f"{kind.name}Settings"} & defined
                found += [f"learners.{path.stem}.{name}" for name in sorted(own)]
    return found
