"""Forgetting a class and merging two memories, by their distributions and against slow oracles."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numbered_samples import send
from scipy.stats import chisquare

from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.herded import HerdedMemory
from everlearn.memory.labels import LabelTable
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.memory.ring import RingMemory
from everlearn.memory.scored import ScoredMemory

CPU = torch.device("cpu")


def memory_of(kind, size, seed=0, labels=(), **options):
    memory = kind(size, labels=LabelTable(labels), generator=torch.Generator().manual_seed(seed), **options)
    memory.allocate(torch.zeros(1, 1, dtype=torch.int64), CPU)
    return memory


def forget(memory, label):
    memory.forget(memory._labels.slot(label))
    memory._labels.remove(label)


def merge(memory, other):
    for label in other._labels.labels:
        memory._labels.add(label)
    memory.open_classes(len(memory._labels))
    memory.merge(other, np.array(memory._labels.slots(other._labels.labels)))


def kept(memory):
    x, labels = memory.samples()
    return sorted(zip(labels, x.flatten().tolist(), strict=True))


KINDS = {
    BalancedMemory: {},
    ReservoirMemory: {},
    RingMemory: {"tasks": 1},
}


@pytest.mark.parametrize("kind", KINDS)
@given(batches=st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=9), min_size=1, max_size=9))
def test_of_a_forgotten_class_nothing_is_left_and_of_the_others_all_is(kind, batches):
    memory = memory_of(kind, 12, **KINDS[kind])
    for i, batch in enumerate(batches):
        send(memory, batch, 1 + 100 * i)
    gone = batches[0][0]
    before, numbers = kept(memory), [number for label, number in kept(memory) if label == gone]
    forget(memory, gone)
    assert kept(memory) == [(label, number) for label, number in before if label != gone]
    assert not np.isin(memory.rows.flatten().numpy(), numbers).any()
    assert len(memory) == len(kept(memory))


def test_when_a_class_is_forgotten_the_quota_of_the_others_grows_and_they_fill_it():
    memory = memory_of(BalancedMemory, 12)
    send(memory, ["a", "b", "c"] * 20, 0)
    assert memory.counts() == {"a": 4, "b": 4, "c": 4}
    forget(memory, "b")
    assert memory.counts() == {"a": 4, "c": 4}
    send(memory, ["a", "c"] * 500, 100)
    assert memory.counts() == {"a": 6, "c": 6}


@pytest.mark.parametrize("kind", [BalancedMemory, ReservoirMemory])
def test_what_is_kept_after_a_class_was_forgotten_is_a_uniform_sample_of_the_others(kind):
    """Samples from before, from while the reservoir refills, and from after it has: all equally likely."""
    included = np.zeros(60)
    for seed in range(1000):
        memory = memory_of(kind, 10, seed)
        send(memory, ["a", "b", "b"] * 10, 0)
        forget(memory, "b")
        send(memory, ["a"] * 7, 30)
        send(memory, ["a"] * 23, 37)
        included[[number for _, number in kept(memory)]] += 1
    others = np.append(np.arange(0, 30, 3), np.arange(30, 60))
    assert included.sum() == included[others].sum()
    assert chisquare(included[others]).pvalue > 0.001


def test_while_a_class_fills_a_larger_quota_new_samples_are_as_likely_as_old_ones():
    """By the largest dropped key alone, new ones would be kept with 6 / 21, where the old ones are with 5 / 20."""
    old = new = 0
    for seed in range(2000):
        memory = memory_of(BalancedMemory, 10, seed)
        send(memory, ["a", "b"] * 20, 0)
        forget(memory, "b")
        send(memory, ["a"] * 4, 40)
        numbers = [number for _, number in kept(memory)]
        old += sum(number < 40 for number in numbers)
        new += sum(number >= 40 for number in numbers)
    assert old == 5 * 2000
    assert chisquare([new, 4 * 2000 - new], [0.2532 * 4 * 2000, 0.7468 * 4 * 2000]).pvalue > 0.001


def test_a_reservoir_is_full_again_when_as_many_came_as_were_forgotten():
    memory = memory_of(ReservoirMemory, 10)
    send(memory, ["a", "b"] * 20, 0)
    forget(memory, "b")
    assert len(memory) < 10
    send(memory, ["a"] * 20, 40)
    assert len(memory) == 10
    assert memory.seen == 40
    send(memory, ["a"] * 20, 60)
    assert (len(memory), memory.seen) == (10, 60)


CASES = [(kind, forgotten) for kind in (BalancedMemory, ReservoirMemory) for forgotten in (False, True)]


@pytest.mark.parametrize(("kind", "forgotten"), CASES)
@pytest.mark.parametrize("same_seed", [True, False])
def test_of_two_merged_memories_every_sample_of_both_streams_is_equally_likely(kind, forgotten, same_seed):
    included = np.zeros(60)
    for seed in range(800):
        first = memory_of(kind, 10, seed)
        second = memory_of(kind, 10, seed if same_seed else 9000 + seed)
        send(first, ["a"] * 15, 0)
        send(second, ["a"] * 35, 15)
        if forgotten:
            send(second, ["b"] * 20, 100)
            forget(second, "b")
        merge(first, second)
        send(first, ["a"] * 10, 50)
        included[[number for _, number in kept(first)]] += 1
    assert chisquare(included).pvalue > 0.001
    by_stream = [part.sum() for part in (included[:15], included[15:50], included[50:])]
    assert chisquare(by_stream, included.sum() * np.array([15, 35, 10]) / 60).pvalue > 0.001


def test_merged_classes_share_the_memory_equally_and_the_other_stays_as_it_was():
    first, second = memory_of(BalancedMemory, 12, 1), memory_of(BalancedMemory, 12, 2)
    send(first, ["a", "b"] * 20, 0)
    send(second, ["b", "c"] * 20, 100)
    before = kept(second)
    merge(first, second)
    assert first.counts() == {"a": 4, "b": 4, "c": 4}
    assert kept(second) == before
    assert {label for label, number in kept(first) if number >= 100} <= {"b", "c"}


def test_a_merged_memory_goes_on_by_the_larger_threshold():
    first, second = memory_of(BalancedMemory, 4, 1), memory_of(BalancedMemory, 4, 2)
    send(first, ["a"] * 4, 0)
    send(second, ["a"] * 400, 100)
    threshold = int(second._index_state()["dropped"][0])
    merge(first, second)
    index = first._index_state()
    assert index["dropped"][0] >= threshold
    assert (index["keys"] > index["dropped"][0]).all()


def test_a_state_from_after_a_class_was_forgotten_goes_on_as_the_memory_itself_does():
    for kind in (BalancedMemory, ReservoirMemory):
        memory = memory_of(kind, 10, 5)
        send(memory, ["a", "b", "c"] * 10, 0)
        forget(memory, "b")
        twin = kind(10, LabelTable(memory._labels.labels), torch.Generator())
        twin.restore(memory.state(), CPU)
        twin._generator.set_state(memory._generator.get_state())
        for start in range(100, 200, 10):
            for each in (memory, twin):
                send(each, ["c", "d", "a", "a", "d"] * 2, start)
            assert kept(memory) == kept(twin)


def test_a_ring_that_has_lost_a_class_still_replaces_the_oldest_first():
    memory = memory_of(RingMemory, 4, tasks=1)
    send(memory, ["a", "b", "a", "a", "b", "a"], 0)  # the ring holds 2 a, 3 a, 4 b, 5 a
    forget(memory, "b")
    send(memory, ["a", "a"], 10)
    assert [number for _, number in kept(memory)] == [3, 5, 10, 11]


def test_a_task_without_samples_is_as_if_it_had_never_come():
    memory = memory_of(RingMemory, 4, tasks=2)
    send(memory, ["a", "a"], 0)
    memory.running = 1
    send(memory, ["b", "b"], 10)
    forget(memory, "a")
    assert memory.tasks == [1]
    assert memory.room(7)
    assert memory.past() == []
    memory.running = 7
    send(memory, ["c"], 20)
    assert [(rows.tolist(), slots.tolist()) for rows, slots in memory.past()] == [([0, 1], [0, 0])]


def test_merged_rings_keep_the_most_recent_of_each_task():
    first, second = (memory_of(RingMemory, 4, tasks=2) for _ in range(2))
    send(first, ["a", "a"], 0)
    send(second, ["a"], 10)
    second.running = 1
    send(second, ["b", "b", "b"], 20)
    merge(first, second)
    assert kept(first) == [("a", 1), ("a", 10), ("b", 21), ("b", 22)]
    assert (first.tasks, first.running) == ([0, 1], 0)


def test_herded_exemplars_and_what_came_since_are_forgotten():
    memory = memory_of(HerdedMemory, 4)
    send(memory, ["a", "b", "a", "b"], 1)
    memory.refresh(lambda samples, count: torch.arange(count))
    send(memory, ["a", "b", "c"], 10)
    forget(memory, "a")
    assert kept(memory) == [("b", 2), ("b", 4)]
    samples, slots = memory.stored()
    assert (samples.flatten().tolist(), slots.tolist()) == ([2, 4, 11, 12], [0, 0, 0, 1])


def test_scores_go_with_their_exemplars():
    memory = memory_of(ScoredMemory, 4, labels="ab")
    memory.enter(
        torch.arange(3)[:, None], torch.tensor([0, 1, 0]), torch.tensor([0.1, 0.2, 0.3]), torch.arange(3)
    )
    forget(memory, "a")
    assert (kept(memory), memory.scores.tolist()) == ([("b", 1)], pytest.approx([0.2]))
