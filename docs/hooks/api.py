"""Generates the API pages from the docstrings, one per package. New learners are found automatically."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LEARNERS = Path(__file__).parents[2] / "src" / "everlearn" / "learners"

# Package: a sentence about it, and the members to show, in this order.
PACKAGES = {
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
        "S: the data. Streams by name, your own, recordings, the horizon and the paradigms.",
        [
            "streams.stream",
            "streams.names",
            "streams.base.Stream",
            "streams.base.Batch",
            "streams.own_data.split",
            "streams.user_stream.as_stream",
            "streams.recording",
            "streams.playback",
            "streams.horizon.Horizon",
            "streams.paradigms",
            "streams.datasets",
        ],
    ),
    "memory": (
        "M: the memory. Replay memories, prototypes, the table of labels.",
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
        "Running a learner on a stream.",
        [
            "engine.loop.run",
            "engine.result.Result",
            "engine.clock.Clock",
            "engine.tracking.Tracker",
            "engine.tracking.RunStart",
            "engine.tracking.BatchReport",
            "engine.trackers",
            "engine.preconditions.StreamError",
        ],
    ),
    "testing": (
        "Checks of what every learner promises, for one of your own.",
        ["testing.check_learner", "testing.Subject", "testing.checks"],
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
        [
            "paper.own_experiment",
            "paper.experiment_result",
            "paper.reproduce",
            "paper.experiment",
            "paper.tables",
            "paper.claims",
            "paper.report",
        ],
    ),
    "live": (
        "A durable learner in a folder: every change is on disk before the call returns.",
        [
            "live.opening.open_live",
            "live.live.Live",
            "live.published.LiveSnapshot",
            "live.results",
            "live.folder.backup",
            "live.journal",
        ],
    ),
    "service": (
        "A durable learner over HTTP: the client, and what a service is made of.",
        [
            "service.client.Client",
            "service.client.AsyncClient",
            "service.operations.ServiceError",
            "service.run.serve",
            "service.app.create_app",
            "service.limits.Limits",
            "service.tokens.Tokens",
        ],
    ),
    "plots": ("Pictures of runs: accuracy, memory, confusion, embeddings, calibration.", ["plots"]),
    "encoders": (
        "Pretrained encoders: frozen models that turn a sample into a vector.",
        ["encoders.base.Encoder", "encoders.base.Features", "encoders.catalogue.as_encoder"],
    ),
    "adapters": ("Learners as estimators of scikit-learn and River.", ["adapters.sklearn", "adapters.river"]),
}

# The contract, with members that are defined in base classes.
INHERITED = "\n    options:\n      inherited_members: true"
OPTIONS = dict.fromkeys(
    ("core.learner.Learner", "service.client.Client", "service.client.AsyncClient"), INHERITED
)


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each package."""
    for package, (sentence, shown) in PACKAGES.items():
        names = shown + (_methods() if package == "learners" else [])
        blocks = "\n\n".join(f"::: everlearn.{name}{OPTIONS.get(name, '')}" for name in names)
        page = f"# {package.capitalize()}\n\n{sentence}\n\n{blocks}\n"
        files.append(File.generated(config, f"api/{package}.md", content=page))
    return files


def _methods() -> list[str]:
    """All classes in learners/ that have a name, each with its own settings, if any."""
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
