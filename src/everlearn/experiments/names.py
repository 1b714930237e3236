"""Safe file names from names in a store or a file of results, which may be hostile."""

from __future__ import annotations

import hashlib
import re

__all__ = ["file_name"]

SAFE = re.compile(r"[\w+-][\w.+-]{0,119}")


def file_name(text: str) -> str:
    """A file name for a text; where characters had to be replaced, a hash keeps different texts apart.

    >>> file_name("split-mnist"), file_name("../../etc/passwd")
    ('split-mnist', 'etc-passwd-3754d6cb')
    """
    if SAFE.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return "-".join([*re.findall(r"[\w+-]+", text[:200]), ""])[:100] + digest
