"""everlearn: a classifier that never stops learning.

>>> from everlearn import CoPE
>>> learner = CoPE("mlp", memory_size=2000, seed=0)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from everlearn.core.learner import Learner as Learner
    from everlearn.engine.clock import Clock as Clock
    from everlearn.engine.loop import Result as Result
    from everlearn.engine.loop import run as run
    from everlearn.engine.tracking import Tracker as Tracker
    from everlearn.evaluation.evaluator import Evaluator as Evaluator
    from everlearn.experiments.settings import learner as learner
    from everlearn.label_json import UNKNOWN as UNKNOWN
    from everlearn.learners import load as load
    from everlearn.learners.cope import CoPE as CoPE
    from everlearn.learners.cope_plus import CoPEPlus as CoPEPlus
    from everlearn.learners.finetune import Finetune as Finetune
    from everlearn.live.opening import open_live as open_live
    from everlearn.paper.own_experiment import experiment as experiment
    from everlearn.service.client import AsyncClient as AsyncClient
    from everlearn.service.client import Client as Client
    from everlearn.streams import as_stream as as_stream
    from everlearn.streams import split as split
    from everlearn.streams import stream as stream
    from everlearn.streams.horizon import Horizon as Horizon
    from everlearn.streams.playback import playback as playback
    from everlearn.streams.recording import record as record
    from everlearn.streams.recording import replay as replay

# The public names, and the modules that define them; each is imported on first use.
_HOMES = {
    "AsyncClient": "everlearn.service.client",
    "Client": "everlearn.service.client",
    "Clock": "everlearn.engine.clock",
    "CoPE": "everlearn.learners.cope",
    "CoPEPlus": "everlearn.learners.cope_plus",
    "Evaluator": "everlearn.evaluation.evaluator",
    "Finetune": "everlearn.learners.finetune",
    "Horizon": "everlearn.streams.horizon",
    "Learner": "everlearn.core.learner",
    "Result": "everlearn.engine.result",
    "Tracker": "everlearn.engine.tracking",
    "UNKNOWN": "everlearn.label_json",
    "as_stream": "everlearn.streams",
    "experiment": "everlearn.paper.own_experiment",
    "learner": "everlearn.experiments.settings",
    "load": "everlearn.learners",
    "open_live": "everlearn.live.opening",
    "playback": "everlearn.streams.playback",
    "record": "everlearn.streams.recording",
    "replay": "everlearn.streams.recording",  # deprecated: `playback`
    "run": "everlearn.engine.loop",
    "split": "everlearn.streams",
    "stream": "everlearn.streams",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'everlearn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
