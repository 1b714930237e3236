"""A durable learner in a folder: every change is on disk before the call returns."""

from __future__ import annotations

from everlearn.live.folder import backup
from everlearn.live.journal import Journal, LiveError, Refused
from everlearn.live.live import Live
from everlearn.live.opening import holds_learner, open_live
from everlearn.live.published import LiveSnapshot
from everlearn.live.results import Corrected, Deleted, LiveTold
from everlearn.live.writer import Busy

__all__ = [
    "Busy",
    "Corrected",
    "Deleted",
    "Journal",
    "Live",
    "LiveError",
    "LiveSnapshot",
    "LiveTold",
    "Refused",
    "backup",
    "holds_learner",
    "open_live",
]
