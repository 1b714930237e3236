"""The largest possible sizes of the files of a dataset; a larger file is rejected before it is read into memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["batch_bytes", "dataset_bytes", "idx_bytes"]

MEGABYTE = 1_000_000
CIFAR_IMAGE_BYTES = 3072


def idx_bytes(shape: Sequence[int]) -> int:
    """The exact size of an IDX file with an array of unsigned bytes.

    >>> idx_bytes([10000, 28, 28])
    7840016
    """
    return 4 + 4 * len(shape) + math.prod(shape)


def batch_bytes(images: int) -> int:
    """The largest size of a CIFAR batch: a byte may take two in a pickle, and each image has a file name.

    >>> batch_bytes(10_000) > 2 * 10_000 * 3072
    True
    """
    return images * (2 * CIFAR_IMAGE_BYTES + 256) + MEGABYTE


def dataset_bytes(arrays: Mapping[str, Mapping[str, Any]]) -> int:
    """The largest size of all files of a dataset together, packed or unpacked.

    >>> dataset_bytes({"x_train": {"shape": [2, 8]}, "y_train": {"shape": [2]}})
    16000036
    """
    return 16 * MEGABYTE + 2 * sum(int(math.prod(array["shape"])) for array in arrays.values())
