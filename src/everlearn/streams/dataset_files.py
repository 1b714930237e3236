"""Find the files of a dataset: which files each one has, and in which folders they are searched.

The folders are, in this order: `data_dir` if it is given, `$EVERLEARN_DATA` if it is set, the user's cache folder.
In each of them the layouts of torchvision and of the published archives are recognised.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everlearn.messages import nearest
from everlearn.streams.formats import Bytes, DataError, join_words, read_idx

__all__ = [
    "CHECKSUMS",
    "CIFAR_BATCHES",
    "IDX_FILES",
    "LAYOUTS",
    "NAMES",
    "Layout",
    "check_name",
    "data_folders",
    "existing_file",
    "find",
    "locate",
    "required_files",
    "sha256",
    "shares_file_names",
    "user_cache_folder",
]

CHECKSUMS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("checksums.json").read_text("utf-8")
)
NAMES = tuple(CHECKSUMS)
DEBIAN_FOLDER = Path("/usr/share/datasets")  # where Debian's package of Fashion-MNIST is installed


@dataclass(frozen=True)
class Layout:
    """The files of a dataset: which subfolders they may be in, and the name of the archive with all of them."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    archive: str = ""


IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
CIFAR_BATCHES: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    "cifar100": {"train": ("train",), "test": ("test",)},
}
LAYOUTS = {
    "mnist": Layout(("MNIST/raw", "mnist", "."), tuple(IDX_FILES.values())),
    "fashion-mnist": Layout(("FashionMNIST/raw", "fashion-mnist", "."), tuple(IDX_FILES.values())),
    "cifar10": Layout(
        ("cifar-10-batches-py", "."),
        (*CIFAR_BATCHES["cifar10"]["train"], "test_batch", "batches.meta"),
        "cifar-10-python.tar.gz",
    ),
    "cifar100": Layout(("cifar-100-python", "."), ("train", "test", "meta"), "cifar-100-python.tar.gz"),
}
# Two datasets whose files have the same names.
_SAME_FILE_NAMES = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}


def check_name(name: str) -> None:
    """Raise a DataError that suggests the nearest name, unless there is a dataset of this name."""
    if name not in NAMES:
        raise DataError(f"there is no dataset {name!r}{nearest(name, NAMES)}")


def locate(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder or archive that holds the dataset; a DataError that lists the searched folders if none does."""
    folders = data_folders(name, data_dir)
    place = find(name, folders)
    if place is not None:
        return place
    if name == "digits":
        raise DataError(
            "digits come with scikit-learn, which is not installed; run `pip install scikit-learn`"
        )
    problems = "".join(f"; {place} {problem}" for place, problem in _candidates(name, folders))
    raise DataError(
        f"{name} was not found: {required_files(name)} is in none of the folders searched, "
        f"{join_words(map(str, folders))}{problems}; run `everlearn data fetch {name}` to download it, or set "
        "--data-dir or $EVERLEARN_DATA to the folder that holds it"
    )


def find(name: str, folders: Sequence[Path]) -> Path | None:
    """The first place in these folders with all files of the dataset, or None; the files are not read."""
    if name == "digits":
        package = importlib.util.find_spec("sklearn")
        return Path(package.origin).parent if package and package.origin else None
    return next((place for place, problem in _candidates(name, folders) if not problem), None)


def data_folders(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders to search for this dataset, in order; a DataError if `name` or `data_dir` does not exist."""
    check_name(name)
    folders = []
    if data_dir is not None:
        folders.append(Path(data_dir).expanduser())
        if not folders[0].is_dir():
            what = "is a file, not a folder" if folders[0].exists() else "does not exist"
            remedy = (
                f"; pass the folder that holds {required_files(name)}, or run `everlearn data fetch {name}`"
            )
            raise DataError(f"the data folder {folders[0]} {what}{remedy if name != 'digits' else ''}")
    if os.environ.get("EVERLEARN_DATA"):
        folders.append(Path(os.environ["EVERLEARN_DATA"]).expanduser())
    folders.append(user_cache_folder())
    if name == "fashion-mnist":
        folders.append(DEBIAN_FOLDER)
    return folders


def user_cache_folder() -> Path:
    """The folder for downloads: `$XDG_CACHE_HOME/everlearn` or `~/.cache/everlearn` on Linux.

    A user without a home folder, as in some containers, gets a folder in the working directory.
    """
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("everlearn", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Some versions of platformdirs leave the ~ of a missing home folder in the path.
    return folder if folder.is_absolute() else Path.cwd() / ".cache" / "everlearn"


def required_files(name: str) -> str:
    """The published files of a dataset as a phrase for messages."""
    if name == "digits":
        return "your datasets (digits need none)"
    layout = LAYOUTS[name]
    if layout.archive:
        return f"{layout.archive} (or the folder {layout.folders[0]})"
    return f"{layout.files[0]} with {join_words(layout.files[1:])} (or the same with .gz)"


def existing_file(folder: Path, file: str) -> Path | None:
    """The file under one of its usual names: gzipped or not, with a dash or a dot before `idx`."""
    names = (file, f"{file}.gz", file.replace("-idx", ".idx"), file.replace("-idx", ".idx") + ".gz")
    return next((folder / name for name in names if os.path.isfile(folder / name)), None)


def shares_file_names(name: str) -> bool:
    """Whether another dataset has files of the same names."""
    return name in _SAME_FILE_NAMES


def sha256(array: Bytes) -> str:
    """The checksum of a decoded array, in hexadecimal."""
    digest = hashlib.sha256()
    for start in range(0, len(array), 1000):  # in parts, because a transposed array is copied to be hashed
        digest.update(array[start : start + 1000].tobytes())
    return digest.hexdigest()


def _candidates(name: str, folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Every place with files named like the dataset's, and why it can't be used ("" if it can)."""
    layout = LAYOUTS[name]
    for folder in folders:
        for place in (folder / inside for inside in layout.folders):
            missing = [file for file in layout.files if existing_file(place, file) is None]
            if not missing:
                yield place, _other_dataset(name, place)
            elif len(missing) < len(layout.files):
                yield place, f"lacks {missing[0]}"
        if layout.archive and os.path.isfile(folder / layout.archive):
            yield folder / layout.archive, ""


def _other_dataset(name: str, place: Path) -> str:
    """MNIST and Fashion-MNIST share their file names: the small file of test labels shows which one it is."""
    if name not in _SAME_FILE_NAMES:
        return ""
    try:
        path = existing_file(place, IDX_FILES["y_test"]) or place
        labels = read_idx(name, path, CHECKSUMS[name]["arrays"]["y_test"]["shape"])
    except DataError:
        return ""  # the error is raised when the whole dataset is read
    other = _SAME_FILE_NAMES[name]
    return f"holds {other}" if sha256(labels) == CHECKSUMS[other]["arrays"]["y_test"]["sha256"] else ""
