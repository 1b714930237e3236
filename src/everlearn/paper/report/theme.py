"""Figures that follow the page: an SVG whose colours are the page's variables, light or dark."""

from __future__ import annotations

import re

from markupsafe import Markup

from everlearn.plots import style

__all__ = ["DARK", "inline_svg", "variable", "variables", "width_of"]

# The methods' colours on a dark page: the same hues, as light as they must be to stand out from it.
DARK = {
    "cope": "#4a9fe8",
    "cope+": "#8fd0ff",
    "cope-ce": "#7f92e8",
    "finetune": "#f0725c",
    "iid-online": "#8b949e",
    "iid-offline": "#e6edf3",
    "reservoir": "#e9a93a",
    "mir": "#3ad29f",
    "gss": "#f0a3cd",
    "gem": "#a56fd0",
    "icarl": "#c9bb3a",
    "curl": "#b98252",
    "cn-dpm": "#3fa9bd",
    "er-ace": "#987d9d",
    "scr": "#806aec",
    "pcr": "#a96f6f",
    "der++": "#92ad09",
    "gdumb": "#8b7a7a",
    "ocm": "#7bad71",
    "onpro": "#ba6a85",
    "gsa": "#7b8937",
    "mose": "#e639e6",
    "mkd": "#09ad24",
    "ccl-dc": "#79896b",
    "slda": "#e6398f",
    "ncm": "#4f922e",
    "knn": "#d067e6",
    "ranpac": "#ad8f71",
}
PAGE = {  # name: (light, dark)
    "ink": (style.INK, "#e6edf3"),
    "quiet": (style.QUIET, "#9aa4af"),
    "grid": (style.GRID, "#3a424c"),
    "card": ("#ffffff", "#161b22"),
}


def variables(dark: bool) -> str:
    """The page's colours as CSS variables."""
    colours = {name: pair[dark] for name, pair in PAGE.items()}
    colours |= {variable(name): (DARK if dark else style.COLOURS)[name] for name in style.COLOURS}
    colours |= {f"ten-{place}": _light(c) if dark else c for place, c in enumerate(style.TEN)}
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def variable(method: str) -> str:
    """The page's variable that has a method's colour."""
    return f"method-{method.replace('+', '-plus')}"


def _light(colour: str) -> str:
    """Half way to white."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{(part + 255) // 2:02x}" for part in parts)


def inline_svg(svg: str, name: str, label: str, themed: bool = True) -> Markup:
    """A figure's SVG file as an `<svg>` for a page, with ids of its own; `label` says what it shows.

    themed: its colours are the page's variables; else they stay as drawn.
    """
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    prefix = re.sub(r"[^\w-]", "-", name)
    text = re.sub(r'((?:\bid="|href="#|url\(#))', rf"\g<1>{prefix}-", text)
    if themed:
        for colour, variable in _themes().items():
            text = re.sub(rf"(fill|stroke): {colour}\b", rf"\1: var(--{variable})", text)
            text = text.replace(f'fill="{colour}"', f'style="fill: var(--{variable})"')  # behind hatches
    natural = f"max-width:{width_of(svg):.0f}px"
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    attributes = Markup('role="img" aria-label="{}" style="{}"').format(label, natural)
    return Markup(text.replace("<svg ", f"<svg {attributes} ", 1))


def width_of(svg: str) -> float:
    """A figure's width in the page's pixels."""
    found = re.search(r'<svg [^>]*?width="([\d.]+)pt"', svg, re.DOTALL)
    if found is None:
        raise ValueError("this is not an SVG file of matplotlib: its width is not given in points")
    return float(found[1]) * 4 / 3


def _themes() -> dict[str, str]:
    themes = {pair[0]: name for name, pair in PAGE.items()}
    themes |= {colour: f"ten-{place}" for place, colour in enumerate(style.TEN)}
    # iid-offline is drawn in ink: on a page, light or dark, that is the same.
    return themes | {c: variable(name) for name, c in style.COLOURS.items() if c not in themes}
