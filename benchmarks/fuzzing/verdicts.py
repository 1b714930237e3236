"""What counts as a clear refusal, and what a learner's state must be afterwards."""

from __future__ import annotations

import dis
import hashlib
import os
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import everlearn

__all__ = ["digest", "is_clear", "not_finite", "where"]

PACKAGE = str(Path(everlearn.__file__).parent) + os.sep
USERS_CODE = str(Path(__file__).parent) + os.sep  # networks and labels of these attacks


def is_clear(error: BaseException) -> bool:
    """Whether an error is a refusal: one line, and raised by the package itself, not by something it called.

    What the user's own code raises may pass through as it is.
    """
    raiser = _raised_by(error)
    if raiser.startswith(USERS_CODE):
        return True
    known = ValueError | TypeError | MemoryError
    if not isinstance(error, known) and not type(error).__module__.startswith("everlearn."):
        return False
    text = str(error)
    return raiser.startswith(PACKAGE) and bool(text.strip()) and "\n" not in text and len(text) <= 500


def _raised_by(error: BaseException) -> str:
    """The file whose `raise` an error comes from; nothing if it comes from compiled code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    steps = {step.offset: step.opname for step in dis.get_instructions(code)}
    return code.co_filename if steps[trace.tb_lasti] in ("RAISE_VARARGS", "RERAISE") else ""


def where(error: BaseException) -> str:
    """The last places in the package that an error passed, and where it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    shown = [f"{frame.filename.removeprefix(PACKAGE)}:{frame.lineno} {frame.name}" for frame in ours[-2:]]
    if frames and frames[-1] not in ours:
        shown.append(f"{Path(frames[-1].filename).name}:{frames[-1].lineno}")
    return " > ".join(shown)


def digest(learner: Any) -> bytes:
    """A learner's state in a few bytes."""
    state = learner.state_dict()
    total = hashlib.blake2b(state["meta"].encode())
    for name in sorted(state):
        part = state[name]
        if isinstance(part, Tensor):
            total.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
            if part.numel():
                total.update(memoryview(part.contiguous().flatten().view(torch.uint8).numpy()))
    return total.digest()


def not_finite(learner: Any) -> list[str]:
    """The parts of a state with values that are not finite."""
    parts = {name: part for name, part in learner.state_dict().items() if isinstance(part, Tensor)}
    return [name for name, part in parts.items() if part.is_floating_point() and not part.isfinite().all()]
