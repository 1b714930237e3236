"""The version of code that is not everlearn's own: a learner, a network, a stream or a metric of the user's."""

from __future__ import annotations

import functools
import hashlib
import inspect
from importlib.metadata import packages_distributions, version
from typing import Any

__all__ = ["code_version"]


def code_version(thing: Any) -> str:
    """The name of a class or function, and its version.

    That is its attribute `version`, if it is a text; else the version of the installed package it comes from; else
    a hash of its source, without what it uses from elsewhere.

    >>> import json
    >>> def mine(): return 1
    >>> mine.version = "3"
    >>> code_version(mine).split(".")[-1]
    'mine 3'
    """
    if isinstance(thing, functools.partial):
        arguments = _digest(repr((thing.args, sorted(thing.keywords.items()))))
        return f"{code_version(thing.func)} with {arguments}"
    name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    own = vars(thing).get("version") if hasattr(thing, "__dict__") else None
    if isinstance(own, str):
        return f"{name} {own}"
    package = str(getattr(thing, "__module__", None) or "").partition(".")[0]
    found = _distributions().get(package)
    if found:
        return f"{name} {version(found[0])}"
    try:
        return f"{name} {_source_digest(thing)}"
    except TypeError:  # not hashable
        return f"{name} {_digest(_source(thing))}"


@functools.cache
def _distributions() -> Any:
    return packages_distributions()


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed at a prompt, or an object with a __call__
        code = getattr(thing, "__code__", None)
        return repr(thing) if code is None else repr((code.co_code, code.co_consts, code.co_names))


@functools.cache
def _source_digest(thing: Any) -> str:
    return _digest(_source(thing))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
