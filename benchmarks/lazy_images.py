"""Images that are decoded while the stream runs: what the learner waits for, in this process and in others.

    python benchmarks/lazy_images.py [--images 2000] [--side 128]

Writes PNGs of noise to a temporary folder, then runs experience replay with a small CNN on them: in memory, decoded
in the process of the learner, and decoded ahead by one and two worker processes. `waited` is the share of the time
that the learner waits for its next batch, after the first one, for which the workers start; the ratio is to the pass
in memory of the same round. `own` is the same ratio of the time that a core worked for the learner's process: it
depends less on what else runs on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from everlearn import learner, split
from everlearn.streams import Stream

KINDS = {
    "in memory": {"in_memory": True},
    "lazy, this process": {"in_memory": False, "workers": 0},
    "lazy, 1 worker": {"in_memory": False, "workers": 1},
    "lazy, 2 workers": {"in_memory": False, "workers": 2},
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(flags.images):
            place = Path(folder) / f"class {number % 10}"
            place.mkdir(exist_ok=True)
            pixels = random.integers(0, 256, (flags.side, flags.side, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{number}.png")
        streams = {name: split(folder, tasks=5, size=32, **options) for name, options in KINDS.items()}
        taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in KINDS}
        for _ in range(flags.rounds):
            for name, stream in streams.items():
                taken[name].append(one_pass(stream))
    whole = taken["in memory"]
    print(f"{flags.images} PNGs of {flags.side} x {flags.side}, resized to 32 x 32, {flags.rounds} rounds")
    for name, passes in taken.items():
        pairs = list(zip(passes, whole, strict=True))
        ratio, own = (median(mine[place] / base[place] for mine, base in pairs) for place in (0, 1))
        seconds, first = (median(each[place] for each in passes) for place in (0, 2))
        share = median(each[3] / each[0] for each in passes)
        print(
            f"{name:20} {seconds:6.2f} s   {ratio:.2f} x   own {own:.2f} x   first batch {first:.2f} s   "
            f"waited {100 * share:.1f} %"
        )


def one_pass(stream: Stream) -> tuple[float, ...]:
    """Seconds after the first batch to learn a stream once, by the clock and of this process; waits for batches."""
    chosen = learner("reservoir", network="cnn", memory_size=200, device="cpu")
    before = time.perf_counter()
    waits, start, own = [], 0.0, 0.0
    for x, y, t in stream:
        waits.append(time.perf_counter() - before)
        if not start:
            start, own = time.perf_counter(), time.process_time()
        chosen.observe(x, y, t)
        before = time.perf_counter()
    return time.perf_counter() - start, time.process_time() - own, waits[0], sum(waits[1:])


if __name__ == "__main__":
    main()
