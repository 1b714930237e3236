"""Words for the person: which name was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["differing", "nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest one, and all of them.

    >>> "there is no learner 'cop'" + nearest("cop", ["cope", "gem"])
    "there is no learner 'cop'; did you mean 'cope'? (known: cope, gem)"
    """
    known = list(known)
    close = difflib.get_close_matches(str(name).lower(), known, 1, 0.4)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{hint} (known: {', '.join(known)})"


def differing(here: Any, there: Any) -> tuple[Any, Any]:
    """Two values, and of two dicts only what differs, for a sentence that says so.

    >>> differing({"every": 5, "horizon": "seen"}, {"every": 6, "horizon": "seen"})
    ({'every': 5}, {'every': 6})
    """
    if not isinstance(here, dict) or not isinstance(there, dict):
        return here, there
    names = [name for name in here | there if here.get(name) != there.get(name)]
    return {name: here.get(name) for name in names}, {name: there.get(name) for name in names}
