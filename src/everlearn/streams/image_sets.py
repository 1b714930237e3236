"""More datasets of the field, read from the files as their makers publish them, unpacked in a folder.

Nothing is downloaded, and nothing is checked by checksums: the files are the user's own.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from everlearn.streams.dataset_files import user_cache_folder
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.formats import DataError, join_words
from everlearn.streams.own_data import split
from everlearn.streams.sessions import by_session

__all__ = ["IMAGE_SETS", "ImageSet", "find_folder", "image_stream"]

CORE50_TEST = ("s3", "s7", "s10")
CLEAR_SIZE = (64, 64)  # the images have many sizes
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Samples = tuple[Any, list[Any]]
"""Images or the names of their files, and a label for each."""


class ImageSet(NamedTuple):
    """A dataset on disk.

    folders: names that its folder may have. file: one that shows that it is there. page: where its makers publish it.
    read: its training and test samples. tasks: how many tasks of classes a stream has; None if tasks are sessions,
    which `read` then gives as the first part of each label.
    """

    folders: tuple[str, ...]
    file: str
    page: str
    read: Callable[[Path], tuple[Samples, Samples]]
    tasks: int | None
    size: tuple[int, int] | None = None


def image_stream(name: str, data_dir: str | os.PathLike[str] | None, **options: Any) -> DatasetStream:
    """The stream of this name. options: as of `split`."""
    known = IMAGE_SETS[name]
    folder = find_folder(name, data_dir)
    (x, y), (x_test, y_test) = known.read(folder)
    if not len(x) or not len(x_test):
        raise DataError(
            f"{folder} has no images of {name}, or none to test on; unpack the files of {known.page} again"
        )
    more: dict[str, Any] = {"size": known.size, "colour": True} if isinstance(x, list) else {}
    if known.tasks is None:
        return by_session(name, (x, y), (x_test, y_test), **options, **more)
    return split(x, y, test=(x_test, y_test), tasks=known.tasks, name=name, **options, **more)


def find_folder(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a dataset; a DataError that says where it was searched."""
    known = IMAGE_SETS[name]
    bases = [Path(data_dir).expanduser()] if data_dir is not None else []
    if os.environ.get("EVERLEARN_DATA"):
        bases.append(Path(os.environ["EVERLEARN_DATA"]).expanduser())
    bases.append(user_cache_folder())
    for base in bases:
        for folder in known.folders:
            if (base / folder / known.file).exists():
                return base / folder
    raise DataError(
        f"{name} was not found: {known.folders[0]}/{known.file} is in none of the folders searched, "
        f"{join_words(map(str, bases))}; download it from {known.page}, unpack it there, or set --data-dir or "
        "$EVERLEARN_DATA to the folder that holds it"
    )


def _images(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))


def _tiny_imagenet(folder: Path) -> tuple[Samples, Samples]:
    """200 classes of 64 x 64 by their WordNet ids; its validation images are the test."""
    ids = (folder / "wnids.txt").read_text("utf-8").split()
    files = [(path, label) for label in ids for path in _images(folder / "train" / label / "images")]
    rows = (folder / "val" / "val_annotations.txt").read_text("utf-8").splitlines()
    held_out = [row.split("\t")[:2] for row in rows if row.strip()]
    test = [(str(folder / "val" / "images" / file), label) for file, label in held_out]
    return _pair(files), _pair(test)


def _svhn(folder: Path) -> tuple[Samples, Samples]:
    """House numbers of 32 x 32 from MATLAB's format, in which the digit 0 has the label 10."""
    from scipy.io import loadmat

    def read(file: str) -> Samples:
        try:
            content = loadmat(folder / file)
            x = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1))
            return x, (content["y"].reshape(-1).astype(np.int64) % 10).tolist()
        except Exception as error:  # of many kinds, by what is wrong with the file
            raise DataError(f"{folder / file} is not a file of SVHN ({error}); download it again") from None

    return read("train_32x32.mat"), read("test_32x32.mat")


def _emnist(folder: Path) -> tuple[Samples, Samples]:
    """The 26 letters of EMNIST, 28 x 28; in its files, rows and columns are exchanged."""

    def read(part: str) -> Samples:
        images = _idx(folder, f"emnist-letters-{part}-images-idx3-ubyte")
        labels = _idx(folder, f"emnist-letters-{part}-labels-idx1-ubyte")
        if images.ndim != 3 or len(images) != len(labels) or not ((labels >= 1) & (labels <= 26)).all():
            raise DataError(f"{folder} does not have the letters of EMNIST; download them again")
        x = np.ascontiguousarray(images.transpose(0, 2, 1)[:, None])
        return x, [LETTERS[number - 1] for number in labels.tolist()]

    return read("train"), read("test")


def _idx(folder: Path, name: str) -> Any:
    """The array of an IDX file of bytes, gzipped or not."""
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), folder / name)
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        sides = content[3]
        shape = np.frombuffer(content, ">u4", sides, 4).astype(np.int64).tolist()
        if content[:3] != b"\x00\x00\x08":
            raise ValueError("it is not an IDX file of bytes")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * sides).reshape(shape).copy()
    except (OSError, ValueError, IndexError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read ({error}); download it again") from None


def _core50(folder: Path, session: Callable[[str, str], Any]) -> tuple[Samples, Samples]:
    """50 objects in 11 sessions, of which 3, 7 and 10 are for testing. session: a label of session and object."""
    train: list[tuple[str, Any]] = []
    test: list[tuple[str, Any]] = []
    for number in range(1, 12):
        for part in sorted((folder / f"s{number}").glob("o*"), key=lambda path: int(path.name[1:])):
            files = [(file, session(f"s{number}", part.name)) for file in _images(part)]
            (test if f"s{number}" in CORE50_TEST else train).extend(files)
    return _pair(train), _pair(test)


def _core50_classes(folder: Path) -> tuple[Samples, Samples]:
    return _core50(folder, lambda session, thing: thing)


def _core50_sessions(folder: Path) -> tuple[Samples, Samples]:
    return _core50(
        folder, lambda session, thing: (None if session in CORE50_TEST else int(session[1:]), thing)
    )


def _clear10(folder: Path) -> tuple[Samples, Samples]:
    """11 classes in ten buckets of time, each with its own test images."""

    def read(part: str) -> Samples:
        files = []
        buckets = folder / part / "labeled_images"
        for bucket in sorted((b for b in buckets.iterdir() if b.name.isdigit()), key=lambda b: int(b.name)):
            for kind in sorted(path for path in bucket.iterdir() if path.is_dir()):
                files += [(file, (int(bucket.name), kind.name)) for file in _images(kind)]
        return _pair(files)

    if not (folder / "test" / "labeled_images").is_dir():
        raise DataError(f"{folder} lacks test/labeled_images; unpack clear10-test.zip there")
    return read("train_image_only"), read("test")


def _pair(files: list[tuple[str, Any]]) -> Samples:
    return [file for file, _ in files], [label for _, label in files]


CORE50 = ("core50_128x128", "core50_32x32", "core50_350x350")
IMAGE_SETS = {
    "split-tiny-imagenet": ImageSet(
        ("tiny-imagenet-200",), "wnids.txt", "http://cs231n.stanford.edu/tiny-imagenet-200.zip", _tiny_imagenet, 20
    ),
    "split-svhn": ImageSet(
        ("SVHN", "svhn", "."), "train_32x32.mat", "http://ufldl.stanford.edu/housenumbers", _svhn, 5
    ),
    "split-emnist": ImageSet(
        ("EMNIST/raw", "emnist", "gzip"),
        "emnist-letters-train-images-idx3-ubyte.gz",
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        _emnist,
        13,
    ),
    "split-core50": ImageSet(CORE50, "s1", "https://vlomonaco.github.io/core50", _core50_classes, 10),
    "core50": ImageSet(CORE50, "s1", "https://vlomonaco.github.io/core50", _core50_sessions, None),
    "clear10": ImageSet(
        ("clear10", "."),
        "train_image_only/labeled_images",
        "https://clear-benchmark.github.io",
        _clear10,
        None,
        CLEAR_SIZE,
    ),
}  # fmt: skip
