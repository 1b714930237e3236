"""Words for the person: which name was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest one, and all of them.

    >>> "there is no learner 'cop'" + nearest("cop", ["cope", "gem"])
    "there is no learner 'cop'; did you mean 'cope'? (known: cope, gem)"
    """
    known = list(known)
    close = difflib.get_close_matches(str(name).lower(), known, 1, 0.4)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{hint} (known: {', '.join(known)})"
