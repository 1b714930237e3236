"""Kill runs of every learner at random moments while they learn and save, and resume them each time.

    python benchmarks/kills.py [--kills 1000] [--learners cope reservoir] [--seed 0]

A run is a learner on split-digits with a checkpoint after every second batch. A process of its own is killed with
SIGKILL after a random time and another one goes on, until the run ends; then another learner's run begins.
After every kill the file must be readable and not behind where it was; at the end learner and metrics must be, to the
bit, those of a run that nothing stopped, and nothing may be left beside the checkpoint. Whatever is not so counts as
a difference.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import torch

from everlearn import Evaluator, load, run, stream
from everlearn.checkpoint import CheckpointError
from everlearn.engine.result import Result
from everlearn.experiments.settings import learner
from everlearn.learners import registry
from everlearn.streams.horizon import Horizon

EVERY = 2
# What makes a run short where a learner sleeps or sees a task more than once.
SMALLER = {
    "gdumb": {"passes": 2},
    "cn-dpm": {"short_term_memory": 60, "generative_steps": 40, "discriminative_steps": 20, "hidden": 16},
}
SHORTER = {"curl": Horizon("task", epochs=2), "iid-offline": Horizon("stream", epochs=2)}


def go(name: str, seed: int, path: Path) -> Result:
    """The run, resumed from its checkpoint if there is one."""
    source = stream("split-digits", seed=seed)
    made = learner(name, source, seed=seed, device="cpu", **{"hidden": 64} | SMALLER.get(name, {}))
    evaluator = Evaluator(EVERY, transitions=False, prequential=True)
    return run(made, source, evaluator, checkpoint=path, samples=600, horizon=SHORTER.get(name))


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
    evaluations = [
        (evaluation.samples, evaluation.accuracies, evaluation.exemplars, evaluation.confusion.tolist())
        for evaluation in result.history
    ]
    return [evaluations, result.correct, result.sizes, result.samples]


def batches_in(path: Path) -> int:
    """How many batches the checkpoint holds; 0 where there is none yet. A file that is not whole is an error."""
    return load(path, device="cpu").batches if path.exists() else 0


def same_learner(path: Path, other: Path) -> bool:
    """Whether two checkpoints hold the same learner, to the bit."""
    ours, theirs = (load(each, device="cpu").state_dict() for each in (path, other))
    tensors = [name for name in ours if name != "meta"]
    same = ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in tensors)
    return same and ours["meta"] == theirs["meta"]


@dataclasses.dataclass
class Row:
    """The outcome of a learner's runs."""

    runs: int = 0
    kills: int = 0
    differences: list[str] = dataclasses.field(default_factory=list)


def kill_until_done(name: str, seed: int, folder: Path, kills: int, chance: random.Random, row: Row) -> None:
    """Kill a run until it has ended or so many kills are done, and count them; then let it end and compare it."""
    whole, path = folder / f"{name}-{seed}-whole", folder / f"{name}-{seed}"
    start = time.perf_counter()
    expected = go(name, seed, whole)
    length = time.perf_counter() - start
    done = progress = 0
    while done < kills and go_and_be_killed(name, seed, path, chance.uniform(0.02, 0.25) * length):
        done += 1
        try:
            now = batches_in(path)
        except CheckpointError as error:
            row.differences.append(f"seed {seed}: after kill {done} the checkpoint is lost: {error}")
            break
        if now < progress:
            row.differences.append(f"seed {seed}: the checkpoint fell back from batch {progress} to {now}")
        progress = now
    row.kills += done
    row.runs += 1
    result = go(name, seed, path)
    if metrics(result) != metrics(expected) or not same_learner(path, whole):
        row.differences.append(f"seed {seed}: resumed after {done} kills it is not what it was without any")
    left = sorted(part.name for part in folder.iterdir() if part.name.startswith("."))
    if left:
        row.differences.append(f"seed {seed}: {left} were left beside the checkpoint")
    for part in (whole, path):
        part.unlink()


def table(rows: dict[str, Row]) -> str:
    """Runs, kills and differences by learner."""
    lines = [f"{'learner':12s} {'runs':>5s} {'kills':>6s} {'differences':>11s}"]
    for name, row in rows.items():
        lines.append(f"{name:12s} {row.runs:5d} {row.kills:6d} {len(row.differences):11d}")
    lines += [f"{name}, {difference}" for name, row in rows.items() for difference in row.differences]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--learners", nargs="+", default=list(registry()), choices=list(registry()))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chance = random.Random(options.seed)
    rows = {name: Row() for name in options.learners}
    seed = 0
    with tempfile.TemporaryDirectory() as folder:
        go(options.learners[0], 0, Path(folder) / "warm-up")  # a first run takes longer than those after it
        while (left := options.kills - sum(row.kills for row in rows.values())) > 0:
            # The learner with the fewest kills is next, so that all get their share.
            name = min(rows, key=lambda name: rows[name].kills)
            share = -(-options.kills // len(rows)) - rows[name].kills
            kill_until_done(name, seed, Path(folder), min(left, share), chance, rows[name])
            seed += 1
    print(table(rows))
    kills, runs = sum(row.kills for row in rows.values()), sum(row.runs for row in rows.values())
    different = sum(len(row.differences) for row in rows.values())
    if different:
        raise SystemExit(f"{kills} kills in {runs} runs: {different} differences")
    print(f"{kills} kills in {runs} runs: no checkpoint lost, every resume bit-identical")


if __name__ == "__main__":
    main()
