"""Resume a learner after its process was killed, bit for bit.

    python examples/resume_after_a_kill.py

A worker process learns from a stream and saves its state after every batch. This script kills it three times at a
random moment, then lets it finish. The result is identical to that of a learner that was never interrupted.
"""

import os
import random
import subprocess
import sys
import tempfile
import time

import torch

from everlearn import CoPE, load

BATCHES = 80


def batch(number: int) -> tuple[torch.Tensor, list[str]]:
    """A batch by its number, the same each time, as from a log or a queue."""
    generator = torch.Generator().manual_seed(number)
    y = ["calm", "storm"] if number < 40 else ["calm", "a new kind of wind"]
    x = torch.randn(2, 16, generator=generator) + torch.tensor([[float(len(label))] for label in y])
    return x, y


def work(path: str) -> CoPE:
    """Load the saved state if there is one, then learn the remaining batches and save after each."""
    saved = os.path.exists(path)
    learner = load(path, device="cpu") if saved else CoPE("mlp", hidden=32, seed=0, device="cpu")
    for number in range(learner.batches, BATCHES):
        learner.observe(*batch(number))
        learner.save(path)  # replaces the file atomically: it is never half written
    return learner


def saved_at(path: str) -> int:
    """When the state was last saved; 0 if it never was."""
    return os.stat(path).st_mtime_ns if os.path.exists(path) else 0


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.safetensors")

        # Step 1: start the worker and kill it, three times.
        for _ in range(3):
            before = saved_at(path)
            worker = subprocess.Popen([sys.executable, __file__, path])
            while saved_at(path) == before:  # until it has started to learn
                time.sleep(0.01)
            time.sleep(random.uniform(0.0, 0.1))
            worker.kill()
            worker.wait()
            print(f"killed at a random moment; the file is valid, with {load(path).batches} batches learnt")

        # Step 2: finish, and compare with a learner that was not interrupted.
        resumed = work(path)
        uninterrupted = work(os.path.join(folder, "another.safetensors"))

    ours, theirs = resumed.state_dict(), uninterrupted.state_dict()
    same = all(torch.equal(ours[name], theirs[name]) for name in ours if name != "meta")
    print(f"resumed to batch {resumed.batches}; bit-identical to an uninterrupted learner: {same}")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        torch.set_num_threads(1)
        work(sys.argv[1])
    else:
        main()
