"""Docstrings as Markdown: what they show by indentation and prompts becomes lists and blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

PROMPT = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)
PARAMETERS = re.compile(r"^(?:\w+, )*\w+: .*(?:\n(?!\s*$).*)*", re.M)


class AsMarkdown(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """One object of the package."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring of ours as Markdown: examples fenced, a paragraph of parameters as a list."""
    text = PROMPT.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    first, _, rest = text.partition("\n\n")  # the first sentence is one, whatever colons are in it
    return f"{first}\n\n" + PARAMETERS.sub(lambda found: _listed(found[0]), rest)


def _listed(paragraph: str) -> str:
    """`name: what it is` as an item for each; lines that go on are indented already, or begin no new one."""
    items = re.sub(r"^((?:\w+, )*\w+): ", r"- **\1**: ", paragraph, flags=re.M)
    return re.sub(r"(?<=\. )((?:\w+, )*\w+): ", r"\n- **\1**: ", items)
