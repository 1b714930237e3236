"""Command-line flags: a mistake becomes one sentence."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any

__all__ = ["in_one_sentence"]

# Colours, frames and rules; without a terminal, rules are hyphens.
DRAWN = re.compile(r"\x1b\[[0-9;]*m|[╭╮╰╯│─]")


def in_one_sentence(parse: Callable[[], Any]) -> Any:
    """The result of a parser; an error of its is a ValueError instead of a box on the terminal and an exit."""
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            return parse()
    except SystemExit as end:
        if not end.code:  # --help
            raise
        raise ValueError(_sentence(printed.getvalue())) from None


def _sentence(box: str) -> str:
    """The text in a box of several parts: the first says what is wrong, the last where to find help.

    >>> _sentence("╭─ Error ─╮\\n│ Wrong: 3  │\\n│ ───────── │\\n│ See help  │\\n╰───────────╯")
    'Wrong: 3. See help'
    >>> _sentence(" Error \\n --------- \\n Wrong: 3 \\n --------- \\n See help \\n ")
    'Wrong: 3. See help'
    """
    _, *lines = [DRAWN.sub("", line).strip() for line in box.strip().splitlines()]
    parts = [" ".join(part.split()) for part in re.split(r"^-*$", "\n".join(lines), flags=re.MULTILINE)]
    sentences = [part.rstrip(".") for part in parts if part and not part.startswith("Argument helptext")]
    return ". ".join(sentences)
