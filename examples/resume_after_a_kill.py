"""A learner that is killed in the middle of its stream, and goes on as if nothing had been.

    python examples/resume_after_a_kill.py

This script plays both parts: a worker process that learns and saves after every batch, and the power cut that ends it
at a random moment, three times. At the end the learner is, to the bit, what it would be had nothing happened.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import torch

from everlearn import CoPE, load

BATCHES = 200


def batch(number: int) -> tuple[torch.Tensor, list[str]]:
    """The stream: the same batch whenever it is asked for by its number, as from a log or a queue."""
    generator = torch.Generator().manual_seed(number)
    y = ["calm", "storm"] if number < 100 else ["calm", "a wind nobody had met"]
    x = torch.randn(2, 16, generator=generator) + torch.tensor([[float(len(label))] for label in y])
    return x, y


def work(path: str) -> CoPE:
    """Take up the state that is there, or begin; then learn on and save after every batch."""
    learner = (
        load(path, device="cpu") if os.path.exists(path) else CoPE("mlp", hidden=32, seed=0, device="cpu")
    )
    for number in range(learner.batches, BATCHES):
        learner.observe(*batch(number))
        learner.save(path)
    return learner


def saved_at(path: str) -> int:
    """When the state was last saved; 0 if it never was."""
    return os.stat(path).st_mtime_ns if os.path.exists(path) else 0


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.safetensors")
        for _ in range(3):
            before = saved_at(path)
            worker = subprocess.Popen([sys.executable, __file__, path])
            while saved_at(path) == before:  # until it has begun to learn
                time.sleep(0.01)
            time.sleep(random.uniform(0.0, 0.1))
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            print(f"killed at a random moment: the file is whole, with {load(path).batches} batches learnt")
        resumed = work(path)
        untouched = work(os.path.join(folder, "another.safetensors"))
    ours, theirs = resumed.state_dict(), untouched.state_dict()
    same = all(torch.equal(ours[name], theirs[name]) for name in ours if name != "meta")
    print(f"resumed to batch {resumed.batches}; bit-identical to a learner that nothing stopped: {same}")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        torch.set_num_threads(1)
        work(sys.argv[1])
    else:
        main()
