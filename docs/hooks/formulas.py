"""Formulas as MathML, which browsers set by themselves: no script, no fonts, no network."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    """Set the formulas of a page."""
    return FORMULA.sub(_set, content)


def _set(formula: re.Match[str]) -> str:
    display = "block" if formula[1] == "div" else "inline"
    return convert(html.unescape(formula[2]), display=display)
