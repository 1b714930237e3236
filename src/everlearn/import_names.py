"""What a user names as `module:attribute`: import it, also from the working directory."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

__all__ = ["import_named", "is_import_name"]


def is_import_name(name: str) -> bool:
    """Whether a name has the form `module:attribute`.

    >>> is_import_name("my_file:Mine"), is_import_name("cope"), is_import_name("C:\\\\data")
    (True, False, False)
    """
    module, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def import_named(name: str, what: str) -> Any:
    """The object that `module:attribute` names; a ValueError says why there is none.

    what: what it should be, for the message.

    >>> import_named("math:tau", "number")
    6.283185307179586
    """
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"there is no {what} {name!r}: {error}") from None
    finally:
        if added:
            sys.path.remove(here)
