"""Datasets for the tests: tiny ones in their makers' formats, and the real ones where they can be had."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import browser
import hypothesis
import numpy as np
import pytest
import torch
from emulated_graph import emulated_gpu

from everlearn.streams import dataset_files, datasets

# Hypothesis must not fail a test because a machine is slow.
hypothesis.settings.register_profile("everlearn", deadline=None)
hypothesis.settings.load_profile("everlearn")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With $EVERLEARN_NO_SKIPS, a test that is skipped fails the run: `make test-services`."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("EVERLEARN_NO_SKIPS") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    """A browser."""
    binary = browser.find()
    if binary is None:
        pytest.skip("no Chromium here: `apt-get install chromium`, or set $CHROMIUM to where one is")
    opened = browser.Browser(binary, tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def gpu() -> Iterator[str]:
    """The name of a GPU; where there is none, the CPU, with its CUDA graphs emulated."""
    if torch.cuda.is_available():
        yield "cuda"
    else:
        with emulated_gpu():
            yield "cpu"


GIVEN = os.environ.get("EVERLEARN_DATA")
PACKED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def mnist_dir() -> Path:
    """A data folder with the real MNIST."""
    return _real("mnist")


@pytest.fixture(scope="session")
def cifar10_dir() -> Path:
    """A data folder with the real CIFAR10."""
    return _real("cifar10")


def _real(name: str) -> Path:
    """$EVERLEARN_DATA if it holds the dataset, else the packed copy, unpacked once per user and machine."""
    if GIVEN and datasets.find(name, [Path(GIVEN)]):
        return Path(GIVEN)
    if not (PACKED / "unpack.py").exists():
        pytest.skip(f"the real {name} is not here: set $EVERLEARN_DATA to a folder that holds it")
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    home = Path(tempfile.gettempdir()) / f"everlearn-tests-{user}"
    home.mkdir(mode=0o700, exist_ok=True)
    if not (home / name).exists():
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            subprocess.run([sys.executable, PACKED / "unpack.py", Path(scratch, name), name], check=True)
            try:
                Path(scratch, name).rename(home / name)
            except OSError:  # another worker was first
                assert (home / name).exists()
    return home / name


class Tiny:
    """Makers' files with a handful of random images in place of the real ones."""

    def __init__(self) -> None:
        self.arrays: dict[str, dict[str, np.ndarray]] = {}
        for seed, name in enumerate(datasets.LAYOUTS):
            rng = np.random.default_rng(seed)
            shape, train = ((28, 28), 6) if "mnist" in name else ((32, 32, 3), 10)
            self.arrays[name] = {
                "x_train": rng.integers(0, 256, (train, *shape), dtype=np.uint8),
                "y_train": rng.integers(0, 10, train, dtype=np.uint8),
                "x_test": rng.integers(0, 256, (2, *shape), dtype=np.uint8),
                "y_test": np.array([seed, 9 - seed], dtype=np.uint8),
            }

    def checksums(self, name: str) -> dict[str, dict[str, object]]:
        return {
            key: {"shape": list(array.shape), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
            for key, array in self.arrays[name].items()
        }

    def files(self, name: str) -> dict[str, bytes]:
        """What the maker publishes: file name -> content, not yet compressed."""
        x_train, y_train, x_test, y_test = self.arrays[name].values()
        if "mnist" in name:
            contents = [self.idx(array) for array in (x_train, y_train, x_test, y_test)]
            return dict(zip(datasets.LAYOUTS[name].files, contents, strict=True))
        if name == "cifar100":
            train, test = self.batch(x_train, fine_labels=y_train), self.batch(x_test, fine_labels=y_test)
            return {"train": train, "test": test, "meta": pickle.dumps({}, protocol=2)}
        parts = [slice(start, start + 2) for start in range(0, 10, 2)]
        batches = {
            f"data_batch_{i}": self.batch(x_train[p], labels=y_train[p]) for i, p in enumerate(parts, 1)
        }
        meta = pickle.dumps({}, protocol=2)
        return batches | {"test_batch": self.batch(x_test, labels=y_test), "batches.meta": meta}

    def write(self, name: str, folder: Path) -> Path:
        """Write the maker's files into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in self.files(name).items():
            (folder / file).write_bytes(content)
        return folder

    @staticmethod
    def idx(array: np.ndarray) -> bytes:
        return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()

    @staticmethod
    def batch(x: np.ndarray, **labels: np.ndarray) -> bytes:
        rows = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), 3072)
        return pickle.dumps({"data": rows} | {key: y.tolist() for key, y in labels.items()}, protocol=2)

    @staticmethod
    def tar(files: dict[str, bytes]) -> bytes:
        """A gzipped archive with these files in a folder."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for file, content in files.items():
                member = tarfile.TarInfo(f"folder/{file}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return out.getvalue()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tiny:
    """Tiny datasets that count as the published ones, on a machine that holds no others."""
    tiny = Tiny()
    for name in tiny.arrays:
        monkeypatch.setitem(datasets.CHECKSUMS[name], "arrays", tiny.checksums(name))
    monkeypatch.delenv("EVERLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset_files, "DEBIAN_FOLDER", tmp_path / "debian")
    return tiny
