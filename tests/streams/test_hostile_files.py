"""A dataset's file that claims or unpacks to more than the dataset has is refused before memory is taken."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everlearn.streams import datasets
from everlearn.streams.datasets import DataError

IMAGES = "train-images-idx3-ubyte"
ARCHIVE = "cifar-10-python.tar.gz"
MEGABYTE = 1_000_000


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """Fail if more bytes are taken at one time in here."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most


def refused(name: str, folder: Path, most: int = 5 * MEGABYTE) -> str:
    """The error for a dataset in this folder: one sentence."""
    with little_memory(most), pytest.raises(DataError) as caught:
        datasets.read(name, datasets.locate(name, folder))
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 500
    return said


def spoilt(tiny, name: str, folder: Path, file: str, content: bytes) -> str:
    tiny.write(name, folder)
    (folder / file).write_bytes(content)
    return refused(name, folder)


# ---- gzip and IDX


def test_a_gzipped_file_that_unpacks_to_more_than_the_dataset_has_is_refused(tiny, tmp_path) -> None:
    header = struct.pack(">HBB3I", 0, 8, 3, 60000, 28, 28)
    bomb = gzip.compress(header + bytes(50 * MEGABYTE))
    assert len(bomb) < 100_000
    said = spoilt(tiny, "mnist", tmp_path, IMAGES, bomb)
    assert f"{IMAGES} holds more than the 4720 bytes that are expected" in said


def test_a_plain_file_that_is_larger_than_the_dataset_is_not_read_whole(tiny, tmp_path) -> None:
    tiny.write("mnist", tmp_path)
    with (tmp_path / IMAGES).open("wb") as file:
        file.truncate(50 * MEGABYTE)
    assert "holds more than the 4720 bytes" in refused("mnist", tmp_path)


@pytest.mark.parametrize(
    "shape", [(2**32 - 1,) * 255, (0, *(2**32 - 1,) * 3), (0,) * 255, (2**32 - 1, 2**32 - 1, 2**32 - 1)]
)
def test_an_idx_header_is_not_believed(shape, tiny, tmp_path) -> None:
    content = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    said = spoilt(tiny, "mnist", tmp_path, IMAGES, content)
    assert "where its header says" in said or "where [6, 28, 28] is expected" in said


# ---- archives


def archive(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(tmp_path / ARCHIVE, "w:gz", format=form) as out:
        for member, content in members:
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return tmp_path


@pytest.mark.parametrize("file", ["data_batch_1", "something else"])
def test_an_archive_that_unpacks_to_more_than_the_dataset_has_is_refused(file, tiny, tmp_path) -> None:
    folder = archive(tmp_path, (tarfile.TarInfo(f"folder/{file}"), bytes(60 * MEGABYTE)))
    limit = 16_073_752  # of the tiny dataset
    assert f"{ARCHIVE} holds more than the {limit} bytes" in refused("cifar10", folder, 40 * MEGABYTE)


def test_a_long_header_in_an_archive_is_not_read_beyond_the_limit(tiny, tmp_path) -> None:
    member = tarfile.TarInfo("folder/data_batch_1")
    member.pax_headers = {"comment": "x" * (60 * MEGABYTE)}
    folder = archive(tmp_path, (member, b""))
    assert "holds more than the" in refused("cifar10", folder, 40 * MEGABYTE)


def test_a_sparse_file_in_an_archive_is_not_filled_with_zeros(tiny, tmp_path) -> None:
    header = bytearray(tarfile.TarInfo("folder/data_batch_1").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[483:495] = b"77777777777\0"  # its size when it is filled, 8 GB
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / ARCHIVE).write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    assert f"{ARCHIVE} lacks data_batch_1" in refused("cifar10", tmp_path)


# ---- pickles


def text(word: bytes) -> bytes:
    return b"U" + bytes([len(word)]) + word


TEXT = b"X" + struct.pack("<I", 50_000) + b"x" * 50_000 + b"q\x01"
ENCODE_AGAIN = b"c_codecs\nencode\n(h\x01" + text(b"latin1") + b"tR"
PAIRS = b")" + b"q\x00h\x00\x86" * 22  # pairs of the same two pairs, 22 deep
FORGERIES = {
    "a memo of four billion places": b"\x80\x02}r\xff\xff\xff\xff.",
    "bytes that are not there": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
    "a bytearray that is not there": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "a text that is not there": b"\x80\x02T\xff\xff\xff\x7f.",
    "a frame that is not there": b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b".",
    "many empty lists": b"\x80\x02}(" + b"]" * 400_000 + b"u.",
    "the same text encoded again and again": b"\x80\x02(" + TEXT + ENCODE_AGAIN * 500 + b"l.",
    "pairs of the same pairs as pixels": b"\x80\x02}(" + text(b"data") + PAIRS + b"u.",
    "pairs of the same pairs as a type": b"\x80\x02cnumpy\ndtype\n" + PAIRS + b"\x85R.",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_pickle_takes_no_more_memory_than_a_batch(forgery, tiny, tmp_path) -> None:
    said = spoilt(tiny, "cifar10", tmp_path, "data_batch_1", FORGERIES[forgery])
    assert f"{tmp_path / 'data_batch_1'} " in said


def test_labels_that_are_pairs_of_the_same_pairs_are_not_unfolded(tiny, tmp_path) -> None:
    whole = tiny.files("cifar10")["data_batch_1"]
    pixels = whole[: whole.index(b"X\x06\x00\x00\x00labels")]
    said = spoilt(tiny, "cifar10", tmp_path, "data_batch_1", pixels + text(b"labels") + PAIRS + b"u.")
    assert "has labels that are not a list" in said


def test_what_python_writes_in_any_protocol_that_has_bytes_is_read(tiny, tmp_path) -> None:
    for protocol in (2, 3, 4):
        for file, content in tiny.files("cifar10").items():
            (tmp_path / file).write_bytes(pickle.dumps(pickle.loads(content), protocol=protocol))
        assert len(datasets.read("cifar10", tmp_path).x_train) == 10
