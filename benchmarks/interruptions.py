"""Interrupt every learner at every line it runs, and check that nothing is ever half done.

    python benchmarks/interruptions.py [--learners cope mir] [--calls observe merge] [--kinds line] [--points 200]

A call is interrupted at one point in it, of one of these kinds:

* `line` and `opcode`: the call is traced, and KeyboardInterrupt or MemoryError is raised before a line or before a
  bytecode instruction of the package or of the user's network;
* `forward`, `backward`, `augmentation`: the user's network or augmentation fails by itself: an error, an allocation
  that is too large, or Ctrl-C.

Afterwards

* the state must be, bit for bit, that of before the call or that of after it,
* the learner must predict like a learner that was given this state, and learn the next batch like it,
* another thread must be able to use it, and nothing of the process may have changed: torch's generator, gradient mode
  and number of threads.

Only public calls are used. By default every place is tried once (its first time); `--points` takes a sample of these,
and `--points 0` tries every event. `tests/core/test_interrupts.py` runs a small sample.
"""

from __future__ import annotations

import argparse
import time

import torch
from interrupting.calls import CALLS
from interrupting.outcome import interrupt
from interrupting.points import KINDS, every_point

from everlearn.learners import registry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", nargs="+", default=list(registry()), choices=list(registry()))
    parser.add_argument("--calls", nargs="+", default=list(CALLS), choices=list(CALLS))
    parser.add_argument(
        "--points", type=int, help="points per call and kind; 0 for every event; default: every place once"
    )
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, tried, found = time.perf_counter(), dict.fromkeys(options.learners, 0), {}
    for point in every_point(options.learners, options.calls, options.kinds, options.points):
        tried[point.learner] += 1
        wrong = interrupt(point)
        if wrong is not None:
            what, place = wrong
            found.setdefault((point.learner, point.call, what), []).append((point, place))
    print(f"{'learner':12s} {'interruptions':>13s} {'half done':>9s}")
    for name in options.learners:
        half = sum(len(those) for key, those in found.items() if key[0] == name)
        print(f"{name:12s} {tried[name]:13d} {half:9d}")
    for (name, call, what), those in sorted(found.items()):
        variants = ", ".join(sorted({point.variant for point, _ in those}))
        raised_at = ", ".join(sorted({place for _, place in those}))
        print(f"{name} | {call} | {variants} | {what} | raised at {raised_at}")
    total = sum(map(len, found.values()))
    seconds = time.perf_counter() - start
    print(f"{sum(tried.values())} interruptions in {seconds:.0f} s, {total} left something half done")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
