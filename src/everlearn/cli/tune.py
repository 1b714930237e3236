"""`everlearn tune`: settings of a learner, chosen on the validation part of a stream."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from everlearn.cli.flags import in_one_sentence

__all__ = ["TuneFlags", "command"]


@dataclasses.dataclass(frozen=True)
class TuneFlags:
    """Search settings with Optuna so that a learner is best on the validation part of a stream.

    The study is a file: stop with Ctrl-C, and the same command goes on.
    """

    learner: str = "cope"
    """the learner, by name; your own is module:Class"""
    stream: str = "split-digits"
    """the stream, by name; your own is module:function"""
    trials: int = 40
    """how many in all, earlier ones of the same study included"""
    search: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=RANGE…")] = ()
    """what to search, as name=low:high or name=a,b,c; by default the learning rate, and what else matters"""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE…")] = ()
    """settings that stay as they are"""
    network: str | None = None
    """by default what the benchmark uses"""
    seeds: int = 1
    """runs of each trial"""
    metric: Literal["accuracy", "anytime_accuracy", "worst_case_accuracy", "forgetting"] = "accuracy"
    """what is best on the validation part"""
    study: Path | None = None
    """the file of the study; by default runs/tune/LEARNER-STREAM.journal"""
    test: bool = False
    """also run the settings found on the test samples"""
    imbalance: int | None = None
    """i for the imbalanced variant S(T_i)"""
    batch_size: int | None = None
    """|B_n|, samples in a batch"""
    scenario: str = "split"
    """the order of the stream"""
    amount: float | None = None
    """the parameter of the scenario"""
    class_order: str = "sorted"
    """in which order the tasks get the classes: sorted, or seed"""
    every: int | None = None
    """evaluate after this many batches; a trial can be stopped early at each evaluation"""
    device: str = "auto"
    """auto (an NVIDIA GPU if there is one), cpu, cuda, …"""
    data_dir: Path | None = None
    """folder with the datasets"""
    json: bool = False
    """print one JSON object and nothing else"""


def command(words: list[str]) -> int:
    """Search; returns the exit code."""
    from everlearn.evaluation.evaluator import Evaluator
    from everlearn.experiments.command import command as run_command
    from everlearn.experiments.job import Job
    from everlearn.experiments.search_space import parse_space
    from everlearn.experiments.tune import tune
    from everlearn.streams import default_batch_size

    flags = in_one_sentence(lambda: tyro.cli(TuneFlags, args=words, prog="everlearn tune"))
    fixed = _fixed(flags)
    job = Job(
        flags.learner,
        flags.stream,
        0,
        imbalance=flags.imbalance,
        batch_size=default_batch_size(flags.stream) if flags.batch_size is None else flags.batch_size,
        scenario=flags.scenario,
        amount=flags.amount,
        class_order=flags.class_order,
        evaluator=Evaluator(flags.every),
        device=flags.device,
        data_dir=None if flags.data_dir is None else str(flags.data_dir),
        settings=fixed if flags.network is None else fixed | {"network": flags.network},
    )
    space = parse_space(flags.learner, flags.search) if flags.search else None
    found = tune(
        job, space, trials=flags.trials, seeds=flags.seeds, metric=flags.metric, study=flags.study, test=flags.test,
        told=lambda line: print(line, file=sys.stderr),
    )  # fmt: skip
    if flags.json:
        print(json.dumps(found.plain()))
        return 0
    print(f"best of {found.trials} trials: {found.metric} {100 * found.value:.2f} % on the validation part")
    for name, value in found.settings.items():
        print(f"  {name} = {value:.6g}" if isinstance(value, float) else f"  {name} = {value}")
    if found.test:
        shown = ", ".join(f"{100 * value:.2f}" for value in found.test)
        print(f"on the test samples: {shown} %")
    print(f"settings: {found.file}")
    print(f"run them: {run_command(dataclasses.replace(job, settings=found.settings).plain(), seeds=5)}")
    return 0


def _fixed(flags: TuneFlags) -> dict[str, Any]:
    """The settings that stay as they are."""
    from everlearn.experiments.search_space import parse_space

    fixed = {}
    for word in flags.set:
        ((name, choice),) = parse_space(flags.learner, [word]).items()
        if len(choice.options) != 1:
            raise ValueError(f"--set takes one value of each setting, such as hidden=64, not {word!r}")
        fixed[name] = choice.options[0]
    return fixed
