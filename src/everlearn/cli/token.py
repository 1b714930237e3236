"""`everlearn token`: create, list and revoke the tokens of a service."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.service.tokens import Tokens

__all__ = ["command"]

FILE = Path("tokens.json")


def command(words: list[str]) -> int:
    """Run `everlearn token` with these arguments."""
    subcommands: dict[str, Callable[..., Any]] = {"create": Create, "list": List, "revoke": Revoke}
    chosen = in_one_sentence(
        lambda: tyro.extras.subcommand_cli_from_dict(
            subcommands,
            args=words,
            prog="everlearn token",
            description="Create, list and revoke the tokens of a service.",
        )
    )
    chosen.run()
    return 0


@dataclasses.dataclass(frozen=True)
class Create:
    """Create a token and print it. It is shown once: the file holds only its hash."""

    name: tyro.conf.Positional[str]
    """a name for whoever uses it"""
    scopes: tuple[str, ...] = ("predict", "learn")
    """what it may be used for: predict, learn, admin (which includes both)"""
    file: Path = FILE
    """the file of tokens"""

    def run(self) -> None:
        """Print the token."""
        print(Tokens(self.file).create(self.name, self.scopes))
        print(f"it may {', '.join(self.scopes)}; its hash is in {self.file}", file=sys.stderr)


@dataclasses.dataclass(frozen=True)
class List:
    """List the tokens by name."""

    file: Path = FILE
    """the file of tokens"""

    def run(self) -> None:
        """Print a line for each."""
        for token in Tokens(self.file):
            print(f"{token.name}: {', '.join(token.scopes)}")


@dataclasses.dataclass(frozen=True)
class Revoke:
    """Remove a token. A running service must be restarted."""

    name: tyro.conf.Positional[str]
    """the name of the token"""
    file: Path = FILE
    """the file of tokens"""

    def run(self) -> None:
        """Remove it."""
        Tokens(self.file).revoke(self.name)
        print(f"{self.name} is revoked; restart the service to apply it")
