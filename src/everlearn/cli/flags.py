"""Flags, and what was wrong with them in one sentence."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any

__all__ = ["in_one_sentence"]

# Colours, frames and rules, where the terminal has them; elsewhere rules are hyphens.
DRAWN = re.compile(r"\x1b\[[0-9;]*m|[╭╮╰╯│─]")


def in_one_sentence(parse: Callable[[], Any]) -> Any:
    """What a parser gives; what it refuses is a ValueError, in place of a box on the terminal and an exit."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return parse()
    except SystemExit as end:
        if not end.code:  # help was asked for
            raise
        raise ValueError(_sentence(said.getvalue())) from None


def _sentence(box: str) -> str:
    """The words in a box of several parts, of which the first says what is wrong and the last where help is.

    >>> _sentence("╭─ Error ─╮\\n│ Wrong: 3  │\\n│ ───────── │\\n│ See help  │\\n╰───────────╯")
    'Wrong: 3. See help'
    >>> _sentence(" Error \\n --------- \\n Wrong: 3 \\n --------- \\n See help \\n ")
    'Wrong: 3. See help'
    """
    _, *lines = [DRAWN.sub("", line).strip() for line in box.strip().splitlines()]
    parts = [" ".join(part.split()) for part in re.split(r"^-*$", "\n".join(lines), flags=re.MULTILINE)]
    told = [part.rstrip(".") for part in parts if part and not part.startswith("Argument helptext")]
    return ". ".join(told)
