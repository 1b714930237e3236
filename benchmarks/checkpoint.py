"""What a checkpoint costs: CoPE with a slim ResNet18 and a memory of 5,000 CIFAR images, saved and loaded.

    python benchmarks/checkpoint.py [--folder DIR]

Beside the seconds (the median of ten) it tells the size of the file, and the bytes it must hold: the exemplars, the
weights, the prototypes, the key of each exemplar and the generator. A snapshot, for predictions in other threads,
is timed as well. Random images of the right size: the bytes do not depend on their content.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from everlearn import CoPE, load

IMAGES, CLASSES, TURNS = 5000, 10, 10


def filled() -> CoPE:
    """A learner that keeps 5,000 images."""
    learner = CoPE("slim-resnet18", memory_size=IMAGES, seed=0, device="cpu")
    for start in range(0, 2 * IMAGES, 100):
        x = torch.randint(0, 256, (100, 3, 32, 32), dtype=torch.uint8)
        y = [i % CLASSES for i in range(start, start + 100)]
        if learner.network is None or start < 200:
            learner.observe(x, y)
        else:  # only what fills the memory, without the steps
            rows = learner.memory.admit(learner.prepare(y, keep=False)[0])
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
    print(f"{len(learner.memory):,} images, one core, torch {torch.__version__}; medians of {TURNS}")
    print(f"save      {saving:6.3f} s")
    print(f"load      {loading:6.3f} s")
    more = 100 * (size / needed - 1)
    print(f"file      {size / 1e6:6.2f} MB, {more:+.2f} % beyond the {needed / 1e6:.2f} MB it must hold")
    print(f"snapshot  {1e3 * median_seconds(learner.snapshot):6.2f} ms")


if __name__ == "__main__":
    main()
