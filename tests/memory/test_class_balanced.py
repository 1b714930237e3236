"""The class-balanced reservoir, against a slow one that never forgets a key, and by its distributions."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numbered_samples import send
from scipy.stats import chi2_contingency, chisquare

from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.labels import LabelTable


class Recorded(BalancedMemory):
    """A memory that also records the key of every sample it has seen."""

    def __init__(self, size, labels, generator):
        super().__init__(size, labels, generator)
        self.all_keys = []

    def _random_integers(self, count):
        self.last = super()._random_integers(count)
        return self.last

    def admit(self, slots):
        rows = super().admit(slots)
        self.all_keys += zip(slots.tolist(), self.last.tolist(), strict=True)
        return rows


def memory_of(size, seed=0, kind=BalancedMemory):
    table = LabelTable()
    memory = kind(size, table, torch.Generator().manual_seed(seed))
    memory.allocate(torch.zeros(1, 1, dtype=torch.int64), torch.device("cpu"))
    return memory, table


def kept(memory):
    x, labels = memory.samples()
    return sorted(zip(labels, x.flatten().tolist(), strict=True))


@given(
    st.integers(5, 30),
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=25),
    st.integers(0, 1000),
)
def test_each_class_keeps_the_largest_keys_it_ever_sent(size, batches, seed):
    memory, table = memory_of(size, seed, Recorded)
    sent = 0
    for batch in batches:
        send(memory, batch, sent)
        sent += len(batch)
        quota = size // len(table)
        expected = []
        for slot, label in enumerate(table.labels):
            own = [(key, number) for number, (s, key) in enumerate(memory.all_keys) if s == slot]
            expected += [(label, number) for _, number in sorted(own)[-quota:]]
        assert kept(memory) == sorted(expected)
        assert len(memory) <= size


def test_quota_when_classes_arrive_two_by_two():
    memory, _ = memory_of(100)
    quotas = []
    for task in range(5):
        for start in range(0, 200, 10):
            send(memory, [2 * task, 2 * task + 1] * 5, 1000 * task + start)
        quotas.append(set(memory.counts().values()))
    assert quotas == [{50}, {25}, {16}, {12}, {10}]


def test_quota_when_classes_arrive_one_by_one():
    memory, _ = memory_of(100)
    quotas = []
    for label in range(7):
        for start in range(0, 150, 10):
            send(memory, [label] * 10, 1000 * label + start)
        quotas.append(set(memory.counts().values()))
    assert quotas == [{100}, {50}, {33}, {25}, {20}, {16}, {14}]


def test_a_class_keeps_a_uniform_sample_of_all_it_sent_also_after_its_quota_shrank():
    included = np.zeros(40)
    for seed in range(600):
        memory, _ = memory_of(12, seed)
        for start in range(0, 20, 5):
            send(memory, ["a"] * 5, start)
        send(memory, ["b"] * 10, 1000)
        for start in range(20, 40, 5):
            send(memory, ["a"] * 5, start)
        send(memory, ["c"] * 10, 2000)
        numbers = [number for label, number in kept(memory) if label == "a"]
        assert len(numbers) == 4
        included[numbers] += 1
    assert chisquare(included).pvalue > 0.001


def test_rows_that_were_never_kept_do_not_come_back():
    memory, _ = memory_of(4)
    for start in range(0, 1000, 10):
        send(memory, ["a"] * 10, start)
    assert len(set(kept(memory))) == 4


def test_a_draw_holds_each_exemplar_at_most_once_and_is_no_larger_than_the_memory():
    memory, table = memory_of(10)
    send(memory, ["a", "b", "b", "b", "b", "b"])
    for count in (1, 3, 6, 20):
        rows, slots = memory.draw(count)
        assert len(rows) == len(slots) == min(count, 6)
        assert len(set(rows.tolist())) == len(rows)
        drawn = memory.recall(torch.from_numpy(rows)).flatten()
        assert [table.labels[slot] for slot in slots] == ["a" if number == 0 else "b" for number in drawn]


def test_nothing_is_drawn_from_an_empty_memory():
    memory, _ = memory_of(10)
    assert [len(part) for part in memory.draw(10)] == [0, 0]


def draw_by_the_definition(counts, count, generator):
    """For each slot a class uniformly among those that still have unused exemplars, one after the other."""
    left, drawn = dict(counts), Counter()
    for _ in range(min(count, sum(counts.values()))):
        label = generator.choice([c for c in left if left[c]])
        left[label] -= 1
        drawn[label] += 1
    return tuple(sorted(drawn.items()))


@pytest.mark.parametrize("counts", [{0: 1, 1: 2, 2: 6}, {0: 30, 1: 25, 2: 33}], ids=["scarce", "plenty"])
def test_draws_are_class_uniform_as_the_slow_definition_says(counts):
    memory, _ = memory_of(100)
    for label, number in counts.items():
        send(memory, [label] * number, 10 * label)
    assert memory.counts() == counts
    generator = np.random.default_rng(0)
    slow = Counter(draw_by_the_definition(counts, 5, generator) for _ in range(4000))
    fast = Counter(tuple(sorted(Counter(memory.draw(5)[1].tolist()).items())) for _ in range(4000))
    outcomes = [outcome for outcome in slow if slow[outcome] > 20]
    table_of_both = np.array([[slow[o] for o in outcomes], [fast[o] for o in outcomes]])
    assert chi2_contingency(table_of_both).pvalue > 0.001
    assert sum(fast[o] for o in outcomes) > 3900


@pytest.mark.parametrize(("count", "size"), [(2, 5), (3, 5), (4, 5), (2, 10), (3, 10)])
def test_within_a_class_every_subset_is_equally_likely(count, size):
    """Both where exemplars are scarce and where they are plenty."""
    memory, _ = memory_of(size)
    send(memory, ["a"] * size)
    drawn = Counter(tuple(sorted(memory.draw(count)[0].tolist())) for _ in range(6000))
    assert set(drawn) == set(combinations(range(size), count))
    assert chisquare(list(drawn.values())).pvalue > 0.001


def test_a_restored_memory_goes_on_as_the_first_one_would_have():
    first, table = memory_of(20, seed=3)
    for start in range(0, 100, 10):
        send(first, ["a", "b", "c", "a", "a"] * 2, start)
    copy = LabelTable(table.labels)
    second = BalancedMemory(20, copy, torch.Generator())
    second.restore(first.state(), torch.device("cpu"))
    second._generator.set_state(first._generator.get_state())
    assert kept(second) == kept(first)
    for start in range(100, 200, 10):
        for memory in (first, second):
            send(memory, ["c", "b"] * 5 if start < 150 else ["d", "a"] * 5, start)
        ours, theirs = first.draw(8), second.draw(8)
        assert torch.equal(
            *(m.recall(torch.from_numpy(rows)) for m, (rows, _) in ((first, ours), (second, theirs)))
        )
        assert ours[1].tolist() == theirs[1].tolist()
    assert kept(second) == kept(first)


def test_two_thousand_images_of_mnist_cost_about_1_6_megabytes():
    memory, _ = memory_of(2000)
    memory.allocate(torch.zeros(1, 784, dtype=torch.uint8), torch.device("cpu"))
    assert 1.56e6 < memory.nbytes() < 1.65e6
