"""Command-line flags: a mistake becomes one sentence."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from types import NoneType
from typing import Any

from everlearn.core.settings import Settings, settings_types

__all__ = ["as_switches", "in_one_sentence"]

# Colours, frames and rules; without a terminal, rules are hyphens.
DRAWN = re.compile(r"\x1b\[[0-9;]*m|[╭╮╰╯│─]")


HELP = r"(?:\. For full helptext, (?:run|see):? (.*))?"
# What the parser says, and how everlearn says it.
WORDS = (
    (
        rf"Unrecognized options: (--[^ ,]+).*? Perhaps you meant: (--[^ ,]+).*?{HELP}",
        r"there is no option \1; did you mean \2?",
    ),
    (rf"Unrecognized options: ([^ ,]+?)(?:, .*?)?{HELP}", r"there is no option \1: `\2` lists all"),
    (
        rf"Error parsing (--\S+): invalid literal for int\(\) with base 10: (.*?){HELP}",
        r"\1 takes a whole number, not \2",
    ),
    (rf"Error parsing (--\S+): could not convert string to float: (.*?){HELP}", r"\1 takes a number, not \2"),
    (rf"Error parsing \S+: (.*?){HELP}", r"\1"),
    (r"Missing value for argument '([^']+)'.*", r"\1 needs a value"),
    (r"invalid choice (.*) for argument '([^']+)'. Expected one of \((.*?),?\)", r"\2 is one of \3, not \1"),
    (rf"Missing from ([a-z ]+): (\S+) (.*?){HELP}", r"\1 needs \2: \3"),
)


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


def as_switches(words: list[str], settings: type[Settings]) -> list[str]:
    """The words with `--name` and `--no-name` spelt out, for settings that are true, false or None.

    >>> from everlearn.learners.cope import CoPESettings
    >>> as_switches(["--no-renormalise", "--blend", "--hidden", "64"], CoPESettings)
    ['--renormalise', 'False', '--blend', 'True', '--hidden', '64']
    """
    types = settings_types(settings)  # type: ignore[arg-type]
    names = {name for name, kinds in types.items() if kinds == (bool, NoneType)}
    spelt = []
    for place, word in enumerate(words):
        name = word.removeprefix("--").replace("-", "_")
        following = words[place + 1 : place + 2]
        if word.startswith("--no-") and name.removeprefix("no_") in names:
            spelt += ["--" + word.removeprefix("--no-"), "False"]
        elif word.startswith("--") and name in names and (not following or following[0].startswith("--")):
            spelt += [word, "True"]
        else:
            spelt.append(word)
    return spelt


def _sentence(box: str) -> str:
    """What the text in a box of several parts says.

    >>> _sentence("╭─ Error ─╮\\n│ Wrong: 3  │\\n│ ───────── │\\n│ See help  │\\n╰───────────╯")
    'Wrong: 3. See help'
    >>> _sentence(" Error \\n --------- \\n Wrong: 3 \\n --------- \\n See help \\n ")
    'Wrong: 3. See help'
    """
    _, *lines = [DRAWN.sub("", line).strip() for line in box.strip().splitlines()]
    parts = [" ".join(part.split()) for part in re.split(r"^-*$", "\n".join(lines), flags=re.MULTILINE)]
    sentences = [part.rstrip(".") for part in parts if part and not part.startswith("Argument helptext")]
    return _in_our_words(". ".join(sentences).strip())


def _in_our_words(said: str) -> str:
    """The sentence of the parser, as everlearn would say it.

    >>> _in_our_words("Unrecognized options: --rat, 0.1. Perhaps you meant: --rate FLOAT")
    'there is no option --rat; did you mean --rate?'
    >>> _in_our_words("Unrecognized options: --rat, 0.1. For full helptext, run everlearn run --help")
    'there is no option --rat: `everlearn run --help` lists all'
    >>> _in_our_words("Error parsing --size: invalid literal for int() with base 10: 'abc'")
    "--size takes a whole number, not 'abc'"
    """
    for pattern, words in WORDS:
        found = re.fullmatch(pattern, said, re.DOTALL)
        if found:
            return found.expand(words)
    return said
