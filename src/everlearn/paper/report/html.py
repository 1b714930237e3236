"""The templates of the page, filled in with autoescape: every text is data, never markup."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from everlearn.paper.formatting import in_html
from everlearn.paper.report.theme import variable, variables
from everlearn.paper.table_view import TableView
from everlearn.plots import style

__all__ = ["render", "table_html"]


def render(**content: Any) -> str:
    """The page with this content; see templates/page.html for what it takes."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            light=Markup(variables(dark=False)),
            dark=Markup(variables(dark=True)),
            css=_source("page.css"),
            script=_source("page.js"),
            **content,
        )
    )


def table_html(view: TableView) -> Markup:
    """A table alone, as HTML."""
    macros: Any = _environment().get_template("table.html").module
    return Markup(macros.table(view))


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("everlearn.paper.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"symbols": in_html, "exact": _exact}
    environment.globals["colour_of"] = _colour_of
    return environment


def _source(name: str) -> Markup:
    """A file of the package, which goes into the page as it is."""
    return Markup(files("everlearn.paper.report").joinpath("templates", name).read_text("utf-8"))


def _exact(text: str) -> Markup:
    """A text that an HTML parser reads back to the letter; it would turn a carriage return into a newline."""
    return escape(text).replace("\r", Markup("&#13;"))


def _colour_of(name: str) -> str | None:
    """The page's CSS variable with the colour of a method; None for what is not a method."""
    method = style.method_of(name)
    return None if method is None else variable(method)
