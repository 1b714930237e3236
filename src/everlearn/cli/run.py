"""`everlearn run`: one learner on one stream."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from everlearn.cli.flags import as_switches, in_one_sentence
from everlearn.cli.show import as_json, draw_pictures, print_table, seeds_line, settings_line, summary
from everlearn.experiments.store import STORE, Store, check_can_store, record

if TYPE_CHECKING:
    from everlearn.experiments.job import Job
    from everlearn.experiments.runner import Outcome
    from everlearn.streams.horizon import Horizon


MANY = 10  # epochs; from this number on, a note says why the run takes long


@dataclasses.dataclass(frozen=True)
class RunFlags:
    """What to run, and how to show it."""

    learner: str = "cope"
    """the learner, by name; your own is module:Class"""
    stream: str = "split-digits"
    """the stream, by name; your own is module:function"""
    seeds: int = 1
    """number of runs, with seeds 0, 1, …; a seed fixes subset, order and initialisation"""
    imbalance: int | None = None
    """i for the imbalanced variant S(T_i), in which task i has far more samples than the others"""
    batch_size: int | None = None
    """|B_n|, samples in a batch; by default 10, and 1 on streams of records such as elec2"""
    scenario: str = "split"
    """the order of the stream: split (task after task), iid (all shuffled), blurry, long-tailed,
    recurring, permuted, rotated, abrupt-drift or gradual-drift"""
    amount: float | None = None
    """how blurry, long-tailed, … the scenario is; for the defaults see docs/streams.md"""
    protocol: str | None = None
    """take settings, batch size and class order from a protocol of the field: P0, P1, P2 or P3 (docs/rivals.md)"""
    class_order: str = "sorted"
    """in which order the tasks get the classes: sorted, or seed (shuffled by the seed)"""
    validation: bool = False
    """to choose settings: test on a held-out part of the training samples, not on the test samples"""
    paradigm: str | None = None
    """what learner and evaluator get: online, task-, class-, domain- or data-incremental; by default everything"""
    horizon: Literal["batch", "window", "task", "stream"] | None = None
    """D, what the learner may revisit; by default the learner's own"""
    window: int | None = None
    """samples in the horizon, if it is a window"""
    epochs: int | None = None
    """passes over the horizon; by default the learner's own, or 1 with --horizon"""
    infer: Literal["novelty"] | None = None
    """infer the task identifier t, for a learner that needs it on a stream that hides it"""
    cost: float | None = None
    """a stream that does not wait: a batch takes this many intervals to learn, and batches in between are missed"""
    every: int | None = None
    """ρ, evaluate after this many batches; by default at task transitions and the end"""
    checkpoint: Path | None = None
    """folder for checkpoints, written after every --every batches; the same command again resumes"""
    evaluate: Literal["seen", "all", "current"] = "seen"
    """on which concepts: those seen, all, or those in force now"""
    evolving: bool = False
    """evaluate on the current distribution, if concepts drift"""
    prequential: bool = False
    """also predict every batch before it is learnt; always on for streams of records, which have no test set"""
    asynchronous: bool = False
    """evaluate in another process while the learner goes on"""
    metrics: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=MODULE:FUNCTION…")] = ()
    """metrics of your own: functions of the history of evaluations"""
    track: tuple[str, ...] = ()
    """watch the runs: tensorboard, mlflow, wandb (or NAME:FOLDER), or your own module:Class"""
    plots: bool = False
    """write pictures to the folder --out"""
    out: Path = Path("runs")
    """folder for the pictures"""
    store: Path = STORE
    """the file that stores the runs, for `everlearn report`"""
    keep: bool = True
    """store the runs; a run that is stored already stays as it was"""
    json: bool = False
    """print one JSON object and nothing else"""
    device: str = "auto"
    """auto (an NVIDIA GPU if there is one), cpu, cuda, cuda:1, … or mps (Apple)"""
    data_dir: Path | None = None
    """folder with the datasets"""
    encoder: str | None = None
    """a frozen model that turns samples into vectors, such as efficientnet-lite0 (docs/encoders.md)"""
    network: str | None = None
    """mlp, slim-resnet18, resnet18, cnn, timm:NAME or your own module:function; by default the benchmark's"""


def command(words: list[str]) -> int:
    from everlearn.experiments.progress import progress_bar
    from everlearn.experiments.runner import execute_all

    flags, settings = parse(words)
    jobs = [_job(flags, settings, seed) for seed in range(flags.seeds)]
    kept = _Kept(flags)
    if flags.plots:
        flags.out.mkdir(parents=True, exist_ok=True)  # fails before anything runs if it can't be written
    _warn_of_many_passes(jobs[0])
    with progress_bar(f"{flags.learner} on {flags.stream}", jobs) as progress:
        results = execute_all(jobs, progress, kept.add)
    if flags.json:
        print(as_json(summary(results, jobs[0])))
    else:
        print_table({flags.learner: results}, _title(flags))
        print(settings_line(results[0].settings, flags.learner))
    notes = sys.stderr if flags.json else sys.stdout
    if flags.plots:
        pictures = draw_pictures({flags.learner: results}, flags.out, variant=_variant(flags))
        for picture in pictures:
            print(f"picture: {picture}", file=notes)
        if not pictures:
            print("there are no pictures, since the stream has no held-out samples", file=notes)
    if flags.keep and not flags.json and kept.error is None:
        named = "" if flags.store == STORE else f" {flags.store}"
        print(f"stored in {flags.store}; `everlearn report{named}` shows all runs so far")
    return kept.exit_code()


class _Kept:
    """Stores each run as it ends, unless --no-keep; if that fails, the numbers are shown all the same."""

    def __init__(self, flags: RunFlags) -> None:
        self.flags = flags
        self.error: ValueError | None = None
        if flags.keep:
            try:
                check_can_store(flags.store)  # fails before anything runs
            except ValueError as error:
                raise ValueError(f"{error} with --store, or add --no-keep") from None

    def add(self, job: Job, outcome: Outcome) -> None:
        if self.flags.keep and self.error is None:
            try:
                Store(self.flags.store).add(record(job, outcome))
            except ValueError as error:
                self.error = error

    def exit_code(self) -> int:
        if self.error is not None:
            print(f"everlearn: not all runs are stored: {self.error}", file=sys.stderr)
        return 0 if self.error is None else 1


def _warn_of_many_passes(job: Job) -> None:

    horizon = job.horizon or job.usual_horizon
    if horizon.epochs >= MANY and job.horizon is None:
        print(
            f"{job.learner} passes over each {horizon.extent} {horizon.epochs} times, as published; "
            "--epochs sets another number",
            file=sys.stderr,
        )


def _variant(flags: RunFlags) -> str:
    """What the file names of pictures have besides learner and stream."""
    parts = [flags.scenario] if flags.scenario != "split" else []
    parts += [f"imbalance-{flags.imbalance}"] if flags.imbalance is not None else []
    return "-".join(parts)


def parse(words: list[str]) -> tuple[RunFlags, dict[str, Any]]:
    """The flags of a run, and all settings of its learner; the defaults are those of the benchmark."""
    from everlearn import learners
    from everlearn.experiments.protocol import protocol
    from everlearn.experiments.settings import benchmark_settings, default_network

    first = in_one_sentence(
        lambda: tyro.cli(RunFlags, args=_known(words), return_unknown_args=True, add_help=False)
    )[0]
    first = _with_encoder(first)
    kind = learners.find(first.learner)
    if first.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {first.seeds}")
    chosen = benchmark_settings(first.learner, first.stream, first.imbalance is not None)
    if first.protocol is not None:
        used = protocol(first.protocol)
        here = used.settings(first.learner, first.stream)
        chosen = here if first.stream in used.memory_sizes else chosen | here
        first = dataclasses.replace(first, batch_size=used.batch_size, class_order=used.class_order)
    network = chosen.pop("network", default_network(first.stream))
    flat = tyro.conf.OmitArgPrefixes
    both = dataclasses.make_dataclass(
        "Run",
        [
            ("what", Annotated[RunFlags, flat], dataclasses.field(default=first)),
            ("settings", Annotated[kind.Settings, flat], dataclasses.field(default=kind.Settings(**chosen))),
        ],
    )
    about = f"Run {first.learner} on {first.stream}. The defaults shown are those of this stream."
    # Every learner has its own flags, so errors point to the help of this one.
    prog = "everlearn run" + (f" --learner {first.learner}" if first.learner != "cope" else "")
    words = as_switches(words, kind.Settings)
    given: Any = in_one_sentence(lambda: tyro.cli(both, args=words, prog=prog, description=about))
    what = _with_encoder(given.what)
    return what, {"network": what.network or network, **vars(given.settings)}


def _with_encoder(flags: RunFlags) -> RunFlags:
    """The flags with the encoder as a part of the stream's name."""
    from everlearn.encoders import as_encoder
    from everlearn.streams.encoded import AT

    if flags.encoder is None or flags.stream.endswith(AT + flags.encoder):
        return flags
    as_encoder(flags.encoder)  # an unknown one is an error before anything runs
    return dataclasses.replace(flags, stream=f"{flags.stream}{AT}{flags.encoder}")


def _known(words: list[str]) -> list[str]:
    """The words without --help, for a first pass that finds the learner whose help is wanted."""
    return [word for word in words if word not in ("-h", "--help")]


def _job(flags: RunFlags, settings: dict[str, Any], seed: int) -> Job:
    from everlearn.evaluation.evaluator import Evaluator
    from everlearn.experiments.job import Job
    from everlearn.experiments.settings import settings_in_force
    from everlearn.streams import default_batch_size
    from everlearn.streams.encoded import AT
    from everlearn.streams.record_stream import RECORD_STREAMS

    evaluator = Evaluator(
        flags.every,
        horizon=flags.evaluate,
        concepts="evolving" if flags.evolving else "static",
        prequential=flags.prequential or flags.stream.partition(AT)[0] in RECORD_STREAMS,
        representation=flags.plots,
        asynchronous=flags.asynchronous,
        metrics=_own_metrics(flags.metrics),
    )
    usual = settings_in_force(flags.learner, flags.stream, flags.imbalance is not None, {})
    return Job(
        flags.learner,
        flags.stream,
        seed,
        imbalance=flags.imbalance,
        batch_size=default_batch_size(flags.stream) if flags.batch_size is None else flags.batch_size,
        scenario=flags.scenario,
        amount=flags.amount,
        class_order=flags.class_order,
        validation=flags.validation,
        track=flags.track,
        evaluator=evaluator,
        horizon=_horizon(flags),
        paradigm=flags.paradigm,
        infer=flags.infer,
        cost=flags.cost,
        device=flags.device,
        data_dir=None if flags.data_dir is None else str(flags.data_dir),
        settings={name: value for name, value in settings.items() if value != usual[name]},
        checkpoint=None if flags.checkpoint is None else str(flags.checkpoint),
    )


def _own_metrics(given: tuple[str, ...]) -> dict[str, Any]:
    """Metrics by name, from `name=module:function`."""
    from everlearn.import_names import import_named, is_import_name

    found = {}
    for each in given:
        name, _, where = each.partition("=")
        if not name or not is_import_name(where):
            raise ValueError(
                f"--metrics takes NAME=MODULE:FUNCTION, such as lowest=my_file:lowest, not {each!r}"
            )
        found[name] = import_named(where, "metric")
    return found


def _horizon(flags: RunFlags) -> Horizon | None:
    """The horizon, if a flag sets it."""
    from everlearn import learners
    from everlearn.streams.horizon import Horizon

    if flags.horizon is not None or flags.window is not None:
        extent = flags.horizon or "window"
        return Horizon(extent, flags.window, 1 if flags.epochs is None else flags.epochs)
    if flags.epochs is None:
        return None
    return dataclasses.replace(learners.find(flags.learner).horizon, epochs=flags.epochs)


def _title(flags: RunFlags) -> str:
    variant = f", S(T_{flags.imbalance})" if flags.imbalance else ""
    variant += f", {flags.scenario}" if flags.scenario != "split" else ""
    return f"{flags.stream}{variant}, {seeds_line(flags.seeds)}"
