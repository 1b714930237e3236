"""Streams over datasets: the order of the samples, what a learner gets, and the test sets."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everlearn.streams import datasets, stream
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.domain_incremental import Permutation, Rotation
from everlearn.streams.scenarios import SCENARIOS
from everlearn.streams.task_split import as_tensor

DOCS = Path(__file__).parents[2] / "docs" / "streams.md"
KEEPS_ALL = [name for name in SCENARIOS if name != "long-tailed"]
seeds = st.integers(0, 2**31)
unhurried = settings(deadline=None, max_examples=15)


def digits(scenario: str = "split", amount: float | None = None, seed: int = 0, **more: int) -> DatasetStream:
    return stream("split-digits", scenario=scenario, amount=amount, seed=seed, **more)


def sent(s: DatasetStream) -> torch.Tensor:
    """The places in the dataset of the samples it sends, in order."""
    return torch.cat(s.order)


def same(one: DatasetStream, other: DatasetStream) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and a.t == b.t for a, b in pairs)


# The paper's streams


def test_split_mnist_is_the_papers(mnist_dir: Path) -> None:
    s = stream("split-mnist", data_dir=mnist_dir)
    batches = [(len(x), t) for x, _, t in s]
    sizes = [sum(n for n, t in batches if t == task) for task in range(5)]
    last = [[n for n, t in batches if t == task][-1] % 10 for task in range(5)]
    assert sizes == [12665, 12089, 11263, 12183, 11800]
    assert len(batches) == len(s) == 6002
    assert last == [5, 9, 3, 3, 0]
    assert [len(y) for _, y in s.tests] == [2115, 2042, 1874, 1986, 1983]


def test_an_imbalanced_mnist_sends_2000_of_one_task_and_200_of_each_other(mnist_dir: Path) -> None:
    s = stream("split-mnist", imbalance=3, data_dir=mnist_dir)
    assert [len(task) for task in s.order] == [200, 200, 2000, 200, 200]
    assert s.samples == 2800


def test_task_t_of_a_split_holds_the_labels_2t_and_2t_plus_1() -> None:
    for _, y, t in digits():
        assert set(y.tolist()) <= {2 * t, 2 * t + 1}
    for t, (_, y) in enumerate(digits().tests):
        assert set(y.tolist()) == {2 * t, 2 * t + 1}


def test_an_imbalanced_stream_draws_from_the_task_and_not_from_each_class() -> None:
    labels = [digits(seed=seed, imbalance=1).y[digits(seed=seed, imbalance=1).order[1]] for seed in range(5)]
    assert len({int((of_task == 2).sum()) for of_task in labels}) > 1


def test_another_seed_draws_another_subset() -> None:
    one, other = (sent(digits(seed=seed, imbalance=2)).sort().values for seed in (0, 1))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("scenario", ["blurry", "recurring"])
def test_an_imbalanced_stream_has_the_same_samples_in_other_orders(scenario: str) -> None:
    one, other = digits(imbalance=2), digits(scenario, imbalance=2)
    assert sorted(sent(one).tolist()) == sorted(sent(other).tolist())
    assert sent(one).tolist() != sent(other).tolist()


def test_iid_holds_exactly_the_samples_of_the_split_also_when_imbalanced() -> None:
    for imbalance in (None, 2):
        split, iid = (digits(scenario, imbalance=imbalance) for scenario in ("split", "iid"))
        assert torch.equal(sent(split).sort().values, sent(iid).sort().values)


def test_iid_is_one_task_of_all_classes_with_a_concept_for_each_task_of_the_split() -> None:
    s = digits("iid", batch_size=100)
    assert {t for _, _, t in s} == {0}
    assert len(next(iter(s)).y.unique()) == 10
    assert (s.tasks, len(s.tests), s.current(5)) == (1, 5, (0, 1, 2, 3, 4))


# Every scenario


@pytest.mark.parametrize("scenario", SCENARIOS)
@given(seed=seeds)
@settings(deadline=None, max_examples=5)
def test_a_seed_fixes_everything(scenario: str, seed: int) -> None:
    one, other = digits(scenario, seed=seed), digits(scenario, seed=seed)
    assert same(one, other)
    assert same(one, one)
    for (x, y), (x_again, y_again) in zip(one.tests_at(700), other.tests_at(700), strict=True):
        assert torch.equal(x, x_again)
        assert torch.equal(y, y_again)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_other_seeds_send_in_other_orders(scenario: str) -> None:
    assert not same(digits(scenario, batch_size=1500), digits(scenario, seed=1, batch_size=1500))


@pytest.mark.parametrize("scenario", KEEPS_ALL)
@given(seed=seeds, amount=st.floats(0, 1))
@unhurried
def test_every_sample_is_sent_once(scenario: str, seed: int, amount: float) -> None:
    takes = SCENARIOS[scenario].amount
    s = digits(scenario, None if takes is None or takes.whole else amount, seed)
    assert torch.equal(sent(s).sort().values, torch.arange(len(s.x)))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("batch_size", [1, 7, 10, 5000])
def test_batches_are_full_except_the_last_of_a_task(scenario: str, batch_size: int) -> None:
    s = digits(scenario, batch_size=batch_size)
    batches = list(s)
    assert len(batches) == len(s)
    assert sum(len(b.x) for b in batches) == s.samples == sum(len(b.y) for b in batches)
    for now, then in itertools.pairwise(batches):
        assert len(now.x) == batch_size or now.t != then.t


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_stream_tells_t_tasks_and_classes_unless_it_drifts(scenario: str) -> None:
    s = digits(scenario)
    sent = {t for _, _, t in s}
    if "drift" in scenario:
        assert (s.tells, s.tasks, sent) == ({"classes"}, None, {None})
    else:
        assert (s.tells, sent) == ({"t", "tasks", "classes"}, set(range(s.tasks or 0)))
    assert s.classes == list(range(10))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_samples_keep_their_type_and_shape(scenario: str) -> None:
    s = digits(scenario)
    assert all(x.dtype == torch.uint8 and x.shape[1:] == (64,) for x, _, _ in s)
    assert all(x.dtype == torch.uint8 and x.shape[1:] == (64,) for x, _ in s.tests)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_stream_travels_to_another_process(scenario: str) -> None:
    s = digits(scenario)
    assert same(s, pickle.loads(pickle.dumps(s)))


def test_iterating_leaves_the_dataset_as_it_was() -> None:
    before = datasets.load("digits").x_train.copy()
    for scenario in SCENARIOS:
        for x, _, _ in digits(scenario):
            x.zero_()
    assert np.array_equal(datasets.load("digits").x_train, before)


def test_a_read_only_array_is_copied_once() -> None:
    array = np.arange(3)
    assert as_tensor(array).data_ptr() == array.ctypes.data
    array.setflags(write=False)
    assert as_tensor(array).data_ptr() == as_tensor(array).data_ptr() != array.ctypes.data


# Blurry, long-tailed, recurring


def test_blurry_by_nothing_is_the_split() -> None:
    assert same(digits("blurry", 0), digits())


@given(seed=seeds, amount=st.floats(0.05, 1))
@unhurried
def test_only_the_window_around_a_transition_is_blurry(seed: int, amount: float) -> None:
    s = digits("blurry", amount, seed)
    tasks = (s.y[sent(s)] // 2).tolist()
    for place, task in enumerate(tasks):
        assert task in s.current(place + 1)
    assert len({len(s.current(n)) for n in range(1, s.samples)}) == 2


def test_the_next_task_grows_linearly_likelier_through_the_window() -> None:
    share = torch.zeros(140)
    for seed in range(200):
        s = digits("blurry", 0.5, seed)
        ends = len(s.order[0])
        share += (s.y[sent(s)][ends - 70 : ends + 70] >= 2) / 200
    linear = (torch.arange(140) + 0.5) / 140
    assert (share - linear).abs().max() < 5 * math.sqrt(0.25 / 200)
    assert (share - linear).mean().abs() < 0.005


def test_a_long_tail_falls_exponentially_from_the_first_class_to_the_last() -> None:
    everything = Counter(digits().y.tolist())
    s = digits("long-tailed", 0.1)
    kept = Counter(s.y[sent(s)].tolist())
    assert kept == {k: round(everything[k] * 0.1 ** (k / 9)) for k in range(10)}


def test_the_rarest_class_of_a_long_tail_keeps_a_sample() -> None:
    s = digits("long-tailed", 0)
    assert Counter(s.y[sent(s)].tolist())[9] == 1


def test_a_long_tail_of_1_is_the_split() -> None:
    assert same(digits("long-tailed", 1), digits())


def test_recurring_tasks_come_back_with_their_identifier() -> None:
    s = digits("recurring", 3, batch_size=5000)
    assert [t for _, _, t in s] == [0, 1, 2, 3, 4] * 3
    assert all(set(y.tolist()) == {2 * t, 2 * t + 1} for _, y, t in s)
    assert len(s.tests) == s.tasks == 5


def test_the_concept_in_force_returns_with_its_task() -> None:
    s = digits("recurring", 2, batch_size=1)
    for place, batch in enumerate(s):
        assert s.current(place + 1) == (batch.t,)


# Domains


def test_the_first_domain_is_as_it_is_and_every_domain_has_all_classes() -> None:
    for scenario in ("permuted", "rotated"):
        s = digits(scenario, batch_size=5000)
        batches = list(s)
        assert torch.equal(batches[0].x, s.x[s.order[0]])
        assert all(len(y.unique()) == 10 for _, y, _ in batches)
        assert all(len(y) == 355 for _, y in s.tests)


@given(seed=seeds, domains=st.integers(2, 6))
@unhurried
def test_a_permutation_is_a_bijection_and_the_tests_use_the_same_one(seed: int, domains: int) -> None:
    s = digits("permuted", domains, seed, batch_size=5000)
    transforms = [segment.transform for segment in s.arrangement.segments]
    assert len(transforms) == domains == len(s.tests)
    for (x, _, t), order in zip(s, s.order, strict=True):
        if t > 0:
            order_of_inputs = transforms[t].order
            assert torch.equal(order_of_inputs.sort().values, torch.arange(64))
            assert torch.equal(x, s.x[order][:, order_of_inputs])
            assert torch.equal(s.tests[t][0], s.tests[0][0][:, order_of_inputs])


def test_permutations_differ_from_domain_to_domain() -> None:
    tests = [x for x, _ in digits("permuted", 4).tests]
    assert not any(torch.equal(tests[i], tests[j]) for i in range(4) for j in range(i))


def test_domain_i_is_turned_i_times_the_step() -> None:
    s = digits("rotated", 30, batch_size=5000)
    for (x, _, t), order in zip(s, s.order, strict=True):
        assert torch.equal(x, Rotation(30 * t)(s.x[order]))
        assert torch.equal(s.tests[t][0], Rotation(30 * t)(s.tests[0][0]))


@pytest.mark.parametrize("shape", [(64,), (784,), (8, 8), (3, 32, 32), (1, 28, 28)])
def test_quarter_turns_are_exact_and_none_is_the_identity(shape: tuple[int, ...]) -> None:
    x = torch.randint(0, 256, (4, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    side = x.shape[-1] if len(shape) > 1 else math.isqrt(shape[0])
    for quarters in range(5):
        turned = torch.rot90(x.reshape(4, -1, side, side), quarters, (2, 3)).reshape(x.shape)
        assert torch.equal(Rotation(90 * quarters)(x), turned)
    assert torch.equal(Rotation(0)(x), x)


def test_a_half_turn_of_a_picture_that_is_not_square_is_exact() -> None:
    x = torch.rand(2, 3, 4, 6)
    assert torch.allclose(Rotation(180)(x), x.flip(2, 3), atol=1e-5)


def test_a_turned_picture_keeps_its_middle_and_its_brightness() -> None:
    x = torch.zeros(1, 9, 9)
    x[0, 3:6, 3:6] = 100.0
    turned = Rotation(45)(x)
    assert turned[0, 4, 4] == 100
    assert math.isclose(turned.sum(), x.sum(), rel_tol=0.05)


def test_samples_that_are_no_square_pictures_cannot_be_turned() -> None:
    with pytest.raises(ValueError, match="samples of 10 inputs are not square images"):
        Rotation(45)(torch.zeros(2, 10))


def test_a_permutation_takes_colour_pictures() -> None:
    x = torch.arange(24).reshape(2, 3, 2, 2)
    turned = Permutation(torch.arange(11, -1, -1))(x)
    assert torch.equal(turned[0].flatten(), torch.arange(11, -1, -1))


# Drift


def test_an_abrupt_drift_inverts_every_picture_of_the_second_half() -> None:
    s = digits("abrupt-drift", batch_size=1)
    x = torch.cat([batch.x for batch in s])
    plain, half = s.x[sent(s)], s.samples // 2
    assert torch.equal(x[:half], plain[:half])
    assert torch.equal(x[half:], 255 - plain[half:])


def test_in_a_gradual_drift_ever_more_pictures_are_inverted() -> None:
    s = digits("gradual-drift", 0.5, batch_size=1)
    x = torch.cat([batch.x for batch in s])
    inverted = (x != s.x[sent(s)]).any(1).float()
    start, stop = s.samples // 2 - s.samples // 4, s.samples // 2 + s.samples // 4
    assert inverted[:start].sum() == 0
    assert inverted[stop:].all()
    early, late = inverted[start:stop].chunk(2)
    assert abs(early.mean() - 0.25) < 0.08
    assert abs(late.mean() - 0.75) < 0.08


def test_labels_stay_what_they_are_when_the_stream_drifts() -> None:
    for scenario in ("abrupt-drift", "gradual-drift"):
        s = digits(scenario, batch_size=5000)
        assert torch.equal(next(iter(s)).y, s.y[sent(s)])


def test_the_tests_of_a_drifting_stream_drift_with_it() -> None:
    s = digits("gradual-drift", 0.5)
    (before, y), (after, _) = s.tests
    assert torch.equal(after, 255 - before)
    ((at_first, y_first),) = s.tests_at(0)
    ((at_last, _),) = s.tests_at(s.samples)
    ((between, _),) = s.tests_at(s.samples // 2)
    assert torch.equal(at_first, before)
    assert torch.equal(y_first, y)
    assert torch.equal(at_last, after)
    turned = (between == after).all(1)
    assert torch.equal(between[~turned], before[~turned])
    assert abs(turned.float().mean() - 0.5) < 0.1


def test_a_test_sample_that_has_turned_stays_turned() -> None:
    s = digits("gradual-drift", 1.0)
    after = s.tests[1][0]
    turned = [(s.tests_at(n)[0][0] == after).all(1) for n in range(0, s.samples, 100)]
    assert all((then | ~now).all() for now, then in itertools.pairwise(turned))


def test_the_concepts_in_force_are_before_both_and_after() -> None:
    gradual, abrupt = digits("gradual-drift", 0.5), digits("abrupt-drift")
    middle = gradual.samples // 2
    assert [gradual.current(n) for n in (0, middle, gradual.samples)] == [(0,), (0, 1), (1,)]
    assert [abrupt.current(n) for n in (0, middle, middle + 1)] == [(0,), (0,), (1,)]


def test_where_nothing_drifts_the_tests_of_a_moment_are_the_tests() -> None:
    for scenario in ("split", "blurry", "rotated"):
        s = digits(scenario)
        assert s.tests_at(0) is s.tests_at(500) is s.tests


def test_the_concept_in_force_is_that_of_the_last_sample_sent() -> None:
    s = digits()
    first = len(s.order[0])
    assert [s.current(n) for n in (0, first, first + 1, s.samples, 10**9)] == [(0,), (0,), (1,), (4,), (4,)]


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"scenario": "blury"}, "there is no scenario 'blury'; did you mean 'blurry'?"),
        (
            {"scenario": "blurry", "amount": 1.5},
            "the share of a task's length that is mixed, a number from 0 to 1",
        ),
        ({"scenario": "gradual-drift", "amount": math.nan}, "a number from 0 to 1, not nan"),
        ({"scenario": "recurring", "amount": 1.5}, "a whole number of at least 1, not 1.5"),
        ({"scenario": "recurring", "amount": 1000}, "can't come 1000 times; choose a smaller amount"),
        ({"scenario": "permuted", "amount": 5000}, "1442 samples can't make 5000 domains"),
        ({"amount": 0.5}, "the scenario split has no amount, but 0.5 was given; leave it out"),
        (
            {"scenario": "long-tailed", "imbalance": 1},
            "imbalance works with the scenarios split, iid, blurry, recurring, not with long-tailed",
        ),
        ({"imbalance": 6}, "imbalance must be one of the tasks 1 to 5 of split-digits, not 6"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, not 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number, at least 1, not 2.5"),
        ({"seed": "x"}, "seed must be a whole number, at least 0, not 'x'"),
        ({"seed": -1}, "seed must be a whole number, at least 0, not -1"),
    ],
)
def test_a_mistake_is_one_clear_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        stream("split-digits", **arguments)
    assert "\n" not in str(caught.value)


# The page


def test_the_page_names_every_scenario_with_its_default_amount() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| ([^|]*) \|$", DOCS.read_text("utf-8"), re.MULTILINE))
    assert list(rows) == list(SCENARIOS)
    for name, (_, _, amount) in SCENARIOS.items():
        assert rows[name].startswith("—" if amount is None else f"{amount.default}: "), name


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL):
        exec(example, names)
