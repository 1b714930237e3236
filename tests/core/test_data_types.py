"""Any data: tables, sequences, images of any size, embeddings, in every type of number."""

import numpy as np
import pytest
import torch
from small_learners import NAMES, OWN, batches, every_learner, make, same_state, teach
from torch import nn

from everlearn import CoPE, Evaluator, as_stream, load, run, stream
from everlearn.learners import registry


@pytest.fixture(autouse=True)
def _the_same_networks_every_time():
    """Those that are made in here draw their weights from the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


class Tokens(nn.Module):
    """A bag of words."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(20, 8), nn.Linear(8, 5)

    def forward(self, tokens):
        return self.last(self.words(tokens).mean(1))


class Recurrent(nn.Module):
    """The last state of a recurrent network over [time, features]."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.RNNCell(3, 8), nn.Linear(8, 5)

    def forward(self, x):
        state = x.new_zeros(len(x), 8)
        for moment in x.unbind(1):
            state = self.cell(moment, state)
        return self.last(state)


def images(*shape, dtype=torch.uint8):
    def sample(generator, label):
        bright = torch.randint(0, 60, shape, generator=generator) + 180 * label
        return bright.to(dtype) if dtype == torch.uint8 else (bright / 255).to(dtype)

    return sample


def table(dtype):
    return lambda generator, label: (torch.randn(7, generator=generator) + 4 * label).to(dtype)


def tokens(generator, label):
    return torch.randint(0, 10, (6,), generator=generator) + 10 * label


def sequence(generator, label):
    return torch.randn(4, 3, generator=generator) + 3 * label


def direction(dtype, scale):
    """As embeddings are, whose direction tells what they mean."""

    def sample(generator, label):
        numbers = torch.rand(12, generator=generator) / 2 + torch.eye(2)[label].repeat_interleave(6)
        return (scale * numbers).to(dtype)

    return sample


KINDS = {
    "table of float16": (table(torch.float16), "mlp"),
    "table of float32": (table(torch.float32), "mlp"),
    "table of float64": (table(torch.float64), "mlp"),
    "table of bfloat16": (table(torch.bfloat16), "mlp"),
    "grey bytes": (images(1, 5, 9), "mlp"),
    "flat float16 image": (images(4, 6, dtype=torch.float16), "mlp"),
    "tokens": (tokens, Tokens),
    "moments": (sequence, Recurrent),
    "embedding": (direction(torch.float32, 1), "identity"),
    "embedding in bytes": (direction(torch.uint8, 100), "identity"),
}


# All kinds for one learner of each memory; what these kinds test more is the same code in the others.
MEMORIES = {"cope", "reservoir", "finetune", "gss", "gem", "icarl", "curl", "cn-dpm", "der++"}
SAME_CODE = {"table of float16", "table of float64", "table of bfloat16", "flat float16 image", "moments"}
CHOSEN = [(name, kind) for name in NAMES for kind in KINDS if name in MEMORIES or kind not in SAME_CODE]


def data(sample, count, seed):
    generator = torch.Generator().manual_seed(seed)
    y = [i % 2 for i in range(count)]
    return torch.stack([sample(generator, label) for label in y]), y


@pytest.mark.parametrize(("name", "kind"), CHOSEN)
def test_every_learner_learns_stores_and_resumes_with_every_data_type(name, kind, tmp_path):
    sample, network = KINDS[kind]
    build = network if isinstance(network, str) else network()
    options = {"embedding": None, "momentum": 0.9, "passes": 15}
    if name not in OWN:  # which have Adam, and a step size for it
        options["learning_rate"] = 0.1
    learner = make(name, network=build, **options)
    x, y = data(sample, 240, 0)
    for start in range(0, 240, 6):
        teach(learner, x[start : start + 6], y[start : start + 6])
    learner.end_horizon()
    test, truth = data(sample, 100, 1)
    assert np.mean(np.array(learner.predict(test)) == truth) > 0.9
    if learner.memory is not None:
        kept = learner.memory.samples()[0]
        assert kept.dtype == (torch.float32 if x.dtype == torch.float64 else x.dtype)
        assert kept.shape[1:] == x.shape[1:]
    learner.save(tmp_path / "state")
    other = load(tmp_path / "state", None if isinstance(network, str) else network(), device="cpu")
    for each in (learner, other):
        teach(each, x[:6], y[:6])
    assert same_state(learner.state_dict(), other.state_dict())


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 20), (4, 9, 9)])
def test_the_resnet_takes_images_of_any_size(shape):
    learner = CoPE("slim-resnet18", memory_size=10, device="cpu")
    learner.observe(torch.randint(0, 256, (2, *shape), dtype=torch.uint8), ["a", "b"])
    assert len(learner.predict(torch.randint(0, 256, (3, *shape), dtype=torch.uint8))) == 3


# A pure prototype memory over fixed features.


def test_an_identity_moves_prototypes_in_the_samples_own_space():
    plain = {"standardise": False, "class_means": False, "renormalise": True}
    learner = CoPE("identity", memory_size=10, momentum=0.5, device="cpu", **plain)
    learner.observe(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), ["a", "b"])
    before = learner.prototypes
    learner.observe(torch.tensor([[3.0, 4.0], [1.0, 1.0]]), ["c", "c"])
    assert learner.parameters == []
    torch.testing.assert_close(learner.embed(torch.tensor([[3.0, 4.0]])), torch.tensor([[0.6, 0.8]]))
    for label in "ab":  # both are replayed with the batch, so that they move on
        assert not torch.equal(learner.prototypes[label], before[label])
    torch.testing.assert_close(learner.prototypes["c"].norm(), torch.tensor(1.0))


def test_prototypes_over_the_pixels_of_digits_know_most_of_them():
    source = stream("split-digits")
    learner = CoPE("identity", memory_size=200, momentum=0.9, device="cpu")
    assert run(learner, source, Evaluator(transitions=False)).accuracy > 0.8


def test_an_embedding_of_another_size_than_the_samples_is_refused():
    with pytest.raises(ValueError, match="identity embeds a sample as it is, in 6 numbers, not 8"):
        make("cope", network="identity").observe(torch.randn(2, 6), ["a", "b"])


def test_a_frozen_network_is_a_fixed_embedding():
    frozen = nn.Linear(6, 4).requires_grad_(False)
    weights = frozen.weight.clone()
    learner = make("cope", network=frozen)
    for x, y in batches():
        learner.observe(x, y)
    assert torch.equal(frozen.weight, weights)
    assert learner.classes == ["a", "b", "c"]


class Adding(nn.Module):
    """Has one layer that nothing passes, a parameter without elements, and one layer that only some batches pass."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 4)
        self.sometimes, self.never = nn.Linear(4, 4), nn.Linear(3, 3)
        self.empty = nn.Parameter(torch.zeros(0))

    def forward(self, x):
        h = self.first(x)
        return self.last(h + self.sometimes(h) if float(x.detach()[0, 0]) > 0 else h)


@every_learner
def test_a_network_need_not_use_all_of_its_parameters_in_every_batch(name):
    network = Adding()
    before = network.first.weight.clone(), network.never.weight.clone()
    learner = make(name, network=network)
    for i, (x, y) in enumerate(batches()):
        teach(learner, x, y, i // 2)
    learner.end_horizon()
    assert len(learner.predict(torch.randn(4, 6))) == 4
    # GDumb trains a copy, CURL and CN-DPM take the network for an encoder, the others of these train none.
    if name not in {"gdumb", "curl", "cn-dpm", "knn", "ncm", "slda", "ranpac"}:
        assert not torch.equal(network.first.weight, before[0])
        torch.testing.assert_close(network.never.weight, before[1], rtol=0.1, atol=0)


def test_a_network_that_computes_without_gradients_is_a_fixed_embedding():
    class Fixed(nn.Linear):
        @torch.no_grad()
        def forward(self, x):
            return super().forward(x)

    learner = make("cope", network=Fixed(6, 4))
    for x, y in batches():
        learner.observe(x, y)
    assert learner.classes == ["a", "b", "c"]


# What a network of the user's own refuses.


class Cast(nn.Linear):
    """Gives another type of number."""

    def __init__(self, given):
        super().__init__(6, 4)
        self.given = given

    def forward(self, x):
        return super().forward(x).to(self.given)


@every_learner
@pytest.mark.parametrize("given", ["float64", "bfloat16"])
def test_a_network_that_does_not_give_float32_is_refused_with_what_to_do(name, given):
    learner = make(name, network=Cast(getattr(torch, given)))
    with pytest.raises(ValueError, match=rf"float32, but it gave {given}: end its forward with \.float\(\)"):
        teach(learner, *next(batches()))
    assert not learner.classes


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_network_that_can_not_be_saved_or_copied_is_refused_when_the_learner_is_made():
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(6, 4, dtype=torch.complex64))

    for network, sentence in {
        nn.LazyLinear(4): "the network's weight has no size yet: pass a batch through the network first",
        Complex(): "the network's w is of type torch.complex64, but a learner saves only real numbers",
        torch.jit.trace(nn.Linear(6, 4), torch.zeros(1, 6)): "scripted or traced network that it trains",
        nn.Sequential(torch.jit.trace(nn.Linear(6, 4), torch.zeros(1, 6))): "scripted or traced network",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            CoPE(network)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_traced_network_may_be_a_frozen_part_of_another_one():
    traced = torch.jit.trace(nn.Linear(6, 4).requires_grad_(False), torch.zeros(1, 6))
    learner = make("cope", network=nn.Sequential(traced, nn.Linear(4, 4)))
    for x, y in batches():
        learner.observe(x, y)
    x, _ = next(batches())
    assert learner.snapshot().predict(x) == learner.predict(x)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_network_that_can_not_be_copied_is_told_what_can():
    learner = make("cope", network=nn.utils.weight_norm(nn.Linear(6, 4)))
    with pytest.raises(
        ValueError, match=r"must be able to copy its network.* nn\.utils\.parametrizations has"
    ):
        learner.observe(*next(batches()))


def normalised():
    return nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 4))


ALONE = {
    "finetune",
    "iid-online",
    "iid-offline",
    "mir",
    "gss",
    "gem",
    "icarl",
    "curl",
    "cn-dpm",
    "er-ace",
    "der++",
    "ocm",
    "onpro",
    "gsa",
}


@every_learner
def test_a_single_sample_that_batch_norm_rejects_changes_nothing(name):
    learner = make(name, network=normalised())
    for i, (x, y) in enumerate(batches()):
        teach(learner, x, y, i // 2)
    before = learner.state_dict()
    if name not in ALONE:  # joined by an exemplar it is no single one
        teach(learner, torch.randn(1, 6), ["new"])
        assert "new" in learner.classes
        return
    with pytest.raises(ValueError, match=r"the network can't learn from a batch of shape \[1, 6\]"):
        teach(learner, torch.randn(1, 6), ["new"])
    with pytest.raises(ValueError, match=r"the network can't learn from a batch of shape \[1, 6\]"):
        learner.revisit(torch.randn(1, 6), ["a"], 0 if "t" in learner.needs else None)
    assert same_state(before, learner.state_dict())
    teach(learner, torch.randn(2, 6), ["new", "a"], 9 if name == "icarl" else 0)


@pytest.mark.parametrize("name", sorted(registry().keys() - {"curl", "cn-dpm"}))  # which have no exemplars
def test_a_single_exemplar_that_is_left_is_not_replayed_alone_through_batch_norm(name):
    learner = make(name, network=normalised())
    teach(learner, torch.randn(5, 6), ["a", "a", "a", "a", "b"], 0)
    teach(learner, torch.randn(5, 6), ["a", "c", "c", "c", "c"], 1)
    learner.end_horizon()
    learner.forget("c")
    learner.forget("a")
    teach(learner, torch.randn(3, 6), ["d", "d", "e"], 2)
    assert learner.classes == ["b", "d", "e"]


@every_learner
def test_a_token_outside_the_vocabulary_changes_nothing(name):
    learner = make(name, network=Tokens())
    for _ in range(3):
        teach(learner, torch.randint(0, 20, (4, 6)), ["a", "b", "a", "c"])
    before, training = learner.state_dict(), learner.network.training
    with pytest.raises(ValueError, match="the network can't take this batch of shape"):
        teach(learner, torch.full((4, 6), 20), ["a", "b", "a", "new"])
    assert same_state(before, learner.state_dict())
    assert learner.network.training == training


@every_learner
def test_a_network_with_dropout_is_resumed_bit_identically(name, tmp_path):
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 4))

    learner = make(name, network=network())
    everything = list(batches())
    for x, y in everything[:3]:
        teach(learner, x, y)
    learner.save(tmp_path / "state")
    other = load(tmp_path / "state", network=network(), device="cpu")
    for seed, each in enumerate((learner, other)):
        torch.manual_seed(seed)
        for x, y in everything[3:]:
            teach(each, x, y)
    assert same_state(learner.state_dict(), other.state_dict())


def test_a_stream_of_sequences_is_run_like_any_other():
    x, y = data(sequence, 80, 0)
    source = as_stream((x, y), tests=data(sequence, 40, 1))
    assert run(make("cope", network=Recurrent(), learning_rate=0.1), source).accuracy > 0.8


def test_without_whitening_an_identity_predicts_by_the_class_means_of_standardised_samples(tmp_path):
    """The slow reference keeps every standardised sample; a batch is scaled by what was seen up to it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 5, generator=generator) * torch.tensor([1.0, 10, 0.1, 1, 1]) + 3
    y = [label for label in "abc" for _ in range(20)]
    learner, other = (
        CoPE("identity", memory_size=10, standardise=True, whiten=False, device="cpu") for _ in range(2)
    )
    kept = {label: [] for label in "abc"}
    for start in range(0, 60, 4):
        learner.observe(x[start : start + 4], y[start : start + 4])
        for row, label in zip(learner.embed(x[start : start + 4]), y[start : start + 4], strict=True):
            kept[label].append(row)
    for label, rows in kept.items():
        torch.testing.assert_close(learner.prototypes[label], torch.stack(rows).mean(0))
    means = torch.stack([torch.stack(rows).mean(0) for rows in kept.values()])
    nearest = (learner.embed(x) @ torch.nn.functional.normalize(means).T).argmax(1)
    assert learner.predict(x) == ["abc"[place] for place in nearest]
    learner.save(tmp_path / "state")
    assert load(tmp_path / "state", device="cpu").predict(x) == learner.predict(x)
    other.observe(x[:4], list("aadd"))
    learner.forget("a")
    assert learner.prototype_memory.samples.tolist() == [20, 20]
    learner.merge(other)  # from now on, the means of the exemplars of both
    assert learner.classes == ["b", "c", "a", "d"]
    assert learner.prototype_memory.samples.tolist() == list(learner.memory.counts().values())
