"""Streams whose tasks are sessions or periods of time: all classes in each, as they were recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from everlearn.streams.dataset_stream import Arrangement, Concept, DatasetStream, Segment
from everlearn.streams.own_data import hold_out
from everlearn.streams.sources import Labelled, Reading, as_size, read
from everlearn.streams.task_split import TaskSplit

__all__ = ["by_session"]


def by_session(
    name: str,
    train: tuple[Any, list[tuple[Any, Any]]],
    test: tuple[Any, list[tuple[Any, Any]]],
    *,
    seed: int = 0,
    batch_size: int = 10,
    validation: bool = False,
    size: Any = None,
    colour: bool | None = None,
    **options: Any,
) -> DatasetStream:
    """Session after session in the order of their numbers, each shuffled by the seed.

    train, test: samples, and a pair (session, label) for each. A test sample without a session belongs to one test
    set for the whole stream. Other options of a stream do not apply, since the order is the data's own.
    """
    usual = {"scenario": "split", "amount": None, "imbalance": None, "class_order": "sorted"}
    for option, value in options.items():
        if value != usual.get(option):
            raise ValueError(
                f"{name} comes in its own order of sessions; {option} does not apply, so leave it out"
            )
    how = Reading(as_size(size), colour=colour)
    learnt, held_out = read(*train, how), read(*test, how)
    if validation:
        learnt, held_out = hold_out(learnt, 0.1, "validation")
    names = sorted({label for _, label in learnt.y}, key=str)
    places = {label: place for place, label in enumerate(names)}
    sessions = sorted({session for session, _ in learnt.y})
    of_tests = sorted({session for session, _ in held_out.y if session is not None}) or [None]
    generator = torch.Generator().manual_seed(seed)
    sent = [_of(learnt, session) for session in sessions]
    sent = [part[torch.randperm(len(part), generator=generator)] for part in sent]
    tested = [_of(held_out, session) for session in of_tests]
    labels = [
        torch.tensor([places[label] for _, label in part.y], dtype=torch.int64) for part in (learnt, held_out)
    ]
    order = tuple(range(len(names)))
    source = TaskSplit(
        learnt.x, labels[0], held_out.x, labels[1], tuple(sent), tuple(tested), generator, order, tuple(names)
    )
    segments = tuple(Segment(part, t) for t, part in enumerate(sent))
    concepts = tuple(Concept(part) for part in tested)
    one_test = ((0, (0,)),) if len(tested) != len(sent) else ()
    return DatasetStream(
        name, "sessions", seed, batch_size, None, source, Arrangement(segments, concepts, one_test)
    )


def _of(data: Labelled, session: Any) -> torch.Tensor:
    return torch.from_numpy(np.flatnonzero([found == session for found, _ in data.y]))
