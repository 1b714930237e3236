"""What `Live.status` returns."""

from __future__ import annotations

import time
from typing import Any

from everlearn.label_json import Label
from everlearn.live.model import Model
from everlearn.live.storage import Storage
from everlearn.live.writer import Writer

__all__ = ["status_of"]


def status_of(
    model: Model, storage: Storage, writer: Writer, classes: list[Label], exemplars: dict[Label, int]
) -> dict[str, Any]:
    """What a live learner holds and how well it does.

    classes, exemplars: of the learner or of a copy of it, since they can't be read while it changes.
    """
    learner, statistics = model.learner, model.statistics
    with model.lock:
        figures = {
            "learnt": dict(statistics.observed),
            "asked": statistics.asked,
            "told": statistics.told,
            "never_told": statistics.never_told(),
            "accuracy": statistics.accuracy(),
            "delay": statistics.delay(),
            "refused": statistics.refused,
            "alarms": statistics.alarms,
            "detector_error": statistics.detector_error,
            "sources": dict(model.sources),
        }
    return {
        "folder": str(storage.folder.path),
        "position": model.position,
        "learner": learner.name,
        "network": learner.network_name,
        "batches": learner.batches,
        "samples": learner.samples,
        "classes": classes,
        "exemplars": exemplars,
        "waiting": len(learner.waiting),
        **figures,
        "queue": writer.waiting(),
        "snapshot": {
            "position": storage.position,
            "age": max(time.time() - storage.time, 0.0),
            "error": storage.error,
        },
        "journal_bytes": storage.journal.nbytes(),
        "seconds": {"step": writer.step_seconds, "commit": writer.commit_seconds},
    }
