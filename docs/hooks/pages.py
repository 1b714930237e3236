"""Pages of the site that are made from files beside docs/: the examples, and REPRODUCIBILITY.md.

In docs/ they are linked as on GitHub, `../examples/embeddings.py`; on the site that leads to the page made of it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:]+)\)")
BESIDE = {"REPRODUCIBILITY.md": "reproducibility.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each."""
    for name, page in BESIDE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    for path in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=example(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links that leave docs/ lead to the pages made here; folders, which only GitHub shows, are words alone."""
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(rf"\]\({up}\.\./examples/(\w+)\.py\)", rf"]({up}examples/\1.md)", markdown)
    for name, target in BESIDE.items():
        markdown = markdown.replace(f"]({up}../{name})", f"]({up}{target})")
    here = (DOCS / page.file.src_uri).parent
    return LINK.sub(lambda link: link[1] if (here / link[2]).is_dir() else link[0], markdown)


def example(path: Path) -> str:
    """An example as a page: the first line of its docstring as the title, then the file as it stands."""
    source = path.read_text("utf-8")
    title = (ast.get_docstring(ast.parse(source)) or path.stem).splitlines()[0].rstrip(".")
    return f"# {title}\n\n`examples/{path.name}`\n\n```python\n{source}```\n"
