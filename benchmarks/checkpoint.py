"""What a checkpoint costs: CoPE with a slim ResNet18 and a memory of 5,000 CIFAR images, saved and loaded.

    python benchmarks/checkpoint.py [--folder DIR]

Beside the seconds (the median of ten) it tells the size of the file, and the bytes it must hold: the exemplars, the
weights, the prototypes, the key of each exemplar and the generator. A snapshot, for predictions in other threads,
is timed as well. Then a process replaces a file by another again and again while it is loaded a thousand times:
each load must give one of the two. Random images of the right size: the bytes do not depend on their content.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from everlearn import CoPE, load

IMAGES, CLASSES, TURNS, LOADS = 5000, 10, 10, 1000


def filled() -> CoPE:
    """A learner with 5,000 images in its memory."""
    learner = CoPE("slim-resnet18", memory_size=IMAGES, seed=0, device="cpu")
    for start in range(0, 2 * IMAGES, 100):
        x = torch.randint(0, 256, (100, 3, 32, 32), dtype=torch.uint8)
        y = [i % CLASSES for i in range(start, start + 100)]
        if learner.network is None or start < 200:
            learner.observe(x, y)
        else:  # fill the memory without training
            rows = learner.memory.admit(np.array(learner.labels.slots(y)))
            learner.memory.write(x, torch.from_numpy(rows))
    return learner


def must_hold(learner: CoPE) -> int:
    """The bytes without which the learner would not be what it is."""
    samples, _ = learner.memory.samples()
    assert learner.network is not None
    weights = sum(part.nbytes for part in learner.network.state_dict().values())
    prototypes = sum(part.nbytes for part in learner.prototypes.values())
    return samples.nbytes + weights + prototypes + 8 * len(samples) + learner.generator.get_state().nbytes


def median_seconds(action: Callable[[], object]) -> float:
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


WRITER = """
import os, sys
folder = sys.argv[1]
while os.getppid() == int(sys.argv[2]):
    for name in ("1", "30"):
        os.link(f"{folder}/{name}", f"{folder}/next")
        os.replace(f"{folder}/next", f"{folder}/replaced")
"""


def loads_beside_a_writer(folder: Path) -> int:
    """How many of many loads fail while two checkpoints of different sizes take each other's place."""
    for batches in (1, 30):
        learner = CoPE("mlp", memory_size=100, hidden=16, embedding=8, seed=0, device="cpu")
        for _ in range(batches):
            learner.observe(torch.randn(4, 5), ["a", "b", "c", "d"])
        learner.save(folder / str(batches))
    learner.save(folder / "replaced")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(os.getpid())])
    failures = 0
    for _ in range(LOADS):
        try:
            failures += load(folder / "replaced", device="cpu").batches not in (1, 30)
        except Exception:
            failures += 1
    writer.kill()
    writer.wait()
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to write; by default a folder for temporary files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    learner = filled()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "state.safetensors"
        saving = median_seconds(lambda: learner.save(path))
        loading = median_seconds(lambda: load(path, device="cpu"))
        size, needed = path.stat().st_size, must_hold(learner)
        failures = loads_beside_a_writer(Path(folder))
    print(f"{len(learner.memory):,} images, one core, torch {torch.__version__}; medians of {TURNS}")
    print(f"save      {saving:6.3f} s")
    print(f"load      {loading:6.3f} s")
    more = 100 * (size / needed - 1)
    print(f"file      {size / 1e6:6.2f} MB, {more:+.2f} % beyond the {needed / 1e6:.2f} MB it must hold")
    print(f"snapshot  {1e3 * median_seconds(learner.snapshot):6.2f} ms")
    print(f"{failures} of {LOADS:,} loads beside a writer failed")


if __name__ == "__main__":
    main()
