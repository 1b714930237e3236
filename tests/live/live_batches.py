"""Learners and batches for the tests of live learners."""

import torch
from small_learners import make

from everlearn.live.model import record_in, with_record

KINDS = ("a", "b", "c")


def batch(number, size=4, features=6):
    """A batch of Gaussian samples around one centre per label, always the same for a number."""
    generator = torch.Generator().manual_seed(number)
    kinds = torch.randint(len(KINDS), (size,), generator=generator)
    x = torch.randn(size, features, generator=generator) + 3.0 * kinds[:, None]
    return x, [KINDS[kind] for kind in kinds]


def ids(number, size=4):
    """The ids of a batch."""
    return [f"sample-{number}-{i}" for i in range(size)]


def cope(**settings):
    """A small CoPE."""
    return make("cope", **settings)


def teach(live, numbers, with_ids=True):
    """Observe batches by number."""
    for number in numbers:
        live.observe(*batch(number), ids(number) if with_ids else None)


def copy_as_killed(live, target):
    """A copy of the folder as a kill would leave it, without the snapshot that `close` writes."""
    live.backup(target)
    return target


def in_format_1(state):
    """A snapshot as the first version wrote it: every request with its kind and its result."""
    record = record_in(state)
    requests = [[each, "observe", None] if isinstance(each, str) else each for each in record["requests"]]
    return with_record(state, record | {"requests": requests})
