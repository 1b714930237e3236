"""Helpers for error messages: the nearest name, the differences of two values, lists and counts in words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

__all__ = ["counted", "differing", "either", "is_whole", "nearest"]


LONGEST = 300  # characters of all known names, beyond which the nearest one stands alone
NEAR = 0.55  # the similarity above which a name is suggested; that of 'foo' and 'colour' is 0.44


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, and all of them unless they are many.

    >>> "there is no learner 'cop'" + nearest("cop", ["cope", "gem"])
    "there is no learner 'cop'; did you mean 'cope'? (known: cope, gem)"
    """
    known = list(known)
    close = difflib.get_close_matches(str(name).lower(), known, 1, NEAR)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(known)
    return hint if close and len(listed) > LONGEST else f"{hint} (known: {listed})"


def either(words: Sequence[str]) -> str:
    """The choices, in a list that a person would write.

    >>> either(["refuse", "skip", "class"]), either(["full", "mixed"])
    ('refuse, skip or class', 'full or mixed')
    """
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def counted(number: int, noun: str) -> str:
    """How many there are.

    >>> counted(1, "sample"), counted(3, "label"), counted(0, "label")
    ('1 sample', '3 labels', '0 labels')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def differing(here: Any, there: Any) -> tuple[Any, Any]:
    """Two values for a message about their difference; of two dicts only the items that differ.

    >>> differing({"every": 5, "horizon": "seen"}, {"every": 6, "horizon": "seen"})
    ({'every': 5}, {'every': 6})
    """
    if not isinstance(here, dict) or not isinstance(there, dict):
        return here, there
    names = [name for name in here | there if here.get(name) != there.get(name)]
    return {name: here.get(name) for name in names}, {name: there.get(name) for name in names}


def is_whole(value: object, least: int | None = None) -> bool:
    """Whether a value is a whole number (int or numpy, not bool) and at least `least`.

    >>> is_whole(3, least=1), is_whole(0, least=1), is_whole(2.5), is_whole(True)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return least is None or int(value) >= least
