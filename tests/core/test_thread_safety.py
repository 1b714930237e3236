"""A learner computes with its own number of threads and its own random numbers, whatever else the process does."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
import torch
from torch import nn

from everlearn import CoPE
from everlearn import threads as threads_module
from everlearn.learners import find
from everlearn.threads import ThreadCount, computing_with


def dropout():
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 8))


def course(seed, batches=12):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        yield torch.randn(6, 6, generator=generator), ["a", "b", "c"] * 2


def learnt(seed):
    torch.manual_seed(0)
    learner = find("reservoir")(dropout(), memory_size=12, seed=seed, device="cpu")
    for x, y in course(seed):
        learner.observe(x, y)
    return learner.state_dict()


def same(left, right):
    return left.keys() == right.keys() and all(
        left[key] == right[key] if key == "meta" else torch.equal(left[key], right[key]) for key in left
    )


def test_learners_with_dropout_in_threads_and_somebody_who_draws_change_nothing_of_each_other():
    alone = [learnt(seed) for seed in range(2)]
    over, together = threading.Event(), {}

    def draw():
        while not over.is_set():
            torch.rand(100)

    def learn(seed, network):
        learner = find("reservoir")(network, memory_size=12, seed=seed, device="cpu")
        for x, y in course(seed):
            learner.observe(x, y)
        together[seed] = learner.state_dict()

    networks = []
    for _ in range(2):
        torch.manual_seed(0)
        networks.append(dropout())
    threads = [threading.Thread(target=learn, args=(seed, networks[seed])) for seed in range(2)]
    noise = threading.Thread(target=draw)
    for thread in (noise, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    noise.join()
    assert all(same(alone[seed], together[seed]) for seed in range(2))


def test_learning_draws_nothing_from_torchs_own_generator():
    learner = find("cope")(dropout(), memory_size=12, device="cpu")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for x, y in course(0):
        learner.observe(x, y)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_of_the_process_is_given_back(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        learner = CoPE("mlp", hidden=8, memory_size=12, device="cpu", threads=2)
        learner.observe(torch.randn(4, 3), list("abab"))
        learner.predict(torch.randn(4, 3))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_it_computes_with_the_number_in_its_settings():
    met = []

    class Met(nn.Linear):
        def forward(self, x):
            met.append(torch.get_num_threads())
            return super().forward(x)

    learner = CoPE(Met(3, 4), memory_size=12, device="cpu", threads=2)
    learner.observe(torch.randn(4, 3), list("abab"))
    learner.predict(torch.randn(4, 3))
    assert set(met) == {2}


def test_those_who_want_another_number_wait_until_nobody_computes():
    first = ThreadCount(1)
    first.enter()
    entered = threading.Event()

    def other():
        with computing_with(2):
            entered.set()

    thread = threading.Thread(target=other)
    thread.start()
    assert not entered.wait(0.05)
    first.leave()
    assert entered.wait(20)
    thread.join()


def test_two_threads_that_merge_two_learners_into_each_other_both_end():
    pair = [CoPE("mlp", hidden=8, memory_size=20, device="cpu", seed=0) for _ in range(2)]
    for learner in pair:
        learner.observe(torch.randn(4, 3), list("abab"))
    threads = [
        threading.Thread(target=lambda a=a, b=b: [a.merge(b) for _ in range(20)], daemon=True)
        for a, b in (pair, pair[::-1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert all(learner.batches > 20 for learner in pair)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_learner_that_a_thread_was_changing_when_the_process_forked_says_so():
    inside, goes_on = threading.Event(), threading.Event()

    class Slow(nn.Linear):
        def forward(self, x):
            if self.training and threading.current_thread() is not threading.main_thread():
                inside.set()
                goes_on.wait(20)
            return super().forward(x)

    busy = CoPE(Slow(3, 4), memory_size=12, device="cpu")
    idle = CoPE("mlp", hidden=8, memory_size=12, device="cpu")
    x, y = torch.randn(4, 3), list("abab")
    for learner in (busy, idle):
        learner.observe(x, y)
    thread = threading.Thread(target=busy.observe, args=(x, y))
    thread.start()
    assert inside.wait(20)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            idle.state_dict()
            busy.observe(x, y)
        except RuntimeError as error:
            code = 0 if "another thread was changing this learner" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    goes_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert busy.batches == 2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))])
def test_a_copy_with_averaged_weights_goes_on_learning_as_the_original_does(copied):
    learner = CoPE("mlp", hidden=8, memory_size=12, averaging=0.9, device="cpu")
    batches = list(course(3))
    for x, y in batches[:4]:
        learner.observe(x, y)
    twin = copied(learner)
    for x, y in batches[4:]:
        learner.observe(x, y)
        twin.observe(x, y)
    assert same(learner.state_dict(), twin.state_dict())


@pytest.mark.parametrize("name", ["finetune", "reservoir", "cope-ce", "mir", "cope"])
@pytest.mark.parametrize("size", [1e3, 1e5, 1e10])
def test_one_wild_sample_does_not_ruin_a_learner(name, size):
    centres = 2 * torch.randn(6, 20, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(1)

    def blobs(count):
        y = torch.randint(6, (count,), generator=generator)
        return centres[y] + torch.randn(count, 20, generator=generator), y

    settings = {} if name == "finetune" else {"memory_size": 100}
    learner = find(name)("mlp", hidden=64, seed=0, device="cpu", **settings)
    test_x, test_y = blobs(300)
    for i in range(90):
        x, y = blobs(10)
        if i == 60:
            assert np.mean(np.array(learner.predict(test_x)) == test_y.numpy()) > 0.95
            x[3, 5], y[3] = size, (y[3] + 1) % 6
        learner.observe(x, y)
    assert np.mean(np.array(learner.predict(test_x)) == test_y.numpy()) > 0.9


def test_an_interrupt_while_the_threads_are_given_back_leaves_no_count_active(monkeypatch):
    class InterruptedOnce:
        def __init__(self):
            self.lock, self.calls = threading.Lock(), 0

        def __enter__(self):
            self.calls += 1
            if self.calls == 2:  # the first is that of `enter`
                raise KeyboardInterrupt
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    monkeypatch.setattr(threads_module, "_lock", InterruptedOnce())
    with pytest.raises(KeyboardInterrupt), computing_with(2):
        pass
    assert not threads_module._active


def test_a_huge_batch_in_batch_norm_does_not_block_the_next_ones():
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 4))
    learner = find("cope+")(network, memory_size=12, device="cpu")
    learner.observe(torch.full((6, 6), 1e12), ["a", "b", "c"] * 2)
    learner.observe(torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), ["a", "b"] * 4)
    assert learner.batches == 2
