"""Small learners and batches for tests of every learner."""

import pytest
import torch

from everlearn import split, stream
from everlearn.experiments.settings import learner as by_name
from everlearn.learners import registry
from everlearn.testing.samples import SMALL, batches, teach

NAMES = sorted(registry())
every_learner = pytest.mark.parametrize("name", NAMES)

FORGETFUL = [name for name, kind in registry().items() if kind.can_forget]

# Settings that make certain learners small, or fast in a few batches.
OWN = {
    "curl": {"latent": 4, "learning_rate": 0.01},
    "cn-dpm": {"short_term_memory": 12, "generative_steps": 40, "discriminative_steps": 40}
    | {"learning_rate": 0.01, "generative_learning_rate": 0.01, "latent": 4, "draws": 4},
    "gdumb": {"passes": 5},
    "ranpac": {"projection": 100},
    "mkd": {"teacher_rate": 0.2, "distillation": 1.0},
    # Unit-length features of a class around the origin point anywhere, until its biases are learnt.
    "scr": {"learning_rate": 3.0, "temperature": 0.5, "projection": 16},
}


# Settings that make those fast that otherwise need seconds, where how well they learn does not matter.
FAST = {
    "cn-dpm": {"short_term_memory": 60, "generative_steps": 10, "discriminative_steps": 10},
    "gdumb": {"passes": 2},
    "ranpac": {"projection": 100},
}


def make(name, network="mlp", encoder=None, **settings):
    """A small learner of this name."""
    fields = registry()[name].Settings.__dataclass_fields__
    small = {**SMALL, **OWN.get(name, {}), **settings}
    chosen = {key: value for key, value in small.items() if key in fields}
    return registry()[name](network, seed=settings.get("seed", 0), device="cpu", encoder=encoder, **chosen)


def on_digits(name, source, seed):
    """A small learner of this name with the settings of split-digits."""
    return by_name(name, stream=source, seed=seed, device="cpu", hidden=32, **FAST.get(name, {}))


def first_digits(seed=0, count=240):
    """Some of the digits, in three tasks and batches of eight."""
    digits = stream("split-digits", seed=seed)
    return split(digits.x[:count], digits.y[:count], tasks=3, batch_size=8, seed=seed)


def taught(name, **options):
    """A small learner of this name that has observed some batches."""
    learner = make(name)
    for i, (x, y) in enumerate(batches(**options)):
        teach(learner, x, y, i // 2)
    return learner


def same_state(left, right):
    """Assert that two states are equal."""
    assert left.keys() == right.keys()
    for key in left:
        if key == "meta":
            assert left[key] == right[key]
        else:
            assert left[key].dtype == right[key].dtype
            assert torch.equal(left[key], right[key]), key
    return True
