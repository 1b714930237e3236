"""A hundred kills: a run on disk is killed at random moments while it learns and saves, and resumed each time.

    python benchmarks/kills.py [--kills 100] [--learners cope reservoir] [--seed 0]

A run is a learner on split-digits with a checkpoint after every second batch. A process of its own is killed with
SIGKILL after a random time and another one goes on, until the run ends; then the next run begins. Every time the
file must be readable and not behind where it was; at the end, learner and metrics must be, to the bit, those of a
run that nothing stopped, and nothing may be left beside the checkpoint.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import torch

from everlearn import Evaluator, load, run, stream
from everlearn.engine.result import Result
from everlearn.experiments.settings import learner

EVERY = 2


def go(name: str, seed: int, path: Path) -> Result:
    """The run, from wherever it is."""
    source = stream("split-digits", seed=seed)
    made = learner(name, source, seed=seed, device="cpu", hidden=64)
    return run(
        made, source, Evaluator(EVERY, transitions=False, prequential=True), checkpoint=path, samples=600
    )


def go_and_be_killed(name: str, seed: int, path: Path, seconds: float) -> bool:
    """The same in a process that is killed after so many seconds; True if it was, before it had ended."""
    process = os.fork()
    if process == 0:
        try:
            torch.set_num_threads(1)
            go(name, seed, path)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


def metrics(result: Result) -> list[object]:
    """Everything that was measured."""
    looks = [
        (look.samples, look.accuracies, look.exemplars, look.confusion.tolist()) for look in result.history
    ]
    return [looks, result.correct, result.sizes, result.samples]


def batches_in(path: Path) -> int:
    """How many batches the checkpoint holds; 0 where there is none yet. A file that is not whole is an error."""
    return load(path, device="cpu").batches if path.exists() else 0


def same_learner(path: Path, other: Path) -> bool:
    """Whether two checkpoints hold the same learner, to the bit."""
    ours, theirs = (load(each, device="cpu").state_dict() for each in (path, other))
    tensors = [name for name in ours if name != "meta"]
    same = all(torch.equal(ours[name], theirs[name]) for name in tensors)
    return same and ours["meta"] == theirs["meta"] and ours.keys() == theirs.keys()


def kill_until_done(name: str, seed: int, folder: Path, kills: int, chance: random.Random) -> int:
    """Kill a run until it has ended or so many kills are done; returns how many there were."""
    whole, path = folder / f"{name}-{seed}-whole", folder / f"{name}-{seed}"
    start = time.perf_counter()
    expected = go(name, seed, whole)
    length = time.perf_counter() - start
    done = progress = 0
    while done < kills and go_and_be_killed(name, seed, path, chance.uniform(0.02, 0.25) * length):
        done += 1
        now = batches_in(path)
        if now < progress:
            raise AssertionError(f"{name}: the checkpoint fell back from batch {progress} to {now}")
        progress = now
    result = go(name, seed, path)
    if metrics(result) != metrics(expected) or not same_learner(path, whole):
        raise AssertionError(
            f"{name}, seed {seed}: resumed after {done} kills it is not what it was without any"
        )
    left = sorted(part.name for part in folder.iterdir() if part.name.startswith("."))
    if left:
        raise AssertionError(f"{name}, seed {seed}: {left} were left beside the checkpoint")
    print(f"{name:10s} seed {seed}: {done:3d} kills, then bit-identical")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--learners", nargs="+", default=["cope", "reservoir", "mir", "finetune"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chance = random.Random(options.seed)
    done = seed = 0
    with tempfile.TemporaryDirectory() as folder:
        go(options.learners[0], 0, Path(folder) / "warm-up")  # a first run takes longer than those after it
        while done < options.kills:
            name = options.learners[seed % len(options.learners)]
            done += kill_until_done(name, seed, Path(folder), options.kills - done, chance)
            seed += 1
    print(f"{done} kills in {seed} runs: no checkpoint lost, every resume bit-identical")


if __name__ == "__main__":
    main()
