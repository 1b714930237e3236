"""Attack every learner with hostile batches, settings, states and files, all drawn from one seed.

    python benchmarks/fuzz.py [--attacks 50000] [--learners cope mir] [--seed 0] [--emulated-gpu]

Every attack must be accepted, or refused with one clear sentence. Counted as failures are

* raw errors: anything but a ValueError, a TypeError, a MemoryError or an error of everlearn's own that everlearn
  raises itself, with a message of one line; or a learner that then refuses a good batch;
* changes: the state after a refusal is not, bit for bit, that of before;
* NaN: a state with values that are not finite, or predictions from one.

With `--emulated-gpu`, almost all batches are learnt by CUDA graphs, which are emulated on the CPU
(`tests/emulated_graph.py`). `tests/test_fuzz.py` runs a short version of both.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from fuzzing.attacks import Fuzzer
from fuzzing.judge import too_slow

from everlearn.learners import registry
from everlearn.training import cuda_graph


@contextmanager
def emulated_gpu() -> Iterator[None]:
    """A context in which CUDA graphs are emulated, from the second batch of every shape on."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    import emulated_graph

    usual = cuda_graph.EAGER_FIRST
    cuda_graph.EAGER_FIRST = 1
    try:
        with emulated_graph.emulated_gpu():
            yield
    finally:
        cuda_graph.EAGER_FIRST = usual


def bound_memory(gigabytes: int) -> None:
    """Let larger allocations fail, in place of the machine."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + gigabytes * 2**30, resource.RLIM_INFINITY))


def fuzz(names: list[str], attacks: int, seed: int, folder: Path, large: bool) -> list[Fuzzer]:
    """Attack these learners this many times in total."""
    signal.signal(signal.SIGALRM, too_slow)
    fuzzers = [Fuzzer(name, seed, folder) for name in names]
    for fuzzer in fuzzers:
        if large:
            fuzzer.many_labels()
        while fuzzer.judge.counts["tried"] * len(names) < attacks:
            fuzzer.attack()
    return fuzzers


COLUMNS = ("tried", "refused", "accepted", "raw", "changed", "nan")
FAILURES = ("raw", "changed", "nan")
HEADINGS = ("tried", "refused", "accepted", "raw errors", "changed after a refusal", "NaN")


def table(fuzzers: list[Fuzzer]) -> str:
    """The outcomes of the attacks, by learner."""
    rows = [("learner", *HEADINGS)]
    rows += [(fuzzer.name, *(f"{fuzzer.judge.counts[key]:,}" for key in COLUMNS)) for fuzzer in fuzzers]
    rows.append(("all", *(f"{sum(fuzzer.judge.counts[key] for fuzzer in fuzzers):,}" for key in COLUMNS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )


def findings(fuzzers: list[Fuzzer]) -> list[str]:
    """What must not have happened, by kind and place, with how often, which learners and an example."""
    found: dict[str, list[tuple[str, int, str]]] = {}
    for fuzzer in fuzzers:
        for key, (count, example) in fuzzer.judge.findings.items():
            found.setdefault(key, []).append((fuzzer.name, count, example))
    lines = []
    for key, those in sorted(found.items()):
        times, names = sum(count for _, count, _ in those), ", ".join(name for name, _, _ in those)
        lines.append(f"{key}\n    {times} times, {names}\n    e.g. {those[0][2]}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attacks", type=int, default=50_000)
    parser.add_argument("--learners", nargs="+", default=list(registry()), choices=list(registry()))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="without batches of 10,000 labels and more")
    parser.add_argument("--emulated-gpu", action="store_true", help="with emulated CUDA graphs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of torch, about the inputs
    bound_memory(6)
    start = time.perf_counter()
    device = emulated_gpu() if options.emulated_gpu else nullcontext()
    with tempfile.TemporaryDirectory() as folder, device:
        fuzzers = fuzz(options.learners, options.attacks, options.seed, Path(folder), not options.small)
    print(table(fuzzers))
    print(f"{time.perf_counter() - start:.0f} s, seed {options.seed}")
    for finding in findings(fuzzers):
        print(finding)
    raise SystemExit(any(fuzzer.judge.counts[key] for fuzzer in fuzzers for key in FAILURES))


if __name__ == "__main__":
    main()
