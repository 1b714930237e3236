"""Recordings that are well-formed, with right checksums, but hold what no recording can: one sentence each."""

from __future__ import annotations

import json
import os
import random
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forgery import forged

from everlearn.streams import as_stream
from everlearn.streams.playback import playback
from everlearn.streams.record_format import MAGIC, RecordingError, read_chunk
from everlearn.streams.recording import record

Chunk = tuple[Any, bytes]


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> list[Chunk]:
    """The chunks of a recording with a bit of everything."""
    batches = [
        (np.eye(3, dtype=np.uint8), ["a", (1, b"x"), None], 0),
        (torch.eye(3), torch.arange(3), 1),
        (np.eye(3), np.array(["a", "b", "c"]), 1),
    ]
    own = as_stream(batches, tests=[(np.eye(2), [1.5, True])], tasks=2, classes=["a", 2.5])
    path = tmp_path_factory.mktemp("intact") / "a.stream"
    record(own, path)
    with path.open("rb") as file:
        file.seek(len(MAGIC))
        chunks = []
        while file.tell() < os.fstat(file.fileno()).st_size:
            chunks.append(read_chunk(file))
    return chunks


def signed(path: Path, chunks: list[Chunk]) -> Path:
    """A recording of these chunks, each with the checksums that it should have."""
    parts = [MAGIC]
    for header, body in chunks:
        head = header if isinstance(header, bytes) else json.dumps(header).encode()
        lengths = struct.pack("<IIQI", len(head), zlib.crc32(head), len(body), zlib.crc32(body))
        parts += [lengths, struct.pack("<I", zlib.crc32(lengths)), head, body]
    path.write_bytes(b"".join(parts))
    return path


def use(path: Path) -> None:
    """Everything that is done with a recording."""
    again = playback(path)
    assert isinstance(again.name, str)
    assert again.tells <= {"t", "tasks", "classes"}
    for whole in (again.seed, again.batch_size, again.imbalance, again.tasks):
        assert whole is None or isinstance(whole, int)
    set(again.classes or [])
    for x, y in again.tests:
        assert len(x) == len(y)
    seen = 0
    for x, y, t in again:
        set(y if isinstance(y, list) else y.tolist())
        assert t is None or isinstance(t, int)
        seen += len(x)
    assert seen == again.samples


def test_the_forger_signs_as_a_recording_is_signed(intact, tmp_path) -> None:
    use(signed(tmp_path / "a.stream", intact))


def test_a_forged_recording_is_played_back_or_refused_in_one_sentence(intact, tmp_path) -> None:
    rng = random.Random(0)
    refused = []
    for _ in range(600):
        chunks = [*intact]
        place = rng.randrange(len(chunks))
        header, body = chunks[place]
        if rng.random() < 0.8:
            chunks[place] = forged(header, rng), body
        else:
            chunks[place] = header, (body + bytes(9))[: rng.randrange(len(body) + 9)]
        try:
            use(signed(tmp_path / "a.stream", chunks))
        except RecordingError as error:
            refused.append(str(error))
    assert len(refused) > 300
    assert [said for said in refused if "\n" in said or len(said) > 400] == []


@pytest.mark.parametrize(
    ("place", "change", "sentence"),
    [
        (0, {"seed": "0"}, r"damaged in the description of the stream \(its seed is missing or can't be read\)"),
        (0, {"tells": [["t"]]}, "its tells is missing or can't be read"),
        (0, {"classes": [["a"]]}, "one of its labels can't be read"),
        (1, {"y": {"labels": [1.0]}}, r"test set 0 \(it has 2 samples, but not one label for each\)"),
        (1, {"kind": "stream"}, "there is a chunk of the kind 'stream' where a batch is expected"),
        (2, {"x": {"array": "|O", "shape": [3]}}, r"batch 1 \(an array of '\|O' can't be stored as plain bytes\)"),
        (2, {"x": {"array": "|u1", "shape": [-3, -3]}}, "the shape of an array is not a short list of whole"),
        (2, {"x": {"array": "|u1", "shape": []}}, "its x is a single number"),
        (2, {"x": {"tensor": "qint8", "shape": [3, 3]}}, "there are no tensors of 'qint8'"),
        (2, {"x": {"tensor": "Tensor", "shape": [3, 3]}}, "there are no tensors of 'Tensor'"),
        (2, {"y": {"labels": [{"float": 3}, {}, {"tuple": 1}]}}, "one of its labels can't be read"),
        (2, {"y": {"labels": 3}}, "its labels are not a list"),
        (2, {"t": "yesterday"}, "its t is not a whole number"),
    ],
)  # fmt: skip
def test_what_is_forged_is_named(place, change, sentence, intact, tmp_path) -> None:
    chunks = [*intact]
    chunks[place] = chunks[place][0] | change, chunks[place][1]
    with pytest.raises(RecordingError, match=sentence):
        use(signed(tmp_path / "a.stream", chunks))


def test_a_test_set_after_the_first_batch_is_refused(intact, tmp_path) -> None:
    about, test, *batches = intact
    with pytest.raises(RecordingError, match="there is a chunk of the kind 'test' where a batch is expected"):
        playback(signed(tmp_path / "a.stream", [about, *batches, test]))


@pytest.mark.parametrize("head", [b"3", b"[" * 100_000, b"\xff", b'{"a": ' + b"9" * 5000 + b"}"])
def test_a_header_that_is_no_json_object_is_refused(head, intact, tmp_path) -> None:
    with pytest.raises(RecordingError, match="its header is not (a )?JSON"):
        playback(signed(tmp_path / "a.stream", [(head, b""), *intact[1:]]))


@pytest.mark.parametrize("shape", [[2**40, 2**20], [10**9, 1], [2**62, 2**62]])
def test_an_array_larger_than_the_file_takes_no_memory(shape, intact, tmp_path) -> None:
    header, body = intact[2]
    path = signed(
        tmp_path / "a.stream", [*intact[:2], (header | {"x": {"array": "<f8", "shape": shape}}, body)]
    )
    again = playback(path)
    tracemalloc.start()
    with pytest.raises(RecordingError, match="an array of .* bytes is announced, but there are 9"):
        next(iter(again))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_tensor_without_plain_bytes_is_not_recorded(tmp_path) -> None:
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(RecordingError, match="batch 1 can't be recorded: a tensor of torch.float32"):
        record([(sparse, ["a", "b"])], tmp_path / "a.stream")
