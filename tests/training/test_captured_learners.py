"""Learners whose steps are CUDA graphs: whatever else happens to them, they are as if every step ran eagerly."""

import copy

import pytest
import torch
from emulated_graph import captured_functions, eager
from small_learners import same_state
from torch import nn

from everlearn import learners, load, open_live, split
from everlearn.core.softmax import SoftmaxHead
from everlearn.engine.cohort import Cohort, shape_of
from everlearn.engine.loop import Run
from everlearn.engine.options import RunOptions
from everlearn.learners.reservoir import Reservoir
from everlearn.live import LiveError
from everlearn.training.capturable import needs_values
from everlearn.training.cuda_graph import EAGER_FIRST
from everlearn.training.passes import NotFinite
from everlearn.training.sgd import SGD
from everlearn.transaction import Transaction


class Masked(nn.Module):
    """A network with a constant that is not finite."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, -torch.inf]))

    def forward(self, x):
        return (self.layer(x) + self.mask).softmax(1)


class Reading(nn.Linear):
    """A network that looks at a value."""

    def forward(self, x):
        return super().forward(x if bool(x.sum() > 0) else 2 * x)


class Replacing(nn.Linear):
    """A network that replaces a buffer."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return super().forward(x - self.mean)


def reading():
    return Reading(6, 4)


def replacing():
    return Replacing(6, 4)


def batch(n, size=4, labels="abcd"):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(size, 6, generator=generator), [labels[i % len(labels)] for i in range(size)]


def made(gpu, name="reservoir", network="mlp", **settings):
    torch.manual_seed(0)
    chosen = {"memory_size": 12, "hidden": 8, "standardise": False} | settings
    return learners.find(name)(network, seed=0, device=gpu, **chosen)


def taught(learner, batches=EAGER_FIRST + 2, **options):
    for n in range(batches):
        learner.observe(*batch(n), **options)
    return learner


def refusing(gpu, **settings):
    """A learner of which a GPU has just refused a batch; its state of before, and what makes its weights normal."""
    network = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 8))
    learner = taught(made(gpu, network=network, **settings))
    assert captured_functions(learner) == {"learn"}
    with torch.no_grad():
        learner.parameters[0].mul_(1e35)
    before = learner.state_dict()
    x, y = batch(9)
    learner.observe(1e12 * x.sign(), y)
    return learner, before


def interrupted(patch, owner, name, after=True):
    """Let a function raise a KeyboardInterrupt, before or after what it does."""
    function = getattr(owner, name)

    def raising(*arguments):
        if after:
            function(*arguments)
        raise KeyboardInterrupt

    patch.setattr(owner, name, raising)


def assert_alike(learner, other):
    for key, part in learner.state_dict().items():
        if key != "meta":
            torch.testing.assert_close(part, other.state_dict()[key], rtol=1e-4, atol=1e-4)


def test_a_batch_with_weights_is_not_learnt_by_the_graph_of_one_with_rows_to_store(gpu):
    captured, other = taught(made(gpu)), taught(eager(made(gpu)))
    for learner in (captured, other):
        learner.revisit(*batch(9), sample_weight=[1, 2, 3, 0.5])  # as many as the rows of an observed batch
    assert_alike(captured, other)


@pytest.mark.parametrize("settings", [{}, {"averaging": 0.9}])
def test_a_constant_of_the_network_need_not_be_finite(settings, gpu, tmp_path):
    learner = taught(made(gpu, "cope", Masked(), **settings), EAGER_FIRST + 3)
    assert captured_functions(learner) == {"learn"}
    learner.save(tmp_path / "state")
    again = load(tmp_path / "state", network=Masked(), device=gpu)
    x, _ = batch(9)
    assert again.predict_proba(x) == pytest.approx(learner.predict_proba(x))


@pytest.mark.parametrize("by_name", [True, False], ids=["by name", "a module"])
@pytest.mark.parametrize(
    ("name", "make"),
    [(name, make) for name in ("cope", "gem") for make in (reading, replacing)] + [("gss", replacing)],
)
def test_a_network_that_can_not_be_captured_is_learnt_eagerly(make, by_name, name, gpu):
    settings = {"tasks": 2} if name == "gem" else {}
    network = f"{__name__}:{make.__name__}" if by_name else make()
    captured, other = (made(gpu, name, copy.deepcopy(network), **settings) for _ in range(2))
    eager(other)
    for learner in (captured, other):
        taught(learner, EAGER_FIRST + 7, t=0)
    if name != "gss":  # whose gradients leave buffers as they are: a graph, until a step replaces one
        assert captured_functions(captured) == set()
    assert_alike(captured, other)


class Looking(Reservoir):
    """A method of the user's that reads a value, though it does not say so."""

    name = "looking"

    def step(self, x, slots, *replay):
        super().step(x if bool(x.sum() > 0) else 2 * x, slots, *replay)


def test_a_method_of_the_users_that_can_not_be_captured_runs_eagerly(gpu):
    captured, other = (Looking("mlp", seed=0, device=gpu, memory_size=12, hidden=8) for _ in range(2))
    taught(captured, EAGER_FIRST + 3)
    taught(eager(other), EAGER_FIRST + 3)
    assert captured_functions(captured) == set()
    assert_alike(captured, other)


@pytest.mark.parametrize("make", [reading, replacing])
def test_a_cohort_of_networks_that_can_not_be_captured_runs_eagerly(make, gpu):
    x, _ = batch(0, 80)
    y = (x[:, 0] > 0).long().tolist()

    def runs():
        for seed in (0, 1):
            source = split(x, y, tasks=1, batch_size=8, seed=seed)
            learner = made(gpu, "cope", f"{__name__}:{make.__name__}", calibration="none", blend=False)
            yield Run(learner, source, RunOptions())

    together, alone = list(runs()), list(runs())
    assert shape_of(together[0]) is not None
    Cohort(together).finish()
    for member, run in zip(together, alone, strict=True):
        eager(run.learner)
        run.finish()
        assert_alike(member.learner, run.learner)


def test_samples_whose_batch_was_interrupted_after_its_launch_are_learnt_once(gpu, monkeypatch):
    learner = taught(made(gpu))
    x, y = batch(9)
    learner.ask([1, 2, 3, 4], x)
    with monkeypatch.context() as patch:
        interrupted(patch, torch.cuda.CUDAGraph, "replay")
        with pytest.raises(KeyboardInterrupt):
            learner.tell([1, 2, 3, 4], y)
    assert learner.batches == EAGER_FIRST + 3
    assert learner.tell([1, 2, 3, 4], y).missing == [1, 2, 3, 4]


@pytest.mark.parametrize("call", ["predict", "observe"])
def test_an_interrupt_while_the_host_waits_leaves_the_report_to_the_next_call(call, gpu, monkeypatch):
    learner, before = refusing(gpu)
    arguments = batch(9)[: 1 if call == "predict" else 2]
    with monkeypatch.context() as patch:
        interrupted(patch, torch.Tensor, "__bool__")
        with pytest.raises(KeyboardInterrupt):
            getattr(learner, call)(*arguments)
    with pytest.raises(NotFinite, match="the batch before this call"):
        getattr(learner, call)(*arguments)
    same_state(learner.state_dict(), before)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
def test_an_interrupt_while_a_refused_batch_is_undone_leaves_nothing_of_it(number, after, gpu, monkeypatch):
    learner, before = refusing(gpu)
    undo, undone = Transaction.undo, []

    def interrupted_once(self):
        undone.append(self)
        if len(undone) == number and not after:
            raise KeyboardInterrupt
        undo(self)
        if len(undone) == number:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "undo", interrupted_once)
        with pytest.raises((KeyboardInterrupt, NotFinite)):
            learner.observe(*batch(10))
    assert len(set(undone)) == 2  # of this call, and of the refused batch
    same_state(learner.state_dict(), before)


def test_a_batch_without_labels_is_counted_after_the_one_before_it_is_known_to_be_learnt(gpu):
    learner, before = refusing(gpu, missing_labels="skip")
    x, y = batch(9)
    with pytest.raises(NotFinite, match="the batch before this call"):
        learner.observe(x, [None] * len(y))
    same_state(learner.state_dict(), before)
    learner.observe(x, [None] * len(y))
    assert learner.unlabelled == len(y)


def test_a_graph_that_was_captured_in_a_change_that_failed_is_not_used_again(gpu, monkeypatch):
    def gem():
        return made(gpu, "gem", tasks=2, iterations=EAGER_FIRST + 3, memory_size=80)

    captured, other = taught(gem(), 2, t=0), taught(eager(gem()), 2, t=0)
    step, steps = SGD.step, []

    def interrupted_later(self, gradients):
        steps.append(1)
        if len(steps) > EAGER_FIRST + 1:
            raise KeyboardInterrupt
        step(self, gradients)

    with monkeypatch.context() as patch:
        patch.setattr(SGD, "step", interrupted_later)
        with pytest.raises(KeyboardInterrupt):  # in a batch for whose classes the last layer is a larger one
            captured.observe(*batch(9, 20, range(20)), t=0)
    for n in (4, 5):
        for learner in (captured, other):
            learner.observe(*batch(n, 20), t=0)
    assert_alike(captured, other)


def test_a_load_that_is_interrupted_leaves_nothing_of_a_refused_batch(gpu, monkeypatch):
    learner, before = refusing(gpu)
    other = taught(made(gpu, network=copy.deepcopy(learner.given))).state_dict()
    with monkeypatch.context() as patch:
        interrupted(patch, SoftmaxHead, "copy")
        with pytest.raises(KeyboardInterrupt):
            learner.load_state_dict(other)
    same_state(learner.state_dict(), before)


def live_learner(gpu, folder, **settings):
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.LeakyReLU(), nn.Linear(8, 8))
    live = open_live(folder, made(gpu, "cope", network, **settings))
    for n in range(EAGER_FIRST + 2):
        live.observe(*batch(n))
    assert captured_functions(live.learner) == {"learn"}
    return live


def test_a_batch_of_a_live_learner_that_a_gpu_refuses_changes_nothing(gpu, tmp_path):
    with live_learner(gpu, tmp_path / "live") as live:
        with torch.no_grad():
            live.learner.parameters[0].mul_(1e35)
        before = live.learner.state_dict()
        x, y = batch(9)
        with pytest.raises(NotFinite, match="a step on this batch"):
            live.observe(1e12 * x.sign(), y)
        same_state(live.learner.state_dict(), before)


def test_a_captured_batch_that_can_not_be_written_changes_nothing(gpu, tmp_path, monkeypatch):
    def full(_):
        raise LiveError("the disk is full")

    with live_learner(gpu, tmp_path / "live") as live, live_learner(gpu, tmp_path / "other") as other:
        before = live.learner.state_dict()
        with monkeypatch.context() as patch:
            patch.setattr(live._writer.journal, "append", full)
            with pytest.raises(LiveError, match="the disk is full"):
                live.observe(*batch(9))
        same_state(live.learner.state_dict(), before)
        for each in (live, other):
            each.observe(*batch(9))
        assert live.learner.batches == other.learner.batches
        assert_alike(live.learner, other.learner)


def test_a_copy_between_devices_can_not_be_captured():
    here, there = torch.zeros(2), torch.zeros(2, device="meta")
    to, copy_ = torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default
    assert needs_values(to, (here,), {"device": torch.device("meta")})
    assert needs_values(copy_, (there, here), {})
    assert not needs_values(to, (here,), {"device": torch.device("cpu")})
    assert not needs_values(to, (here,), {"dtype": torch.float64})
    assert not needs_values(copy_, (here, here.clone()), {})
