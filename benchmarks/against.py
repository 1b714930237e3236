"""This tree against another commit: is every learner's state the same to the bit, and is it as fast?

    python benchmarks/against.py COMMIT [--seeds 3] [--learners cope mir] [--speed cope finetune]

The commit is checked out into a temporary folder. Both trees learn 60 batches of split-digits with every learner that
both have; states, predictions and probabilities are compared bit for bit. Then both learn in turn in processes that
stay alive, and the best quarter of the batches of each is compared: MLP 2 x 400, batches of 10, one thread. Nothing
is kept: bits differ between kinds of CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
ROUNDS = 8

LEARN = """
import hashlib, json, sys, torch
from everlearn import learner, stream
from everlearn.learners import registry
found = {}
for name in sys.argv[2:] or sorted(registry()):
    for seed in range(int(sys.argv[1])):
        s = stream("split-digits", seed=seed)
        short = {"short_term_memory": 60, "generative_steps": 50, "discriminative_steps": 50}
        model = learner(name, stream=s, seed=seed, device="cpu", **(short if name == "cn-dpm" else {}))
        batches = [batch for batch, _ in zip(s, range(60))]
        for i, batch in enumerate(batches):
            model.observe(batch.x, batch.y, *([batch.t] if "t" in model.needs else []))
            if i == 30 and "t" in model.needs:
                model.end_horizon()
        state = {key: part for key, part in model.state_dict().items() if key != "meta"}
        x = torch.cat([batch.x for batch in batches[:10]])
        parts = {key: part.contiguous().flatten().view(torch.uint8).numpy().tobytes() if part.numel() else b""
                 for key, part in state.items()}
        parts["predictions"] = repr(model.predict(x)).encode()
        parts["probabilities"] = model.predict_proba(x).tobytes()
        found[f"{name}, seed {seed}"] = {key: hashlib.sha256(part).hexdigest() for key, part in parts.items()}
print(json.dumps(found))
"""

TIME = """
import itertools, sys, time, torch
from everlearn.learners import find
torch.set_num_threads(1)
model = find(sys.argv[1])("mlp", seed=0, device="cpu")
generator = torch.Generator().manual_seed(0)
y = torch.randint(10, (2000,), generator=generator)
centres = torch.rand(10, 784, generator=generator) < 0.2
x = (centres[y] * torch.randint(60, 256, (2000, 784), generator=generator)).to(torch.uint8)
labels = y.tolist()
for line in itertools.chain(["warm-up"], sys.stdin):
    times = []
    for i in range(0, 2000, 10):
        start = time.perf_counter()
        model.observe(x[i : i + 10], labels[i : i + 10], *([0] if "t" in model.needs else []))
        times.append(time.perf_counter() - start)
    print(sum(sorted(times)[:50]) / 50 * 1e6, flush=True)
"""


def environment(tree: Path) -> dict[str, str]:
    """An environment in which this tree is imported."""
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


def states(tree: Path, seeds: int, learners: list[str]) -> dict[str, dict[str, str]]:
    """A digest of every part of every learner's state."""
    words = [sys.executable, "-c", LEARN, str(seeds), *learners]
    printed = subprocess.run(words, env=environment(tree), check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = json.loads(printed)
    return found


def compare_states(other: Path, seeds: int, learners: list[str]) -> int:
    """Print what differs; returns in how many runs something does."""
    theirs, ours = (states(tree, seeds, learners) for tree in (other, HERE))
    shared = [run for run in theirs if run in ours]
    differing = {
        run: sorted(key for key in theirs[run] | ours[run] if theirs[run].get(key) != ours[run].get(key))
        for run in shared
    }
    for run, parts in differing.items():
        if parts:
            print(f"{run}: {', '.join(parts)} differ")
    count = sum(map(bool, differing.values()))
    print(f"{len(shared)} runs compared, {count} differ")
    return count


def compare_speed(other: Path, learner: str) -> None:
    """Print the time of a batch in both trees, and the median of its ratio."""
    words = [sys.executable, "-c", TIME, learner]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(words, env=environment(tree), **pipes) for tree in (other, HERE)]
    for process in processes:
        process.stdout.readline()
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for process, measured in zip(processes, times, strict=True):
            process.stdin.write("again\n")
            process.stdin.flush()
            measured.append(float(process.stdout.readline()))
    for process in processes:
        process.stdin.close()
        process.wait()
    ratio = statistics.median(new / old for old, new in zip(*times, strict=True))
    print(
        f"{learner:12s} {min(times[0]):7.0f} us before, {min(times[1]):7.0f} us now, median ratio {ratio:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learners", nargs="*", default=[])
    parser.add_argument("--speed", nargs="*", default=["cope", "reservoir", "finetune"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "clone", "--quiet", str(HERE), str(other)], check=True)
        subprocess.run(["git", "-C", str(other), "checkout", "--quiet", options.commit], check=True)
        differing = compare_states(other, options.seeds, options.learners)
        for learner in options.speed:
            compare_speed(other, learner)
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
