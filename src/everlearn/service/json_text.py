"""JSON from others: a name appears once, and long lists are read in pieces, so that other threads have their turn."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

__all__ = ["read_json", "unique"]

BLANK = re.compile(r"[ \t\n\r]*")
NESTED = re.compile(r"\[[ \t\n\r]*[\[{]")  # the start of a list of lists or objects


def read_json(content: str | bytes) -> Any:
    """The value in a text; raises a ValueError or RecursionError for anything that is not JSON.

    The decoder of json holds the interpreter until it is done, for seconds if the text is long. Here it reads one
    entry of a list at a time, or one entry of that.

    >>> read_json('{"x": [[1, 2], [3, 4]], "y": ["a", "b"]}')
    {'x': [[1, 2], [3, 4]], 'y': ['a', 'b']}
    >>> read_json('{"y": ["a"], "y": ["b"]}')
    Traceback (most recent call last):
    ValueError: the name 'y' appears twice
    """
    if isinstance(content, bytes):
        content = content.decode(json.detect_encoding(content), "surrogatepass")
    start = _skip(content, 0)
    value, end = (_object if content.startswith("{", start) else DECODER.raw_decode)(content, start)
    if _skip(content, end) < len(content):
        raise json.JSONDecodeError("Extra data", content, end)
    return value


def _object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The object that starts here, and where it ends; its lists are read entry by entry."""
    pairs: list[tuple[str, Any]] = []
    at = _skip(text, start + 1)
    if text.startswith("}", at):
        return {}, at + 1
    while True:
        if not text.startswith('"', at):
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        name, at = DECODER.raw_decode(text, at)
        at = _after(":", text, at)
        value, at = (_list if text.startswith("[", at) else DECODER.raw_decode)(text, at)
        pairs.append((name, value))
        at = _skip(text, at)
        if text.startswith("}", at):
            return unique(pairs), at + 1
        at = _after(",", text, at)


def _list(text: str, start: int, in_list: bool = False) -> tuple[list[Any], int]:
    """The list that starts here, and where it ends. in_list: whether it is the entry of another one."""
    values: list[Any] = []
    at = _skip(text, start + 1)
    if text.startswith("]", at):
        return values, at + 1
    while True:
        if not in_list and NESTED.match(text, at):
            value, at = _list(text, at, in_list=True)
        else:
            value, at = DECODER.raw_decode(text, at)
        values.append(value)
        at = _skip(text, at)
        if text.startswith("]", at):
            return values, at + 1
        at = _after(",", text, at)


def _skip(text: str, start: int) -> int:
    """Where the next character is that is not blank."""
    found = BLANK.match(text, start)
    return start if found is None else found.end()


def _after(delimiter: str, text: str, start: int) -> int:
    """Where the value after a delimiter starts."""
    at = _skip(text, start)
    if not text.startswith(delimiter, at):
        raise json.JSONDecodeError(f"Expecting {delimiter!r} delimiter", text, at)
    return _skip(text, at + 1)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; raises a ValueError if a name appears twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {twice[:60]!r} appears twice")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")


DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=_no_constant)
