"""A flat state (name → tensor, and one JSON string "meta") to one safetensors file and back.

No pickle, so a file can do nothing but hold numbers. Written beside its place and renamed, so a
reader finds the old file or the new one, never half; a checksum tells an altered file.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["CheckpointError", "State", "read", "write"]

ENTRY = "everlearn"

State = dict[str, Any]
"""Tensors by name, and under "meta" a JSON string."""


class CheckpointError(ValueError):
    """A file or state that can't be taken up; nothing was changed."""


def write(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state to one file, atomically."""
    from safetensors.torch import save

    tensors = {name: part.detach().cpu().contiguous() for name, part in state.items() if name != "meta"}
    meta = str(state["meta"])
    # One entry, since safetensors writes several in any order: equal states make equal files.
    content = save(tensors, {ENTRY: json.dumps({"checksum": _checksum(tensors, meta), "meta": meta})})
    target = Path(path)
    try:
        _replace(target, content)
    except OSError as error:  # which may speak of a file beside it
        raise OSError(error.errno, f"can't be written ({error.strerror or error})", str(target)) from None


def _replace(target: Path, content: bytes) -> None:
    """Put a file in the place of the old one, in one moment."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    _sweep(target)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.{os.getpid()}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def read(path: str | os.PathLike[str]) -> State:
    """The state in a file, or a CheckpointError that says in a sentence why there is none."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise CheckpointError(f"there is no checkpoint at {os.fspath(path)}")
    try:
        with safe_open(path, framework="pt") as file:
            entry = json.loads((file.metadata() or {}).get(ENTRY, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{os.fspath(path)} is no sound checkpoint: {error}") from None
    if "meta" not in entry or "checksum" not in entry:
        raise CheckpointError(f"{os.fspath(path)} is a safetensors file, but not one that everlearn wrote")
    if _checksum(tensors, entry["meta"]) != entry["checksum"]:
        raise CheckpointError(f"{os.fspath(path)} was altered after it was written: its checksum differs")
    return {**tensors, "meta": entry["meta"]}


def _checksum(tensors: Mapping[str, torch.Tensor], meta: str) -> str:
    digest = hashlib.sha256(meta.encode())
    for name in sorted(tensors):
        part = tensors[name]
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
        if part.numel():  # an empty tensor may have strides that can't be viewed as bytes
            digest.update(part.flatten().view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()


def _sweep(target: Path) -> None:
    """Remove what a process that was killed while it wrote has left half done."""
    if os.name != "posix":
        return
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.*"):
        writer = left.name.removeprefix(f".{target.name}.").split(".")[0]
        if writer.isdigit() and not _is_alive(int(writer)):
            left.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last through a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
