"""Bearer tokens with scopes. Only their hashes are stored, and they are compared in constant time."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from everlearn.atomic_write import replace_file
from everlearn.messages import nearest

__all__ = ["SCOPES", "Token", "Tokens"]

SCOPES = ("predict", "learn", "admin")
PREFIX = "evl_"
FILE = "tokens.json"


@dataclasses.dataclass(frozen=True)
class Token:
    """A token by its name and hash; `admin` includes the other scopes."""

    name: str
    hash: str
    scopes: tuple[str, ...]

    def allows(self, scope: str) -> bool:
        """Whether the token may be used for this scope."""
        return scope in self.scopes or "admin" in self.scopes


class Tokens:
    """The tokens of a service, in a JSON file that only its owner can read.

    path: the file, or a folder that has it under the name tokens.json; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path) / FILE if Path(path).is_dir() else Path(path)
        self._tokens: list[Token] = []
        if self.path.exists():
            try:
                entries = json.loads(self.path.read_text("utf-8"))["tokens"]
                self._tokens = [
                    Token(str(each["name"]), str(each["hash"]), check_scopes(each["scopes"]))
                    for each in entries
                ]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{self.path} is not a valid file of tokens: {error}") from None

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[Token]:
        return iter(self._tokens)

    def create(self, name: str, scopes: Iterable[str]) -> str:
        """Make a token and store its hash; the token itself is returned, and can't be read again."""
        if not name or len(name) > 100 or not name.isprintable():
            raise ValueError("the name of a token is 1 to 100 printable characters")
        if any(token.name == name for token in self._tokens):
            raise ValueError(f"there is a token {name!r} already: revoke it first, or choose another name")
        secret = PREFIX + secrets.token_urlsafe(32)
        self._tokens.append(Token(name, _hash(secret), check_scopes(scopes)))
        self._write()
        return secret

    def revoke(self, name: str) -> None:
        """Remove a token."""
        known = [token.name for token in self._tokens]
        if name not in known:
            raise ValueError(f"there is no token {name!r}{nearest(name, known)}")
        self._tokens = [token for token in self._tokens if token.name != name]
        self._write()

    def find(self, secret: str) -> Token | None:
        """The token with this secret, if there is one; takes the same time for each."""
        digest, found = _hash(secret), None
        for token in self._tokens:
            if hmac.compare_digest(token.hash, digest):
                found = token
        return found

    def _write(self) -> None:
        entries = [dataclasses.asdict(token) for token in self._tokens]
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch(0o600)  # the content keeps the mode of the file it replaces
        replace_file(self.path, json.dumps({"tokens": entries}, indent=1).encode())


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes, each once; raises a ValueError for an unknown one, or for none."""
    given = tuple(dict.fromkeys(scopes))
    for scope in given:
        if scope not in SCOPES:
            raise ValueError(f"there is no scope {scope!r}{nearest(scope, SCOPES)}")
    if not given:
        raise ValueError(f"a token needs a scope: {', '.join(SCOPES)}")
    return given


def _hash(secret: str) -> str:
    # Tokens are 256 random bits, so a fast hash without salt can't be reversed by guessing.
    return hashlib.sha256(secret.encode()).hexdigest()
