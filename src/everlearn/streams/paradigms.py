"""The paradigms of the paper's Table 1: what the learner and the evaluator get, and the horizon."""

from __future__ import annotations

import dataclasses

from everlearn.messages import nearest
from everlearn.streams.horizon import Horizon

__all__ = ["PARADIGMS", "Paradigm", "paradigm", "table"]


@dataclasses.dataclass(frozen=True)
class Paradigm:
    """One row of the table.

    learner_gets_t, evaluator_gets_t: whether samples are (x, y, t) or (x, y).
    horizon: the default horizon. horizon_text: which horizons the paradigm allows, for the table.
    iid: whether the stream must be iid.
    """

    name: str
    learner_gets_t: bool
    evaluator_gets_t: bool
    horizon: Horizon
    horizon_text: str
    iid: bool = False


PARADIGMS = {
    row.name: row
    for row in (
        Paradigm("online", False, False, Horizon("batch"), "batch (D = B)", iid=True),
        Paradigm("task-incremental", True, True, Horizon("task"), "task (D_t)"),
        Paradigm("class-incremental", True, False, Horizon("task"), "class subset (D_t)"),
        Paradigm("domain-incremental", True, False, Horizon("task"), "domain (D_t)"),
        Paradigm("data-incremental", False, False, Horizon("batch"), "any subset (B ≤ D < S)"),
    )
}


def paradigm(name: str) -> Paradigm:
    """The paradigm of this name."""
    if name not in PARADIGMS:
        raise ValueError(f"there is no paradigm {name!r}{nearest(name, PARADIGMS)}")
    return PARADIGMS[name]


def table() -> str:
    """The paper's Table 1, in Markdown.

    >>> print(table().splitlines()[2])
    | online | (x, y) | (x, y) | batch (D = B) | yes |
    """
    lines = ["| paradigm | evaluator's sample | learner's sample | horizon | iid |", "|---|---|---|---|---|"]
    sample = {True: "(x, y, t)", False: "(x, y)"}
    for row in PARADIGMS.values():
        samples = sample[row.evaluator_gets_t], sample[row.learner_gets_t]
        lines.append(
            f"| {row.name} | {' | '.join(samples)} | {row.horizon_text} | {'yes' if row.iid else 'no'} |"
        )
    return "\n".join(lines) + "\n"
