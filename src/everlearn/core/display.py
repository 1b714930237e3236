"""How a learner shows itself: one line for `repr`, a card for a notebook."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from everlearn.memory.labels import Label
from everlearn.notebook import card

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["OWN_NETWORK", "as_html", "as_text", "changed_settings", "exemplars", "network_name"]

OWN_NETWORK = "module:"  # before the class of a network that is the user's own

LABELS = 10  # how many labels a card lists
LONGEST = 40  # characters of a label or a setting


def network_name(learner: Learner) -> str:
    """The network's name, or the class of the user's module."""
    return learner.given if isinstance(learner.given, str) else OWN_NETWORK + type(learner.given).__qualname__


def exemplars(learner: Learner) -> dict[Label, int]:
    """The number of exemplars of each class in the replay memory."""
    return {} if learner.memory is None else learner.memory.counts()


def as_text(learner: Learner) -> str:
    """The class, the network and the settings that differ from the defaults, and what the learner has seen.

    >>> from everlearn import CoPE
    >>> as_text(CoPE("mlp", memory_size=50, seed=3))
    "CoPE('mlp', seed=3, memory_size=50): no classes yet"
    """
    encoder = [] if learner.encoder is None else [f"encoder={learner.encoder.name!r}"]
    arguments = [
        _network(learner),
        *encoder,
        *(f"{name}={value}" for name, value in changed_settings(learner).items()),
    ]
    return f"{type(learner).__name__}({', '.join(arguments)}): {_seen(learner)}"


def as_html(learner: Learner) -> str:
    """The same as a table, with labels, exemplars and memory, for `_repr_html_`."""
    facts: dict[str, object] = {"network": _network(learner).strip("'"), "device": learner.device}
    if learner.encoder is not None:
        facts["encoder"] = learner.encoder.name
    facts |= changed_settings(learner)
    facts["seen"] = _seen(learner)
    if learner.classes:
        shown = ", ".join(_short(label) for label in learner.classes[:LABELS])
        facts["labels"] = shown + (", …" if len(learner.classes) > LABELS else "")
    stored = sum(learner.exemplars().values())
    if stored:
        facts["exemplars"] = f"{stored:,}"
    facts["memory"] = f"{sum(learner.footprint().values()) / 1e6:.2f} MB"
    return card(type(learner).__name__, facts)


def changed_settings(learner: Learner) -> dict[str, str]:
    """The seed, if it is not 0, and the settings that differ from the defaults, as text."""
    changed = {} if learner.seed == 0 else {"seed": str(learner.seed)}
    for field in dataclasses.fields(learner.settings):
        value = getattr(learner.settings, field.name)
        if value != field.default:
            changed[field.name] = _short(value)
    return changed


def _network(learner: Learner) -> str:
    return repr(learner.given) if isinstance(learner.given, str) else f"{type(learner.given).__qualname__}()"


def _seen(learner: Learner) -> str:
    classes = len(learner.classes)
    if not classes:
        return "no classes yet"
    return f"{classes:,} class{'es' if classes > 1 else ''}, {learner.samples:,} samples"


def _short(value: Any) -> str:
    """A value as `repr` writes it, in one line of limited length; a function by its name."""
    text = getattr(value, "__name__", None) or repr(value)
    text = " ".join(str(text).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
