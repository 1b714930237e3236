"""Chunks of a file, each checked by itself.

A chunk is the lengths of its two parts, their checksums, a header in JSON, and a body of raw bytes.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Any, BinaryIO

__all__ = ["CutOffError", "read_chunk", "skip_chunk", "to_chunk"]

LENGTHS = struct.Struct("<IIQI")  # bytes of the header, its crc32, bytes of the body, its crc32
LARGEST_HEADER = 1 << 28  # bytes of JSON, a hundred times what a large batch's labels take
CHECK = struct.Struct("<I")  # crc32 of the lengths, so that a wrong one is never believed


class CutOffError(ValueError):
    """The file ends in the middle of a chunk."""


def to_chunk(header: dict[str, Any], body: bytes) -> bytes:
    """What is written to the file."""
    head = json.dumps(header).encode()
    if len(head) > LARGEST_HEADER:
        raise ValueError(f"its labels take {len(head)} bytes, more than {LARGEST_HEADER}; make them an array")
    lengths = LENGTHS.pack(len(head), zlib.crc32(head), len(body), zlib.crc32(body))
    return b"".join([lengths, CHECK.pack(zlib.crc32(lengths)), head, body])


def read_chunk(file: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """The header and the body of the next chunk."""
    header, size, checksum = _header(file)
    body = file.read(size)
    if zlib.crc32(body) != checksum:
        raise ValueError("its checksum differs")
    return header, body


def skip_chunk(file: BinaryIO) -> dict[str, Any]:
    """The header of the next chunk; the file then stands behind the chunk, whose body was not read."""
    header, size, _ = _header(file)
    file.seek(size, os.SEEK_CUR)
    return header


def _header(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """The header of the next chunk, and the length and the checksum of the body that follows."""
    start = file.read(LENGTHS.size + CHECK.size)
    if len(start) < LENGTHS.size + CHECK.size:
        raise CutOffError("the file ends in it")
    lengths, check = start[: LENGTHS.size], start[LENGTHS.size :]
    if CHECK.pack(zlib.crc32(lengths)) != check:
        raise ValueError("its checksum differs")
    head_size, head_checksum, body_size, body_checksum = LENGTHS.unpack(lengths)
    if file.tell() + head_size + body_size > os.fstat(file.fileno()).st_size:
        raise CutOffError("the file ends in it")
    if head_size > LARGEST_HEADER:
        raise ValueError(f"its header has {head_size} bytes, more than {LARGEST_HEADER}")
    head = file.read(head_size)
    if zlib.crc32(head) != head_checksum:
        raise ValueError("its checksum differs")
    try:
        header = json.loads(head)
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header, body_size, body_checksum
