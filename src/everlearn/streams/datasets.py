"""Datasets, read from the files their makers publish.

What counts as right is the sha256 of the decoded arrays, kept in `checksums.json` beside this file, so it
does not matter in which of the usual folders, or how compressed, the files lie.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.messages import nearest
from everlearn.streams.formats import (
    Bytes,
    DataError,
    archive_files,
    broken,
    file_bytes,
    listed,
    read_batch,
    read_idx,
)
from everlearn.streams.sizes import batch_bytes, dataset_bytes

Decoded = dict[str, tuple[Bytes, Path]]
"""Each of `x_train, y_train, x_test, y_test`, with the file it came from."""

CHECKSUMS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("checksums.json").read_text("utf-8")
)
NAMES = tuple(CHECKSUMS)
DEBIAN = Path("/usr/share/datasets")


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory: uint8 images and int64 labels; whoever loads it shares it, so change a copy.

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
    """One line of the inventory: a dataset, the place that holds it (None: nowhere) and its sizes."""

    name: str
    place: Path | None
    train: int
    test: int
    classes: int


@dataclass(frozen=True)
class Layout:
    """How a dataset lies in a data folder: its files in one of these subfolders, or one archive."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    archive: str = ""


_IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
_CIFAR: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    "cifar100": {"train": ("train",), "test": ("test",)},
}
LAYOUTS = {
    "mnist": Layout(("MNIST/raw", "mnist", "."), tuple(_IDX.values())),
    "fashion-mnist": Layout(("FashionMNIST/raw", "fashion-mnist", "."), tuple(_IDX.values())),
    "cifar10": Layout(
        ("cifar-10-batches-py", "."),
        (*_CIFAR["cifar10"]["train"], "test_batch", "batches.meta"),
        "cifar-10-python.tar.gz",
    ),
    "cifar100": Layout(("cifar-100-python", "."), ("train", "test", "meta"), "cifar-100-python.tar.gz"),
}
_TWINS = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}  # same file names, other pictures


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """The dataset of this name, read once per process.

    It is looked for in `data_dir`, in `$EVERLEARN_DATA`, then in the user's cache folder.

    >>> digits = load("digits")
    >>> digits.x_train.shape, digits.x_test.shape, digits.classes[:3]
    ((1442, 64), (355, 64), ('0', '1', '2'))
    """
    return _read_once(name, locate(name, data_dir).resolve())


def verify(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Read the dataset anew, check every array against its sha256, and return the place it lies in."""
    place = locate(name, data_dir)
    read(name, place)
    return place


def inventory(data_dir: str | os.PathLike[str] | None = None) -> list[Entry]:
    """Every dataset, where it was found and how large it is; nothing large is read."""
    entries = []
    for name in NAMES:
        arrays, classes = CHECKSUMS[name]["arrays"], CHECKSUMS[name]["classes"]
        place = find(name, data_folders(name, data_dir))
        entries.append(
            Entry(name, place, arrays["y_train"]["shape"][0], arrays["y_test"]["shape"][0], len(classes))
        )
    return entries


def locate(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder or archive that holds the dataset; a DataError says where it was looked for in vain."""
    folders = data_folders(name, data_dir)
    place = find(name, folders)
    if place is not None:
        return place
    if name == "digits":
        raise DataError(
            "digits come with scikit-learn, which is not installed; run `pip install scikit-learn`"
        )
    flaws = "".join(f"; {place} {flaw}" for place, flaw in _places(name, folders))
    raise DataError(
        f"{name} was not found: {wanted(name)} was looked for in {listed(map(str, folders))}{flaws}; run "
        f"`everlearn data fetch {name}` to get it, or name the folder that holds it with --data-dir or "
        "$EVERLEARN_DATA"
    )


def find(name: str, folders: Sequence[Path]) -> Path | None:
    """The first place in these folders that holds all files of the dataset, unread; None if there is none."""
    if name == "digits":
        package = importlib.util.find_spec("sklearn")
        return Path(package.origin).parent if package and package.origin else None
    return next((place for place, flaw in _places(name, folders) if not flaw), None)


def data_folders(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders to look in for this dataset, in order; the name and `data_dir` are checked."""
    check_name(name)
    folders = []
    if data_dir is not None:
        folders.append(Path(data_dir).expanduser())
        if not folders[0].is_dir():
            what = "is a file, not a folder" if folders[0].exists() else "does not exist"
            remedy = f"; name the folder that holds {wanted(name)}, or run `everlearn data fetch {name}`"
            raise DataError(f"the data folder {folders[0]} {what}{remedy if name != 'digits' else ''}")
    if os.environ.get("EVERLEARN_DATA"):
        folders.append(Path(os.environ["EVERLEARN_DATA"]).expanduser())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folders.append(Path(cache) / "everlearn")
    if name == "fashion-mnist":
        folders.append(DEBIAN)
    return folders


def check_name(name: str) -> None:
    """Raise a DataError that suggests the nearest name, unless there is a dataset of this name."""
    if name not in NAMES:
        raise DataError(f"there is no dataset {name!r}{nearest(name, NAMES)}")


def wanted(name: str) -> str:
    """The maker's files in words, for messages."""
    if name == "digits":
        return "your datasets (digits need none)"
    layout = LAYOUTS[name]
    if layout.archive:
        return f"{layout.archive} (or the folder {layout.folders[0]})"
    return f"{layout.files[0]} with {listed(layout.files[1:])} (or the same with .gz)"


def read(name: str, place: Path) -> Dataset:
    """Decode the dataset that lies in this place, and check every array against its sha256."""
    reader = _read_digits if name == "digits" else _read_idx_files if name in _TWINS else _read_cifar
    decoded = reader(name, place)
    for key, (array, path) in decoded.items():
        right = CHECKSUMS[name]["arrays"][key]
        if list(array.shape) != right["shape"]:
            raise broken(
                name, path, f"holds an array of shape {list(array.shape)} where {right['shape']} is expected"
            )
        if _sha256(array) != right["sha256"]:
            raise broken(name, path, f"does not hold the published {key} of {name} (its sha256 differs)")

    def images(key: str) -> Bytes:
        x = decoded[key][0]
        return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x.reshape(len(x), -1)

    def labels(key: str) -> NDArray[np.int64]:
        return decoded[key][0].astype(np.int64)

    classes = tuple(CHECKSUMS[name]["classes"])
    return Dataset(name, images("x_train"), labels("y_train"), images("x_test"), labels("y_test"), classes)


_read_once = lru_cache(maxsize=len(NAMES))(read)


def _places(name: str, folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Every place with files named like the dataset's, and what speaks against it ("" if nothing does)."""
    layout = LAYOUTS[name]
    for folder in folders:
        for place in (folder / inside for inside in layout.folders):
            lacking = [file for file in layout.files if _variant(place, file) is None]
            if not lacking:
                yield place, _mistaken(name, place)
            elif len(lacking) < len(layout.files):
                yield place, f"lacks {lacking[0]}"
        if layout.archive and os.path.isfile(folder / layout.archive):
            yield folder / layout.archive, ""


def _variant(folder: Path, file: str) -> Path | None:
    """The file under one of the names it goes by: gzipped or not, with a dash or a dot before `idx`."""
    names = (file, f"{file}.gz", file.replace("-idx", ".idx"), file.replace("-idx", ".idx") + ".gz")
    return next((folder / name for name in names if os.path.isfile(folder / name)), None)


def _mistaken(name: str, place: Path) -> str:
    """MNIST and Fashion-MNIST share their file names: the small file of test labels tells them apart."""
    if name not in _TWINS:
        return ""
    try:
        path = _variant(place, _IDX["y_test"]) or place
        labels = read_idx(name, path, CHECKSUMS[name]["arrays"]["y_test"]["shape"])
    except DataError:
        return ""  # reading the whole dataset will say what is wrong
    twin = _TWINS[name]
    return f"holds {twin}" if _sha256(labels) == CHECKSUMS[twin]["arrays"]["y_test"]["sha256"] else ""


def _read_digits(name: str, place: Path) -> Decoded:
    """Scikit-learn's digits in 0..255; every fifth of each class, in the file's order, is for testing."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped,unused-ignore]

    grey, target = load_digits(return_X_y=True)
    x, y = np.rint(grey * 255 / 16).astype(np.uint8), target.astype(np.uint8)
    test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        test[np.flatnonzero(y == label)[4::5]] = True
    arrays = {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}
    return {key: (array, place) for key, array in arrays.items()}


def _read_idx_files(name: str, place: Path) -> Decoded:
    paths = {key: _variant(place, file) or place / file for key, file in _IDX.items()}
    arrays = CHECKSUMS[name]["arrays"]
    return {key: (read_idx(name, path, arrays[key]["shape"]), path) for key, path in paths.items()}


def _read_cifar(name: str, place: Path) -> Decoded:
    """The CIFAR batches of a folder or an archive, as images [n, 32, 32, 3] and labels [n]."""
    arrays = CHECKSUMS[name]["arrays"]
    images = {
        file: arrays[f"y_{split}"]["shape"][0] // len(parts)
        for split, parts in _CIFAR[name].items()
        for file in parts
    }
    unpacked = place.is_dir()
    batches = {}
    if unpacked:
        for file, count in images.items():
            path = _variant(place, file) or place / file
            batches[file] = read_batch(name, path, file_bytes(name, path, batch_bytes(count)), count)
    else:
        for file, content in archive_files(name, place, images, dataset_bytes(arrays)):
            batches[file] = read_batch(name, place, content, images[file])
    decoded: Decoded = {}
    for split, parts in _CIFAR[name].items():
        origin = place / " to ".join(sorted({parts[0], parts[-1]})) if unpacked else place
        rows = np.concatenate([batches[part][0] for part in parts])
        decoded[f"x_{split}"] = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), origin
        decoded[f"y_{split}"] = np.concatenate([batches[part][1] for part in parts]), origin
    return decoded


def _sha256(array: Bytes) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(array), 1000):  # in parts: a transposed array is copied to be hashed
        digest.update(array[start : start + 1000].tobytes())
    return digest.hexdigest()
