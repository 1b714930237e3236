"""The durable learner against the plain one, and recovery: `python benchmarks/live.py [--batches 1000]`.

The same batches of 10 samples (MLP 2x400) go to a plain learner and to a live one in turn, in parts, so that both
meet the same machine. Then the live one is reopened from its journal alone, as after a kill.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import torch

from everlearn import CoPE, open_live
from everlearn.live import Live

PARTS = 20
BATCH = 10


def learner() -> CoPE:
    """The learner of both sides."""
    return CoPE("mlp", memory_size=2000, device="cpu")


def seconds(learns: CoPE | Live, x: torch.Tensor, y: list[list[int]]) -> float:
    """How long a learner takes for these batches."""
    started = time.perf_counter()
    for samples, labels in zip(x, y, strict=True):
        learns.observe(samples, labels)
    return time.perf_counter() - started


def recovery(folder: Path, x: torch.Tensor, y: list[list[int]]) -> tuple[float, bool]:
    """Seconds to open a folder whose snapshot is older than all batches, and whether the state is the same."""
    live = open_live(folder / "live", learner(), snapshot_every=10**9)
    for samples, labels in zip(x, y, strict=True):
        live.observe(samples, labels)
    state = live.learner.state_dict()
    live.backup(folder / "killed")  # as a kill leaves it: the first snapshot, and the journal
    live.close()
    started = time.perf_counter()
    with open_live(folder / "killed") as again:
        took, found = time.perf_counter() - started, again.learner.state_dict()
    same = state["meta"] == found["meta"] and all(
        torch.equal(state[name], found[name]) for name in state if name != "meta"
    )
    return took, same


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary folder")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.rand(arguments.batches, BATCH, 784)
    y = torch.randint(10, (arguments.batches, BATCH)).tolist()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        plain, live = learner(), open_live(folder / "ratio", learner())
        seconds(plain, x[:50], y[:50]), seconds(live, x[:50], y[:50])
        times = {"plain": 0.0, "durable": 0.0}
        for part in range(PARTS):
            some = slice(50 + part, None, PARTS)
            times["plain"] += seconds(plain, x[some], y[some])
            times["durable"] += seconds(live, x[some], y[some])
        parts = live.status()["seconds"]
        live.close()
        rates = {name: BATCH * (arguments.batches - 50) / took for name, took in times.items()}
        print(f"plain    {rates['plain']:8,.0f} samples/s")
        print(
            f"durable  {rates['durable']:8,.0f} samples/s, {rates['durable'] / rates['plain']:.2f} of the plain rate"
        )
        print(f"a commit takes {1e3 * parts['commit']:.2f} ms, a call {1e3 * parts['step']:.2f} ms")
        took, same = recovery(folder, x, y)
        print(
            f"recovery of {BATCH * arguments.batches:,} samples in the journal: {took:.2f} s, same bits: {same}"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
