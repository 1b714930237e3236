"""What a client is given: an address, labels, ids and samples, checked before anything is sent.

The rules for labels are those of `everlearn.memory.labels.as_labels`, without torch, which a client does not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from everlearn.label_json import Label
from everlearn.service.wire import KINDS

__all__ = ["as_address", "as_given", "as_list", "as_plain", "as_samples", "as_token"]

PLAIN = (str, bool, int, float, bytes, type(None))
NO_VALUE = ("NAType", "NaTType")  # pandas' types of a missing value
NO_SAMPLES = "x must be an array, a tensor, a DataFrame, texts, or samples of one shape as lists of numbers"


def as_address(url: str) -> str:
    """The URL of a service; raises a ValueError for anything else."""
    words = f"the URL of a service is such as http://127.0.0.1:8000, not {_shown(url)}"
    if not isinstance(url, str):
        raise ValueError(words)
    if "://" not in url:
        raise ValueError(f"{words}: write http:// before it")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port
        valid = False
    if not valid:
        raise ValueError(words)
    return url.rstrip("/")


def as_token(token: str) -> str:
    """A token without the end of its line, if it was read from a file; the errors do not show it.

    >>> as_token("evl_abc\\n")
    'evl_abc'
    """
    if not isinstance(token, str) or not token.isascii() or not token.strip().isprintable():
        raise ValueError(
            "the token is not one that a service knows: give what `everlearn token create` has printed"
        )
    return token.strip()


def as_list(values: Any, what: str) -> list[Label]:
    """The labels or ids in a sequence with one entry for each sample. what: the name of the argument.

    >>> as_list(np.array([1, 2]), "y")
    [1, 2]
    >>> as_list("ab", "ids")
    Traceback (most recent call last):
    ValueError: ids is a sequence with one entry for each sample, not 'ab'
    """
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        raise ValueError(f"{what} has the shape {list(shape)}, but it takes one entry for each sample, [n]")
    if isinstance(values, (str, bytes, Set, Mapping)) or not isinstance(values, Iterable):
        raise ValueError(f"{what} is a sequence with one entry for each sample, not {_shown(values)}")
    try:
        entries = values.tolist() if hasattr(values, "tolist") else values
    except RuntimeError:
        raise ValueError(f"{what} is a tensor whose values can't be read") from None
    return [_entry(value, what) for value in entries]


def _entry(value: Any, what: str) -> Label:
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in PLAIN:
        return value  # type: ignore[no-any-return]
    if type(value) is tuple:
        return tuple(_entry(part, what) for part in value)
    if what == "y" and type(value).__name__ in NO_VALUE:
        return None
    raise ValueError(
        f"{what} has {_shown(value)} of type {type(value).__name__}: an entry is a str, int, float, bool, bytes, "
        "None or a tuple of these"
    )


def _shown(value: Any) -> str:
    """The repr of a value, in at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def as_samples(x: Any, where: str) -> tuple[Any, dict[str, Any]]:
    """Samples as an array or a list, and the fields with their names, if they have any."""
    if type(x).__module__.partition(".")[0] in ("pandas", "polars", "everlearn") or _is_records(x):
        from everlearn.service.tables import encode_table, table_given

        table = table_given(x, where)
        if table is not None:
            return encode_table(table)
    if isinstance(x, (list, tuple)) and not any(hasattr(each, "shape") for each in x):
        return list(x), {}
    texts = _texts(x)
    return (_array(x) if texts is None else texts), {}


def _is_records(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and len(x) > 0 and isinstance(x[0], Mapping)


def _texts(x: Any) -> list[str] | None:
    """The texts in an array or a Series; None if it holds anything else.

    >>> _texts(np.array(["a card", "a loan"])), _texts(np.array([1.0]))
    (['a card', 'a loan'], None)
    """
    kind = getattr(x, "dtype", None)
    if (
        getattr(kind, "kind", None) not in ("U", "T", "O") and str(kind) != "String"
    ):  # numpy and pandas; polars
        return None
    values = x.tolist() if hasattr(x, "tolist") else list(x)
    return [str(value) for value in values] if all(isinstance(value, str) for value in values) else None


def as_plain(value: Any) -> Any:
    """A number or an array in a list as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(NO_SAMPLES)


def _array(x: Any) -> Any:
    """Samples as a numpy array; floats wider than 32 bits become float32."""
    try:
        if isinstance(x, (list, tuple)):
            x = np.stack([_array(each) for each in x])
        if hasattr(x, "detach"):
            x = x.detach().cpu()
            x = x.to_dense() if str(x.layout) != "torch.strided" else x
            x = (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
        x = np.asarray(x.toarray() if hasattr(x, "toarray") else x)
    except (TypeError, ValueError, RuntimeError):  # such as samples of several shapes
        x = np.empty(0, object)
    if x.dtype.kind not in KINDS:
        raise ValueError(NO_SAMPLES)
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    return x.astype(np.float32) if x.dtype.kind == "f" and x.dtype.itemsize > 4 else x


def as_given(values: Any, x: Any) -> Any:
    """Numbers as an array, or as a tensor if x is one."""
    array = np.asarray(values, np.float32)
    if not hasattr(x, "detach"):
        return array
    import torch

    return torch.from_numpy(array)
