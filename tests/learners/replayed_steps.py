"""For oracles: a small network, and the batches of a learner together with the exemplars it replays."""

import copy

import torch
from torch import nn


def body(normed=False, inputs=3, features=5):
    """A small body of one's own."""
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(features) if normed else nn.Identity()
    return nn.Sequential(nn.Linear(inputs, features), middle, nn.Tanh())


def watched_batches(learner, batches, t=None):
    """Let a learner observe batches; yields for each the copies before it that an oracle needs.

    Yields x, slots, the list of what `draw_replay` gave (one per iteration), the memory's rows before the batch, and
    the network before it. An oracle steps the network and compares it after the next one is taken.
    """
    draws = []
    original = learner.draw_replay
    learner.draw_replay = lambda size: draws.append(original(size)) or draws[-1]
    for x, labels in batches:
        known = learner.memory.rows.clone(), copy.deepcopy(learner.network)
        draws.clear()
        learner.observe(x, labels, t)
        slots = torch.tensor([learner.classes.index(label) for label in labels])
        tensors = [[torch.from_numpy(part) for part in drawn] for drawn in draws]
        yield x, slots, tensors, *known


def some_batches(sizes=(4, 3, 5), labels=3, inputs=3, seed=1):
    """Batches of random samples with labels 0, 1, 2."""
    generator = torch.Generator().manual_seed(seed)
    for size in sizes:
        y = torch.randint(0, labels, (size,), generator=generator)
        yield torch.randn(size, inputs, generator=generator) + y[:, None], y.tolist()


def same_weights(ours, theirs):
    """Assert that two networks have the same weights and buffers, up to rounding."""
    for name, part in ours.state_dict().items():
        torch.testing.assert_close(part, theirs.state_dict()[name], msg=name, rtol=2e-4, atol=1e-5)
