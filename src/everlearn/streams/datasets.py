"""Datasets, read from the files as they were published.

A dataset is valid if the sha256 of each decoded array is the one in `checksums.json`. So it does not matter how the
files are compressed, or in which of the usual folders they are.
"""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from everlearn.streams.dataset_files import (
    CHECKSUMS,
    CIFAR_BATCHES,
    IDX_FILES,
    LAYOUTS,
    NAMES,
    data_folders,
    existing_file,
    find,
    locate,
    sha256,
    shares_file_names,
)
from everlearn.streams.formats import (
    Bytes,
    DataError,
    archive_files,
    file_bytes,
    invalid_file,
    read_batch,
    read_idx,
)
from everlearn.streams.size_limits import batch_bytes, dataset_bytes

__all__ = [
    "CHECKSUMS",
    "LAYOUTS",
    "NAMES",
    "DataError",
    "Dataset",
    "Entry",
    "find",
    "inventory",
    "load",
    "locate",
    "read",
    "verify",
]

Decoded = dict[str, tuple[Bytes, Path]]
"""Each of `x_train, y_train, x_test, y_test`, with the file it came from."""


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory: uint8 images and int64 labels. It is shared by all callers of `load`: change a copy.

    Grey images are flat, `[n, 784]` or `[n, 64]`; colour images are channel-first, `[n, 3, 32, 32]`.
    """

    name: str
    x_train: Bytes
    y_train: NDArray[np.int64]
    x_test: Bytes
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One line of the inventory: a dataset, the place where it was found (or None) and its sizes."""

    name: str
    place: Path | None
    train: int
    test: int
    classes: int


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """The dataset of this name. It is read once per process.

    It is searched in `data_dir`, in `$EVERLEARN_DATA`, then in the user's cache folder.

    >>> digits = load("digits")
    >>> digits.x_train.shape, digits.x_test.shape, digits.classes[:3]
    ((1442, 64), (355, 64), ('0', '1', '2'))
    """
    return _read_once(name, locate(name, data_dir).resolve())


def verify(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Read the dataset again, check the sha256 of every array, and return where it is."""
    place = locate(name, data_dir)
    read(name, place)
    return place


def inventory(data_dir: str | os.PathLike[str] | None = None) -> list[Entry]:
    """All datasets, where they were found and how large they are; no large file is read."""
    entries = []
    for name in NAMES:
        arrays, classes = CHECKSUMS[name]["arrays"], CHECKSUMS[name]["classes"]
        place = find(name, data_folders(name, data_dir))
        entries.append(
            Entry(name, place, arrays["y_train"]["shape"][0], arrays["y_test"]["shape"][0], len(classes))
        )
    return entries


def read(name: str, place: Path) -> Dataset:
    """Decode the dataset in this place, and check the sha256 of every array."""
    reader = _read_digits if name == "digits" else _read_idx_files if shares_file_names(name) else _read_cifar
    decoded = reader(name, place)
    for key, (array, path) in decoded.items():
        expected = CHECKSUMS[name]["arrays"][key]
        if list(array.shape) != expected["shape"]:
            raise invalid_file(
                name,
                path,
                f"holds an array of shape {list(array.shape)} where {expected['shape']} is expected",
            )
        if sha256(array) != expected["sha256"]:
            raise invalid_file(
                name, path, f"does not hold the published {key} of {name} (its sha256 differs)"
            )

    def images(key: str) -> Bytes:
        x = decoded[key][0]
        return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x.reshape(len(x), -1)

    def labels(key: str) -> NDArray[np.int64]:
        return decoded[key][0].astype(np.int64)

    classes = tuple(CHECKSUMS[name]["classes"])
    return Dataset(name, images("x_train"), labels("y_train"), images("x_test"), labels("y_test"), classes)


_read_once = lru_cache(maxsize=len(NAMES))(read)


def _read_digits(name: str, place: Path) -> Decoded:
    """Scikit-learn's digits, scaled to 0..255; every fifth sample of each class is for testing."""
    table = _digits_table(place / "datasets" / "data" / "digits.csv.gz")
    x, y = np.rint(table[:, :-1] * 255 / 16).astype(np.uint8), table[:, -1].astype(np.uint8)
    test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        test[np.flatnonzero(y == label)[4::5]] = True
    arrays = {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}
    return {key: (array, place) for key, array in arrays.items()}


def _digits_table(path: Path) -> NDArray[np.float64]:
    """One row per sample: 64 grey values up to 16, then the label.

    Scikit-learn's own file is read directly where it exists, since importing scikit-learn takes over a second.
    """
    if path.exists():
        try:
            with gzip.open(path, "rt", encoding="ascii") as file:
                return np.loadtxt(file, delimiter=",", ndmin=2)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise invalid_file("digits", path, f"can't be read ({error})") from None
    from sklearn.datasets import load_digits  # type: ignore[import-untyped,unused-ignore]

    grey, target = load_digits(return_X_y=True)
    return np.column_stack([grey, target])


def _read_idx_files(name: str, place: Path) -> Decoded:
    """The four IDX files of MNIST or Fashion-MNIST."""
    paths = {key: existing_file(place, file) or place / file for key, file in IDX_FILES.items()}
    arrays = CHECKSUMS[name]["arrays"]
    return {key: (read_idx(name, path, arrays[key]["shape"]), path) for key, path in paths.items()}


def _read_cifar(name: str, place: Path) -> Decoded:
    """The CIFAR batches of a folder or an archive, as images [n, 32, 32, 3] and labels [n]."""
    arrays = CHECKSUMS[name]["arrays"]
    images = {
        file: arrays[f"y_{split}"]["shape"][0] // len(files)
        for split, files in CIFAR_BATCHES[name].items()
        for file in files
    }
    unpacked = place.is_dir()
    batches = {}
    if unpacked:
        for file, count in images.items():
            path = existing_file(place, file) or place / file
            batches[file] = read_batch(name, path, file_bytes(name, path, batch_bytes(count)), count)
    else:
        for file, content in archive_files(name, place, images, dataset_bytes(arrays)):
            batches[file] = read_batch(name, place, content, images[file])
    decoded: Decoded = {}
    for split, files in CIFAR_BATCHES[name].items():
        origin = place / " to ".join(sorted({files[0], files[-1]})) if unpacked else place
        rows = np.concatenate([batches[file][0] for file in files])
        decoded[f"x_{split}"] = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), origin
        decoded[f"y_{split}"] = np.concatenate([batches[file][1] for file in files]), origin
    return decoded
