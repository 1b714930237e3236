"""The environment of a run: the version of the code and the machine."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

import torch

import everlearn

__all__ = ["cores", "hardware", "on_gpu", "version"]


@functools.cache
def version() -> str:
    """everlearn's version, with the commit where it runs from a clone of the repository.

    >>> version().split(" ")[0] == everlearn.__version__
    True
    """
    root = Path(everlearn.__file__).parents[2]
    if not (root / ".git").exists():
        return everlearn.__version__
    try:
        words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10"]
        commit = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return everlearn.__version__
    return f"{everlearn.__version__} ({commit})"


@functools.cache
def hardware(device: str = "auto") -> str:
    """A description of the machine: the GPU that is used, else the CPU and its cores; and torch's version."""
    number = f"{cores()} core{'s' if cores() > 1 else ''}"
    where = torch.cuda.get_device_name() if on_gpu(device) else f"{_cpu()}, {number}"
    if device.startswith("mps"):
        where += ", its GPU"
    return f"{where}, torch {torch.__version__}"


def on_gpu(device: str = "auto") -> bool:
    """Whether a learner on this device is on an NVIDIA GPU: only these run cohorts and CUDA graphs."""
    return torch.cuda.is_available() and device.startswith(("auto", "cuda"))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """The number of cores that this process may use, or of all cores where the system can't say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
