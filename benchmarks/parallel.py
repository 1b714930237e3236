"""Five seeds on two cores against one: the same command, `everlearn run --seeds 5`, given one core and then two.

    python benchmarks/parallel.py [--stream split-mnist] [--seeds 5] [--cores 2]

Seeds run in processes of one thread each, so a seed never takes less time than alone: five seeds on two cores are
three rounds, at best 5/3 of the speed. The rate while all cores are at work is printed beside it: as many times as
there are cores, less what they take from each other. Linux alone, where a process can be given its cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time


def run(words: list[str], cores: set[int]) -> tuple[float, float]:
    """Seconds that the command took on these cores, and samples that one seed learnt per second."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "everlearn", "run", "--json", "--no-keep", "--device", "cpu", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return time.perf_counter() - begun, json.loads(done.stdout)["samples_per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stream", default="split-mnist")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    if not 2 <= options.cores <= len(available):
        raise SystemExit(
            f"--cores is {options.cores}, but there are {len(available)}, and it takes two or more"
        )
    words = ["--stream", options.stream, "--seeds", str(options.seeds)]
    alone, rate_alone = run(words, set(available[:1]))
    together, rate_together = run(words, set(available[: options.cores]))
    rounds = math.ceil(options.seeds / options.cores)
    print(
        f"{options.seeds} seeds of {options.stream}, in total: {alone:.1f} s on one core, {together:.1f} s on"
    )
    print(
        f"{options.cores}: {alone / together:.2f} times as fast; {rounds} rounds allow {options.seeds / rounds:.2f}"
    )
    print(f"a seed learns {rate_alone:,.0f} samples/s alone, {rate_together:,.0f} beside others;")
    print(
        f"{options.cores} at once: {options.cores * rate_together / rate_alone:.2f} times the rate of one core"
    )


if __name__ == "__main__":
    main()
