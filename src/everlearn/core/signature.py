"""Settings as parameters: the signature and docstring of a learner's class, made from its settings' dataclass."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
from typing import Any, get_type_hints

__all__ = ["describe", "setting_docs"]


def describe(learner: type[Any]) -> None:
    """Give a learner's class the signature of its settings, and its docstring their descriptions."""
    try:
        hints = get_type_hints(learner.Settings)
    except NameError:  # names that only its own function knows
        hints = {field.name: field.type for field in dataclasses.fields(learner.Settings)}
    own = [
        parameter
        for parameter in inspect.signature(learner.__init__).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]
    settings = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(learner.Settings)
    ]
    learner.__signature__ = inspect.Signature([*own, *settings])
    if learner.__doc__ and "name" in vars(learner):
        docs = setting_docs(learner.Settings)
        lines = [f"    {name}: {docs[name]}." for name in (field.name for field in settings) if name in docs]
        text = inspect.cleandoc(learner.__doc__)
        learner.__doc__ = "\n".join([text, "", "Settings:", *lines, ""])


def setting_docs(settings: type[Any]) -> dict[str, str]:
    """The docs of each field: the string below it in the source of the nearest class that defines it."""
    docs: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        if dataclasses.is_dataclass(kind):
            docs |= _field_docs(kind)
    return docs


@functools.cache
def _field_docs(kind: type[Any]) -> dict[str, str]:
    try:
        tree = ast.parse(inspect.getsource(kind).lstrip())
    except (OSError, TypeError, SyntaxError):  # made without a file, or indented in a function
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
