"""The requirements with hashes are those of constraints.txt: two files that could drift apart."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([\w.-]+)==([^\s\\]+)", re.MULTILINE)


def pins(file: str) -> dict[str, str]:
    found = PIN.findall((ROOT / file).read_text("utf-8"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_every_pin_but_torch_has_a_hash_and_the_version_of_the_constraints() -> None:
    expected = pins("constraints.txt")
    assert expected.pop("torch")
    assert pins("requirements-test.txt") == expected


def test_every_pin_has_a_hash() -> None:
    text = (ROOT / "requirements-test.txt").read_text("utf-8")
    entries = re.split(r"\n(?=[\w-]+==)", text)[1:]
    assert len(entries) == len(pins("requirements-test.txt"))
    assert [
        entry.split()[0] for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)
    ] == []
