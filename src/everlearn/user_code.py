"""Where in a user's own code an error was raised: a learner, network, stream or metric that a command imports."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path

__all__ = ["place_in_user_code"]

# Code that is not the user's: this package, installed packages, and Python itself.
_OTHERS = {
    Path(__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
}


def place_in_user_code(error: BaseException) -> str | None:
    """File, line and function of the innermost call in the user's code that led to an error; None if there is none.

    >>> try:
    ...     import_module("no_such_module")
    ... except NameError as error:
    ...     print(place_in_user_code(error))
    None
    """
    for call in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_users(call.filename):
            return f"{call.filename}, line {call.lineno}, in {call.name}"
    return None if error.__cause__ is None else place_in_user_code(error.__cause__)


def _is_users(file: str) -> bool:
    path = Path(file)
    typed = file.startswith("<")  # such as at a prompt
    if typed or path == Path(sys.argv[0]):  # the command itself
        return False
    return not any(path.is_relative_to(folder) for folder in _OTHERS)
