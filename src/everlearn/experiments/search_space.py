"""The settings that a search may try: ranges and options."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

from everlearn import learners
from everlearn.messages import nearest

__all__ = ["Choice", "default_space", "parse_space"]

# What is searched unless the user says otherwise, of the settings that the learner has.
USUAL: dict[str, str] = {
    "learning_rate": "0.001:0.5",
    "temperature": "0.02:1",
    "momentum": "0.5:0.999",
    "distillation": "0.01:3",
}


class Choice(NamedTuple):
    """What a setting may be: one of the options, or a number between low and high, by its logarithm if `log`."""

    options: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False


def parse_space(learner: str, words: Sequence[str]) -> dict[str, Choice]:
    """The space of `name=low:high` and `name=a,b,c`; a ValueError for an unknown setting or a range that is none.

    A range is searched evenly in its logarithm if its end is at least ten times its start.

    >>> parse_space("cope", ["learning_rate=0.001:0.1", "iterations=1:5", "renormalise=true,false"])["iterations"]
    Choice(options=(), low=1.0, high=5.0, log=False, whole=True)
    """
    settings = learners.find(learner).Settings
    hints = get_type_hints(settings)
    known = [field.name for field in dataclasses.fields(settings)]
    space = {}
    for word in words:
        name, _, values = word.partition("=")
        if name not in known:
            raise ValueError(f"{learner} has no setting {name!r}{nearest(name, known)}")
        space[name] = _choice(word, values, get_args(hints[name]) or (hints[name],))
    return space


def _choice(word: str, values: str, types: tuple[Any, ...]) -> Choice:
    low, colon, high = values.partition(":")
    try:
        if colon:
            start, end = float(low), float(high)
            if not start < end:
                raise ValueError
            return Choice((), start, end, log=start > 0 and end >= 10 * start, whole=int in types)
        options = tuple(_value(option, types) for option in values.split(","))
        if not values:
            raise ValueError
        return Choice(options)
    except ValueError:
        raise ValueError(
            f"a search is name=low:high, with low below high, or name=a,b,c; not {word!r}"
        ) from None


def _value(text: str, types: tuple[Any, ...]) -> Any:
    if text in ("none", "None") and type(None) in types:
        return None
    if bool in types:
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _fail()
    return int(text) if int in types else float(text) if float in types else text


def _fail() -> Any:
    raise ValueError


def default_space(learner: str) -> dict[str, Choice]:
    """What is searched for a learner unless the user says otherwise.

    >>> list(default_space("reservoir")), list(default_space("cope"))
    (['learning_rate'], ['learning_rate', 'temperature', 'momentum'])
    """
    known = [field.name for field in dataclasses.fields(learners.find(learner).Settings)]
    return parse_space(learner, [f"{name}={values}" for name, values in USUAL.items() if name in known])
