"""`everlearn demo`: CoPE compared with finetuning, with pictures."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro

from everlearn.cli.show import draw_pictures, print_table, seeds_line


@dataclasses.dataclass(frozen=True)
class DemoFlags:
    """Compare CoPE with finetuning on a stream of handwritten digits that arrive two classes at a time."""

    seeds: int = 5
    """runs of each learner"""
    out: Path = Path("runs")
    """folder for the pictures"""


def command(words: list[str]) -> int:
    from everlearn.evaluation.evaluator import Evaluator
    from everlearn.experiments.job import Job
    from everlearn.experiments.progress import progress_bar
    from everlearn.experiments.runner import execute_all

    flags = tyro.cli(DemoFlags, args=words, prog="everlearn demo")
    names = ("cope", "finetune")
    jobs = [
        Job(name, "split-digits", seed, evaluator=Evaluator(every=4))
        for name in names
        for seed in range(flags.seeds)
    ]
    print(
        "Handwritten digits arrive two classes at a time, each image once. Which learner still knows the first ones?"
    )
    with progress_bar("cope and finetune on split-digits", jobs) as progress:
        results = execute_all(jobs, progress)
    by_learner = {name: [result for result in results if result.learner == name] for name in names}
    print_table(by_learner, f"split-digits, {seeds_line(flags.seeds)}")
    for picture in draw_pictures(by_learner, flags.out, few=True):
        print(f"picture: {picture}")
    print(
        "\nTry next:\n"
        "  everlearn run --stream split-digits --imbalance 1 --seeds 5   one task sends ten times more\n"
        "  everlearn run --momentum 0 --seeds 5                          prototypes without momentum\n"
        "  everlearn data fetch mnist && everlearn run --stream split-mnist --seeds 5\n"
        "(after `make demo` the command is .venv/bin/everlearn)"
    )
    return 0
