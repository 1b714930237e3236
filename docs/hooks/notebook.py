"""Writes a tutorial as a notebook: `python docs/hooks/notebook.py docs/tutorial-own-images.md`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([\w-]+)\.md")


def as_notebook(page: str) -> dict[str, Any]:
    """The page's text and code as the cells of a notebook, in the same order."""
    cells: list[dict[str, Any]] = []
    for place, part in enumerate(FENCE.split(page)):
        source = part.strip("\n")
        if not source.strip():
            continue
        if place % 2:
            cells.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []})
        else:
            source = LINK.sub(r"](../\1.md", source)
            cells.append({"cell_type": "markdown", "metadata": {}})
        cells[-1] |= {"id": f"cell-{len(cells)}", "source": source.splitlines(keepends=True)}
    language = {"name": "python"}
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": language,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def code_of(notebook: dict[str, Any]) -> list[str]:
    """The code cells of a notebook."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def write(page: Path) -> Path:
    """Write the notebook of a page beside it, in notebooks/."""
    target = page.parent / "notebooks" / f"{page.stem.removeprefix('tutorial-')}.ipynb"
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(as_notebook(page.read_text("utf-8")), indent=1, ensure_ascii=False)
    target.write_text(text + "\n", "utf-8")
    return target


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(write(Path(name)))
