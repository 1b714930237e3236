"""Forged checkpoints of runs, with a valid checksum but values that no run wrote: each gets one clear error."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from forgery import forged

from everlearn import Clock, CoPE, Evaluator, Horizon, as_stream, checkpoint
from everlearn.checkpoint import CheckpointError
from everlearn.engine.loop import Run, RunOptions

LABELS = ["a", 2, ("x", 1.5), None]
OPTIONS: dict[str, dict[str, Any]] = {
    "a window": {"horizon": Horizon("window", 12, 2)},
    "a clock": {"clock": Clock(cost=1.5), "infer": "novelty"},
}


def batches(count: int) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(4, 5, generator=generator), LABELS) for _ in range(count)]


def made(path: Path, case: str) -> Run:
    """A run with its checkpoint in this file."""
    evaluator = Evaluator(every=2, representation=True, prequential=True)
    source = as_stream(batches(8), tests=batches(1)[0])
    options = RunOptions(evaluator, checkpoint=path, **copy.deepcopy(OPTIONS[case]))
    return Run(CoPE(hidden=8, memory_size=20, missing_labels="class", device="cpu"), source, options)


class Stop(BaseException):
    """Ends a run in the middle."""


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The checkpoint of a run that was stopped after five batches, for each case."""
    states = {}
    for case in OPTIONS:
        path = tmp_path_factory.mktemp("valid") / "run"
        stopped = made(path, case)

        def stop(samples: int, stopped: Run = stopped) -> None:
            if stopped.taken >= 5:
                raise Stop

        stopped.progress = stop
        with pytest.raises(Stop):
            stopped.finish()
        states[case] = checkpoint.read(path)
    return states


def as_tensor(record: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)


def record_of(state: dict[str, Any]) -> dict[str, Any]:
    return json.loads(bytes(state["run.record"].tolist()))


def everything(run: Run) -> str:
    """A description of a run's complete state: equal only if the states are."""
    state = {
        name: getattr(part, "tolist", lambda part=part: part)()
        for name, part in run.learner.state_dict().items()
    }
    parts = (run.monitor, run.horizon, run.task_inference, run.clock)
    inside = [
        {} if part is None else {k: repr(v) for k, v in vars(part).items() if k != "evaluator"}
        for part in parts
    ]
    return repr((state, inside, run.taken, run.arrived, run.missed, run.t, run.done, run.watch.seconds))


@pytest.mark.parametrize("case", OPTIONS)
def test_the_forger_writes_what_a_run_wrote(case, valid, tmp_path) -> None:
    checkpoint.write(valid[case], tmp_path / "run")
    assert made(tmp_path / "run", case).finish().samples == 32


@pytest.mark.parametrize("case", OPTIONS)
def test_a_forged_run_is_loaded_or_refused_in_one_sentence_and_unchanged(case, valid, tmp_path) -> None:
    rng = random.Random(0)
    refused = []
    for _ in range(150):
        state = valid[case] | {"run.record": as_tensor(forged(record_of(valid[case]), rng))}
        checkpoint.write(state, tmp_path / "run")
        run = made(tmp_path / "run", case)
        before = everything(run)
        try:
            run.checkpoint.resume()
        except CheckpointError as error:
            refused.append(str(error))
            unchanged = everything(run) == before
            refused += [] if unchanged else ["\n it was changed"]
    assert len(refused) > 75
    assert [said for said in refused if "\n" in said] == []


@pytest.mark.parametrize("kind", ["absent", "shorter", "another type", "another shape"])
@pytest.mark.parametrize(
    "name", ["record", "confusions", "prototypes", "horizon.generator", "horizon.samples"]
)
def test_a_tensor_of_a_run_that_is_not_what_it_was_is_refused(name, kind, valid, tmp_path) -> None:
    state = dict(valid["a window"])
    part = state.pop(f"run.{name}")
    changed = {"shorter": part[:-1], "another type": part.to(torch.int16), "another shape": part[None]}
    if kind != "absent":
        state[f"run.{name}"] = changed[kind].clone()
    checkpoint.write(state, tmp_path / "run")
    run = made(tmp_path / "run", "a window")
    before = everything(run)
    if (name, kind) == ("horizon.samples", "another type"):
        assert run.finish().samples == 32  # samples may be of any type that a learner takes
        return
    with pytest.raises(
        CheckpointError, match="is not a valid checkpoint of a run|holds a learner and no run"
    ):
        run.finish()
    assert everything(run) == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"taken": "5"}, "its 'taken' is missing or can't be read; give another path for the checkpoint"),
        ({"history": [{}]}, "the 'batches' of its evaluation 1 is missing or can't be read"),
        ({"history": []}, "its confusion matrices do not belong to its evaluations"),
        ({"correct": [1]}, "its 'correct' and 'sizes' differ in length"),
        ({"prototypes": [["a"], 2, 3, 4]}, "one of its labels can't be read"),
        ({"prototypes": ["a"]}, "it has 4 prototypes for 1 labels"),
        ({"horizon": {}}, "the 'samples' of its horizon is missing or can't be read"),
        ({"late": 0.5}, "is of a run with another clock"),
    ],
)
def test_what_is_forged_is_named(change, sentence, valid, tmp_path) -> None:
    state = valid["a window"]
    checkpoint.write(state | {"run.record": as_tensor(record_of(state) | change)}, tmp_path / "run")
    with pytest.raises(CheckpointError, match=sentence):
        made(tmp_path / "run", "a window").finish()


def test_a_forged_way_to_infer_t_is_named(valid, tmp_path) -> None:
    state = valid["a clock"]
    record = record_of(state)
    record["novelty"]["patience"] = "long"
    checkpoint.write(state | {"run.record": as_tensor(record)}, tmp_path / "run")
    with pytest.raises(CheckpointError, match="the 'patience' of its 'novelty' is missing or can't be read"):
        made(tmp_path / "run", "a clock").finish()
