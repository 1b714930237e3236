"""How objects show themselves in a notebook: a small HTML card, with a curve as inline SVG. No plotting library."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

__all__ = ["card", "curve"]

WIDTH, HEIGHT, LEFT, BOTTOM = 360, 120, 34, 18  # in pixels; the last two leave room for the axes' labels


def card(title: str, facts: Mapping[str, object], picture: str = "") -> str:
    """A title, a table of facts and a picture as HTML, for `_repr_html_`. Title and facts are escaped.

    >>> card("a <learner>", {"classes": 10})[:40]
    '<div><strong>a &lt;learner&gt;</strong><'
    """
    cell = '<td style="text-align:left">'
    rows = "".join(
        f"<tr>{cell}{html.escape(str(name))}</td>{cell}{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<div><strong>{html.escape(title)}</strong><table>{rows}</table>{picture}</div>"


def curve(points: Sequence[tuple[float, float]], label: str) -> str:
    """A line through (x, y) points as SVG, with y between 0 and 1 shown in percent; "" without two points.

    Points whose y is nan are left out.

    >>> curve([(0, 0.5), (10, 1.0)], "accuracy").count("<polyline")
    1
    >>> curve([(0, 0.5)], "accuracy")
    ''
    """
    shown = [(x, y) for x, y in points if math.isfinite(y)]
    if len(shown) < 2:
        return ""
    first, last = shown[0][0], shown[-1][0]
    line = " ".join(
        f"{LEFT + (x - first) / ((last - first) or 1) * (WIDTH - LEFT - 4):.1f},{_height(y):.1f}"
        for x, y in shown
    )
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_height(y):.1f}" y2="{_height(y):.1f}" '
        'stroke="currentColor" stroke-opacity="0.2"/>'
        f'<text x="{LEFT - 4}" y="{_height(y) + 4:.1f}" text-anchor="end">{100 * y:.0f} %</text>'
        for y in (0.0, 0.5, 1.0)
    )
    named = html.escape(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{named}" font-family="sans-serif" font-size="10" fill="currentColor">'
        f'<title>{named}</title>{grid}<polyline points="{line}" fill="none" stroke="#0b6fb8" stroke-width="2"/>'
        f'<text x="{WIDTH}" y="{HEIGHT - 2}" text-anchor="end">{named}; {first:,.0f} to {last:,.0f} samples</text>'
        "</svg>"
    )


def _height(y: float) -> float:
    """Where a value between 0 and 1 lies, from the top."""
    return 6 + (1 - y) * (HEIGHT - BOTTOM - 12)
