"""Sparse rows, of scipy or torch: each batch is made dense, within a bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["dense", "is_sparse", "row_chunks"]

LARGEST = 2**28  # values of a dense batch: 1 GiB
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, *COMPRESSED)


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse tensor of torch, or a sparse matrix or array of scipy."""
    if isinstance(x, Tensor):
        return x.layout in LAYOUTS
    return type(x).__module__.startswith("scipy.sparse")


def dense(x: Any, where: str) -> Tensor:
    """Sparse rows as a dense tensor; raises a ValueError if these are too large or not valid."""
    shape = tuple(x.shape)
    if math.prod(shape) > LARGEST:
        raise ValueError(
            f"{where} got sparse rows of shape {list(shape)}, too large for a dense batch: give fewer at a time"
        )
    try:
        if not isinstance(x, Tensor):
            rows = x.tocsr()
            rows.check_format(full_check=True)
            return torch.from_numpy(rows.toarray())
        return _checked(x.detach()).to_dense()
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AttributeError) as error:
        reason = " ".join(str(error).split())[:150]
        raise ValueError(f"{where} got sparse rows that are not valid: {reason}") from None


def _checked(x: Tensor) -> Tensor:
    """The same tensor, after a check of its indices: torch reads any memory that wrong ones point to."""
    if x.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(x._indices(), x._values(), x.shape, check_invariants=True)
    by_row = x.layout in (torch.sparse_csr, torch.sparse_bsr)
    starts, places = (x.crow_indices(), x.col_indices()) if by_row else (x.ccol_indices(), x.row_indices())
    return torch.sparse_compressed_tensor(
        starts, places, x.values(), x.shape, layout=x.layout, check_invariants=True
    )


def row_chunks(x: Any, rows: int) -> Iterator[Any]:
    """Sparse rows in parts of at most this many, still sparse."""
    count = x.shape[0] if len(x.shape) else 1
    if count <= rows:
        yield x
        return
    if isinstance(x, Tensor):
        x = (x if x.layout == torch.sparse_coo else _checked(x).to_sparse()).coalesce()
        for start in range(0, count, rows):
            yield x.index_select(0, torch.arange(start, min(start + rows, count), device=x.device))
        return
    by_row = x.tocsr()
    for start in range(0, count, rows):
        yield by_row[start : start + rows]
