"""A run on disk: stopped anywhere, the same call again ends as if it had never been stopped."""

import dataclasses
import itertools
import json
import os

import numpy as np
import pytest
import torch

from everlearn import Clock, CoPE, Evaluator, Horizon, as_stream, learner, load, run, stream
from everlearn.checkpoint import CheckpointError
from everlearn.cli import main
from everlearn.learners import registry
from everlearn.streams.base import Stream


class Crash(BaseException):
    """Nothing handles it, as nothing handles the end of a process."""


def crash_after(samples):
    total = 0

    def progress(count):
        nonlocal total
        total += count
        if total >= samples:
            raise Crash

    return progress


def assert_same(result, other):
    ours, theirs = (dataclasses.asdict(each) for each in (result, other))
    for name in ours.keys() - {"seconds", "embedding", "history"}:
        assert ours[name] == theirs[name], name
    assert len(result.history) == len(other.history)
    for evaluation, again in zip(result.history, other.history, strict=True):
        ours, theirs = (dataclasses.asdict(each) for each in (evaluation, again))
        np.testing.assert_array_equal(ours.pop("confusion"), theirs.pop("confusion"))
        assert ours == theirs


def digits(name="cope", **options):
    source = stream("split-digits", **options)
    return learner(name, source, device="cpu", hidden=32), source


CASES = {
    "cope": ("cope", Evaluator(every=7, representation=True), {}),
    "prequential": ("reservoir", Evaluator(every=7, prequential=True), {}),
    "zero-shot": ("finetune", Evaluator(every=7, horizon="all"), {}),
    "a stream that does not wait": ("cope", Evaluator(every=7), {"clock": lambda: Clock(cost=2.5)}),
    "a window of two passes": ("cope", Evaluator(every=7), {"horizon": lambda: Horizon("window", 60, 2)}),
    "tasks": ("icarl", Evaluator(every=7), {}),
    "an inferred t": (
        "icarl",
        Evaluator(every=7),
        {"paradigm": lambda: "data-incremental", "infer": lambda: "novelty"},
    ),
    "in a process of its own": ("cope", Evaluator(every=40, asynchronous=True), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_stopped_and_resumed_ends_as_one_that_was_not(case, tmp_path):
    name, evaluator, options = CASES[case]

    def go(**extra):
        cope, source = digits(name)
        made = {key: make() for key, make in options.items()}
        return cope, run(cope, source, evaluator, samples=500, **made, **extra)

    whole, expected = go()
    path = tmp_path / "run"
    for samples in (400,) if evaluator.asynchronous else (150, 400):
        with pytest.raises(Crash):
            go(checkpoint=path, progress=crash_after(samples))
    resumed, result = go(checkpoint=path)
    assert_same(result, expected)
    states = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0] if key != "meta")


@pytest.mark.parametrize("scenario", ["blurry", "gradual-drift", "iid"])
def test_other_orders_are_resumed_too(scenario, tmp_path):
    path = tmp_path / "run"
    evaluator = Evaluator(every=11, concepts="evolving")
    expected = run(*digits(scenario=scenario), evaluator, samples=300)
    with pytest.raises(Crash):
        run(*digits(scenario=scenario), evaluator, samples=300, checkpoint=path, progress=crash_after(200))
    assert_same(run(*digits(scenario=scenario), evaluator, samples=300, checkpoint=path), expected)


def test_a_run_that_has_ended_is_not_run_again(tmp_path):
    first = run(*digits(), Evaluator(every=50), checkpoint=tmp_path / "run")
    seen = []
    again = run(*digits(), Evaluator(every=50), checkpoint=tmp_path / "run", progress=seen.append)
    assert_same(again, first)
    assert again.seconds == first.seconds
    assert seen == [1442]


def test_the_learner_of_a_run_can_be_loaded_by_itself(tmp_path):
    cope, source = digits()
    run(cope, source, Evaluator(every=50), checkpoint=tmp_path / "run")
    alone = load(tmp_path / "run", device="cpu")
    x, _ = source.tests[0]
    assert alone.predict(x) == cope.predict(x)


def test_a_run_on_other_terms_is_refused(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(Crash):
        run(*digits(), Evaluator(every=5), checkpoint=path, progress=crash_after(200))
    others = {
        "the evaluator": (digits(), Evaluator(every=6)),
        "the stream's seed 0, while this one has 1": (digits(seed=1), Evaluator(every=5)),
        "the learner 'cope', while this one has 'mir'": (digits("mir"), Evaluator(every=5)),
    }
    before = path.read_bytes()
    for sentence, (pair, evaluator) in others.items():
        with pytest.raises(CheckpointError, match=f"is of a run with {sentence}"):
            run(*pair, evaluator, checkpoint=path)
    cope = CoPE(memory_size=77, device="cpu")
    with pytest.raises(CheckpointError, match="this state has the settings"):
        run(cope, stream("split-digits"), Evaluator(every=5), checkpoint=path)
    assert path.read_bytes() == before


OTHER_ORDERS = [
    ({"scenario": "blurry", "amount": 0.1}, {"scenario": "blurry", "amount": 0.9}),
    ({"scenario": "rotated", "amount": 10}, {"scenario": "rotated", "amount": 30}),
    ({"scenario": "gradual-drift", "amount": 0.1}, {"scenario": "gradual-drift", "amount": 0.9}),
    ({}, {"class_order": "seed"}),
]


@pytest.mark.parametrize(("before", "now"), OTHER_ORDERS)
def test_a_run_that_ended_is_not_the_result_of_the_same_samples_in_another_order(before, now, tmp_path):
    path = tmp_path / "run"
    run(*digits("finetune", **before), Evaluator(every=50), checkpoint=path)
    with pytest.raises(CheckpointError, match="is of a run with the order of samples"):
        run(*digits("finetune", **now), Evaluator(every=50), checkpoint=path)


def test_a_run_that_ended_is_not_the_result_on_other_held_out_samples(tmp_path):
    x, y = stream("split-digits").tests[0]
    path = tmp_path / "run"
    run(*digits("finetune"), Evaluator(every=50, tests=(x, y)), checkpoint=path)
    for other in ((255 - x, y), (x, 1 - y), (x[:9], y[:9])):
        with pytest.raises(CheckpointError, match="is of a run with the held-out samples"):
            run(*digits("finetune"), Evaluator(every=50, tests=other), checkpoint=path)


def test_a_stream_of_ones_own_that_is_another_now_is_refused(tmp_path):
    path = tmp_path / "run"

    def batches(shift=0.0, count=20):
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(4, 5, generator=generator) + shift, [0, 1, 0, 1]) for _ in range(count)]

    def go(source, **options):
        return run(CoPE(hidden=8, device="cpu"), source, Evaluator(every=3), checkpoint=path, **options)

    with pytest.raises(Crash):
        go(batches(), progress=crash_after(50))
    with pytest.raises(CheckpointError, match="batch 12 of the stream 'own' is not what it was when"):
        go(batches(shift=1.0))
    with pytest.raises(CheckpointError, match="ended after 5 batches, but 12 had arrived"):
        go(batches(count=5))
    assert go(batches()).samples == 80


def test_what_can_not_be_kept_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="say how many, with Evaluator"):
        run(*digits(), checkpoint=tmp_path / "run")
    CoPE(device="cpu").save(tmp_path / "learner")
    with pytest.raises(CheckpointError, match="holds a learner and no run"):
        run(*digits(), Evaluator(every=5), checkpoint=tmp_path / "learner")


def test_the_command_resumes_what_a_kill_stopped(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "--learner", "reservoir", "--seeds", "2", "--every", "30", "--json", "--device", "cpu"]
    assert main(words) == 0
    expected = json.loads(capsys.readouterr().out)
    folder = tmp_path / "kept"
    taken = itertools.count()
    observe = registry()["reservoir"].observe

    def killed(self, *args):
        if next(taken) == 200:
            raise Crash
        observe(self, *args)

    monkeypatch.setattr(registry()["reservoir"], "observe", killed)
    with pytest.raises(Crash):
        main([*words, "--checkpoint", str(folder)])
    assert sorted(os.listdir(folder)) == [f"reservoir-split-digits-{seed}.safetensors" for seed in range(2)]
    assert main([*words, "--checkpoint", str(folder)]) == 0
    assert next(taken) == 200 + 1 + 146 - 30  # of the second run only the batches after its last checkpoint
    printed = json.loads(capsys.readouterr().out)
    del printed["samples_per_second"], expected["samples_per_second"]
    assert printed == expected


def test_the_command_says_what_a_checkpoint_needs(tmp_path, capsys):
    assert main(["run", "--checkpoint", str(tmp_path)]) == 2
    assert "with Evaluator(every=N) or --every N" in capsys.readouterr().err


def test_a_live_stream_without_tests_is_kept_too(tmp_path):
    class Live(Stream):
        name, seed, batch_size, imbalance = "live", 0, 2, None

        def __iter__(self):
            generator = torch.Generator().manual_seed(0)
            while True:
                yield as_batch(torch.randn(2, 5, generator=generator))

    def as_batch(x):
        return next(iter(as_stream([(x, (x[:, 0] > 0).tolist())])))

    path = tmp_path / "run"
    whole, half = CoPE(hidden=8, device="cpu"), CoPE(hidden=8, device="cpu")
    run(whole, Live(), samples=100)
    with pytest.raises(Crash):
        run(half, Live(), Evaluator(every=10), samples=100, checkpoint=path, progress=crash_after(70))
    again = CoPE(hidden=8, device="cpu")
    run(again, Live(), Evaluator(every=10), samples=100, checkpoint=path)
    assert again.state_dict()["meta"] == whole.state_dict()["meta"]
    assert torch.equal(again.memory.samples()[0], whole.memory.samples()[0])
