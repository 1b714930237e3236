"""A live learner at full load for minutes: does its memory grow? `python benchmarks/live_soak.py [--seconds 600]`.

Four threads observe, ask and tell without a pause, and one predicts; a snapshot is written every 500 changes. The
resident memory is read every second. The first third is the warm-up; then the mean of the next tenth of the time is
compared with the mean of the last tenth.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
import threading
import time
from pathlib import Path
from statistics import mean

import torch

from everlearn import CoPE, open_live
from everlearn.live import Live

CLIENTS, BATCH, FEATURES, CLASSES = 4, 10, 784, 10


def resident() -> float:
    """The resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def client(live: Live, number: int, stop: threading.Event) -> None:
    """Observe, ask and tell until it is stopped."""
    generator = torch.Generator().manual_seed(number)
    for turn in itertools.count():
        if stop.is_set():
            return
        y = torch.randint(CLASSES, (BATCH,), generator=generator)
        x = torch.rand(BATCH, FEATURES, generator=generator) + y[:, None] / CLASSES
        ids = [f"{number}/{turn}/{i}" for i in range(BATCH)]
        if turn % 4:
            live.observe(x, y, ids, request_id=f"{number}/{turn}")
        else:
            live.ask(ids, x)
            live.tell(ids[:5], y[:5])


def reader(live: Live, stop: threading.Event) -> None:
    """Predict until it is stopped."""
    x = torch.rand(1, FEATURES)
    while not stop.is_set():
        if live.classes:
            live.predict(x, min_position=0)
        time.sleep(0.002)


def main() -> None:
    """Load, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    live = open_live(folder / "live", CoPE("mlp", memory_size=2000, device="cpu"), snapshot_every=500)
    stop = threading.Event()
    threads = [threading.Thread(target=client, args=(live, i, stop)) for i in range(CLIENTS)]
    threads.append(threading.Thread(target=reader, args=(live, stop)))
    used = []
    try:
        for thread in threads:
            thread.start()
        for _ in range(arguments.seconds):
            time.sleep(1)
            used.append(resident())
        stop.set()
        for thread in threads:
            thread.join()
        samples, status = live.learner.samples, live.status()
        live.close()
    finally:
        stop.set()
        shutil.rmtree(folder)
    tenth, warm = max(len(used) // 10, 1), len(used) // 3
    first, last = mean(used[warm : warm + tenth]), mean(used[-tenth:])
    print(f"{samples:,} samples in {arguments.seconds} s, {samples / arguments.seconds:,.0f} samples/s")
    print(
        f"resident memory {first:.0f} MB after warm-up, {last:.0f} MB at the end: {100 * (last / first - 1):+.1f} %"
    )
    print(f"position {status['position']:,}, journal {status['journal_bytes'] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
