"""Streams by the name `module:function` or of an entry point: a function of the seed that returns a stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from everlearn.import_names import import_named, is_import_name
from everlearn.streams.base import Stream
from everlearn.streams.user_stream import as_stream

__all__ = ["DEFAULTS", "GROUP", "accepts", "find", "open_own"]

GROUP = "everlearn.streams"  # of entry points

# The options of a stream, which a function may have as parameters, and the values that need not be passed on.
DEFAULTS: dict[str, Any] = {
    "imbalance": None,
    "batch_size": 10,
    "scenario": "split",
    "amount": None,
    "validation": False,
    "class_order": "sorted",
    "data_dir": None,
}


def find(name: str) -> Callable[..., Any] | None:
    """The function that a user's own name stands for; None if it is no such name."""
    if is_import_name(name):
        return _checked(import_named(name, "stream"), name)
    found = entry_points(group=GROUP, name=name)
    return _checked(next(iter(found)).load(), name) if found else None


def _checked(make: Any, name: str) -> Callable[..., Any]:
    if not callable(make):
        raise ValueError(
            f"the stream {name!r} must be a function that returns a stream, not {type(make).__name__}"
        )
    return make  # type: ignore[no-any-return]


def open_own(make: Callable[..., Any], name: str, seed: int, options: Mapping[str, Any]) -> Stream:
    """The stream that a function returns for this seed.

    options: those of a stream, None where they are not given; each one that is not the default must be a parameter of
    the function. A parameter with a default of its own gets the option all the same, so that a run is what its record
    says.
    """
    given = {
        option: value
        for option, value in options.items()
        if value is not None and (value != DEFAULTS[option] or _has_other_default(make, option, value))
    }
    for option in given:
        if not accepts(make, option):
            raise ValueError(
                f"the stream {name!r} has no {option}: add the parameter {option} to its function, and pass it on to "
                "split or stream"
            )
    made = make(**({"seed": seed} if accepts(make, "seed") else {}), **given)
    if isinstance(made, type(None)):
        raise ValueError(f"the function of the stream {name!r} returns None; it must return a stream")
    return as_stream(made, name=name)


def _has_other_default(function: Callable[..., Any], parameter: str, value: Any) -> bool:
    """Whether a function has a parameter of this name that would not be this value if it were left out."""
    try:
        by_name = inspect.signature(function).parameters.get(parameter)
    except (TypeError, ValueError):
        return False
    return by_name is not None and accepts(function, parameter) and by_name.default != value


def accepts(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a function can be called with this keyword.

    >>> accepts(lambda seed: seed, "seed"), accepts(lambda **options: options, "seed"), accepts(len, "seed")
    (True, True, False)
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    by_name = parameters.get(parameter)
    keywords = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    anything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return anything or (by_name is not None and by_name.kind in keywords)
