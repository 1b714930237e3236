"""Hostile batches, settings, states and files: a short version of `benchmarks/fuzz.py`."""

import signal
import sys
import warnings
from pathlib import Path

import pytest
import torch

from everlearn.learners import registry

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from fuzz import FAILURES, emulated_gpu, findings, fuzz
from fuzzing.subjects import make
from fuzzing.verdicts import digest, is_clear, not_finite

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs an alarm clock")


def attacked(name, folder, attacks, seed):
    """Assert that a learner withstands these attacks."""
    handler, threads = signal.getsignal(signal.SIGALRM), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about the inputs
            (fuzzer,) = fuzz([name], attacks, seed, folder, large=False)
    finally:
        signal.signal(signal.SIGALRM, handler)
        torch.set_num_threads(threads)
    assert fuzzer.judge.counts["refused"] and fuzzer.judge.counts["accepted"]
    assert {key: fuzzer.judge.counts[key] for key in FAILURES} == dict.fromkeys(FAILURES, 0), "\n".join(
        findings([fuzzer])
    )


@pytest.mark.parametrize("name", sorted(registry()))
def test_hostile_input_is_accepted_or_refused_in_a_sentence_and_a_refusal_changes_nothing(name, tmp_path):
    attacked(name, tmp_path, attacks=150, seed=len(name))


@pytest.mark.parametrize("name", ["cope", "gss", "icarl"])
def test_hostile_input_changes_nothing_either_where_a_step_is_a_cuda_graph(name, tmp_path):
    with emulated_gpu():
        attacked(name, tmp_path, attacks=100, seed=len(name))


def test_an_error_that_everlearn_does_not_raise_itself_is_not_a_clear_refusal():
    learner = make("finetune")
    with pytest.raises(ValueError) as refused:
        learner.observe(torch.zeros(2, 6), ["a"])
    with pytest.raises(ValueError) as raw:
        [].index(0)
    assert is_clear(refused.value)
    assert not is_clear(raw.value)
    assert not is_clear(KeyError("generator"))


def test_a_change_and_a_value_that_is_not_finite_are_seen():
    learner = make("finetune")
    learner.observe(torch.zeros(2, 6), ["a", "b"])
    before = digest(learner)
    assert digest(learner) == before
    assert not_finite(learner) == []
    part = next(learner.network.parameters())
    with torch.no_grad():
        part[0, 0] = float("nan")
    assert digest(learner) != before
    assert len(not_finite(learner)) == 1
