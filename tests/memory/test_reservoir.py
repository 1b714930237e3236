"""The flat reservoir, against Vitter's algorithm sample by sample, and by its distributions."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from everlearn.memory.labels import LabelTable
from everlearn.memory.reservoir import ReservoirMemory


def memory_of(size, seed=0, labels=("a", "b", "c")):
    memory = ReservoirMemory(size, LabelTable(labels), torch.Generator().manual_seed(seed))
    memory.allocate(torch.zeros(1, 1, dtype=torch.int64), torch.device("cpu"))
    return memory


def send(memory, slots, start=0):
    """Send a batch of samples that are numbered, so that each can be identified."""
    x = torch.arange(start, start + len(slots))[:, None]
    memory.write(x, torch.from_numpy(memory.admit(np.array(slots))))


def kept(memory):
    x, labels = memory.samples()
    return list(zip(labels, x.flatten().tolist(), strict=True))


@given(
    st.integers(1, 12),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=15), min_size=1, max_size=12),
    st.integers(0, 1000),
)
def test_it_keeps_what_algorithm_r_keeps_sample_by_sample(size, batches, seed):
    memory = memory_of(size, seed)
    draws = []
    original = memory._random_integers
    memory._random_integers = lambda count: draws.append(original(count)) or draws[-1]
    slow, sent = [], 0
    for batch in batches:
        send(memory, batch, sent)
        for slot, number in zip(batch, draws[-1].tolist(), strict=True):
            if len(slow) < size:
                slow.append(("abc"[slot], sent))
            elif (place := number % (sent + 1)) < size:
                slow[place] = ("abc"[slot], sent)
            sent += 1
        assert kept(memory) == slow
        assert len(memory) == len(slow) <= size
        assert memory.counts() == {label: sum(own == label for own, _ in slow) for label in "abc"}


@pytest.mark.parametrize("batch", [1, 7, 35])
def test_every_sample_of_the_stream_is_kept_with_the_same_probability(batch):
    included = np.zeros(35)
    for seed in range(600):
        memory = memory_of(6, seed)
        for start in range(0, 35, batch):
            send(memory, [0] * batch, start)
        numbers = [number for _, number in kept(memory)]
        assert len(set(numbers)) == 6
        included[numbers] += 1
    assert chisquare(included).pvalue > 0.001


def test_a_class_is_kept_as_often_as_it_was_sent():
    share = []
    for seed in range(150):
        memory = memory_of(50, seed)
        for start in range(0, 300, 10):
            send(memory, [0] * 9 + [1], start)
        share.append(memory.counts()["a"] / 50)
    assert np.mean(share) == pytest.approx(0.9, abs=0.01)


def test_a_draw_holds_each_exemplar_at_most_once_and_is_no_larger_than_the_memory():
    memory = memory_of(10)
    send(memory, [0, 1, 1, 1, 2, 2])
    for count in (1, 3, 6, 20):
        rows, slots = memory.draw(count)
        assert len(rows) == len(slots) == min(count, 6)
        assert len(set(rows.tolist())) == len(rows)
        drawn = memory.recall(torch.from_numpy(rows)).flatten().tolist()
        assert [[0, 1, 1, 1, 2, 2][number] for number in drawn] == slots.tolist()


def test_nothing_is_drawn_from_an_empty_memory():
    assert [len(part) for part in memory_of(10).draw(10)] == [0, 0]


@pytest.mark.parametrize(("count", "size"), [(1, 4), (2, 5), (3, 5), (4, 5), (3, 9)])
def test_every_subset_is_equally_likely_to_be_drawn(count, size):
    """Both where exemplars are scarce and where they are plenty."""
    memory = memory_of(size)
    send(memory, [0] * size)
    drawn = Counter(tuple(sorted(memory.draw(count)[0].tolist())) for _ in range(6000))
    assert set(drawn) == set(combinations(range(size), count))
    assert chisquare(list(drawn.values())).pvalue > 0.001


def test_a_restored_memory_goes_on_as_the_first_one_would_have():
    first = memory_of(20, seed=3)
    for start in range(0, 100, 10):
        send(first, [0, 1, 2, 0, 0] * 2, start)
    state = first.state()
    second = ReservoirMemory(20, LabelTable("abc"), torch.Generator())
    second.restore(state, torch.device("cpu"))
    second._generator.set_state(first._generator.get_state())
    assert kept(second) == kept(first)
    for start in range(100, 200, 10):
        for memory in (first, second):
            send(memory, [2, 1] * 5, start)
        ours, theirs = first.draw(8), second.draw(8)
        assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]
    assert kept(second) == kept(first)
    assert state["seen"].tolist() == [100]


def test_a_state_of_a_larger_memory_is_refused():
    first = memory_of(20)
    send(first, [0] * 20)
    with pytest.raises(ValueError, match="a memory of size 10 that saw 20 samples can't hold 20 exemplars"):
        memory_of(10).restore(first.state(), torch.device("cpu"))


def test_two_thousand_images_of_mnist_cost_about_1_6_megabytes():
    memory = memory_of(2000)
    memory.allocate(torch.zeros(1, 784, dtype=torch.uint8), torch.device("cpu"))
    assert 1.56e6 < memory.nbytes() < 1.65e6


@pytest.mark.parametrize("seen", [-1, 2**63 - 1])
def test_a_number_of_samples_that_can_not_be_is_refused(seen):
    first = memory_of(10)
    send(first, [0] * 20)
    state = first.state() | {"seen": torch.tensor([seen])}
    with pytest.raises(ValueError, match=f"a memory can't have seen {seen} samples"):
        memory_of(10).restore(state, torch.device("cpu"))
