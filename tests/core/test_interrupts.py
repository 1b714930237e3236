"""A refused or interrupted call changes nothing: a sample of what `benchmarks/interruptions.py` tries in full."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from everlearn.learners import registry

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from interrupting.calls import CALLS, at_start, can_call
from interrupting.outcome import expected, interrupt, what_is_wrong
from interrupting.outside import frozen
from interrupting.points import Tracer, ctrl_c, places, points, refuse, variants
from interrupting.subjects import TROUBLE, make

# Without those that are another learner in all but the order of their stream.
NAMES = sorted(registry().keys() - {"iid-online", "iid-offline"})
LEARNING = ["first", "observe", "new labels", "revisit", "tell"]
# Calls whose own code is the same for all learners.
SHARED = {"ask", "tell", "revisit"}
# One learner of each kind: prototypes, softmax, a second network, its own step, its own memory, growing parts.
KINDS = ["cope", "cope+", "reservoir", "ccl-dc", "gem", "icarl", "der++", "cn-dpm"]

every_learner = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def one_thread():
    """As the benchmark has it; and no mode of torch is left on."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    assert torch.is_grad_enabled()
    assert torch._C._len_torch_dispatch_stack() == 0
    torch.set_num_threads(threads)


def check(chosen):
    """Interrupt at each of these points; a failure lists what was left half done, and where it was raised."""
    wrong = {point: interrupt(point) for point in chosen}
    found = [f"{point}: {what}, raised at {place}" for point, (what, place) in only(wrong)]
    assert not found, "\n".join(found)


def only(wrong):
    return [(point, problem) for point, problem in wrong.items() if problem is not None]


def of_each(calls):
    """Learners and their calls; those that all share, for one learner of each kind."""
    return [
        (name, call)
        for name in NAMES
        for call in calls
        if can_call(name, call) and (name in KINDS or call not in SHARED)
    ]


KNOWN_CALLS = of_each(CALLS)


@pytest.mark.parametrize(("name", "call"), KNOWN_CALLS)
def test_a_call_interrupted_at_any_line_is_complete_or_undone(name, call):
    chosen = {"plain", "additions", "own network"} if name in KINDS else {"plain"}
    for variant in chosen & {*variants(name, call, "line")}:
        check(points(name, variant, call, "line", 2 if variant == "plain" else 1))


@pytest.mark.parametrize(("name", "call"), [known for known in KNOWN_CALLS if known[0] in KINDS])
def test_a_call_interrupted_at_any_instruction_is_complete_or_undone(name, call):
    check(points(name, "one iteration", call, "opcode", 1))


@pytest.mark.parametrize("kind", ["forward", "backward"])
@pytest.mark.parametrize(("name", "call"), of_each([*LEARNING, "merge", "end_horizon"]))
def test_when_a_network_fails_in_any_of_its_calls_nothing_has_changed(name, call, kind):
    for variant in variants(name, call, kind):
        check(points(name, variant, call, kind, 1))


@pytest.mark.parametrize(("name", "call"), of_each(LEARNING))
def test_when_an_augmentation_fails_in_any_of_its_calls_nothing_has_changed(name, call):
    for variant in variants(name, call, "augmentation"):
        check(points(name, variant, call, "augmentation", 1))


@every_learner
def test_an_interrupt_while_a_batch_is_refused_changes_nothing(name):
    """The network fails in a batch with new labels, and Ctrl-C comes while that is undone."""
    call, variant = "new labels", "own network"
    before, _ = expected(name, variant, call)
    forwards = len(places(name, variant, call, "forward"))
    for lines in (1, 4, 9):
        learner = at_start(name, variant, call)
        tracer = Tracer("line")

        def fail_and_be_interrupted(tracer=tracer, lines=lines):
            tracer.at, tracer.error = len(tracer.places) + lines, ctrl_c
            refuse()

        TROUBLE.expect("forward", forwards, fail_and_be_interrupted)
        with tracer, pytest.raises((KeyboardInterrupt, RuntimeError, ValueError)):
            CALLS[call](learner)
        TROUBLE.expect()
        assert what_is_wrong(learner, before, before) is None


class FirstFew(nn.Module):
    """An embedding of samples of any length."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x[:, :4])


WITH_MEMORY = [name for name in NAMES if "memory_size" in registry()[name].Settings.__dataclass_fields__]


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_a_memory_too_large_to_allocate_raises_a_clear_error_and_changes_nothing(name):
    learner = registry()[name](FirstFew(), device="cpu", memory_size=10**6)
    before = frozen(learner.state_dict())
    weights = frozen(learner.given.state_dict())
    t = 0 if "t" in learner.needs else None
    large = torch.zeros(2, 10**7)  # 40 TB for a million of these
    for _ in range(2):
        with pytest.raises((ValueError, MemoryError), match="memory") as caught:
            learner.observe(large, ["a", "b"], t)
        assert "\n" not in str(caught.value)
        assert frozen(learner.state_dict()) == before
        assert frozen(learner.given.state_dict()) == weights
        assert learner.classes == []
    learner.observe(torch.randn(2, 6), ["a", "b"], t)
    assert learner.classes == ["a", "b"]


class Picky(FirstFew):
    """Rejects large indices, as an embedding table does."""

    def forward(self, x):
        if x.abs().max() > 100:
            raise RuntimeError("too large")
        return super().forward(x)


@every_learner
@pytest.mark.parametrize("first", [True, False], ids=["first batch", "later batch"])
def test_a_network_that_rejects_a_batch_by_its_content_changes_nothing(name, first):
    learner = make(name)
    learner = type(learner)(Picky(), device="cpu", **vars(learner.settings))
    t = 0 if "t" in learner.needs else None
    if not first:
        learner.observe(torch.randn(4, 6), ["a", "b", "a", "b"], t)
    before, classes = frozen(learner.state_dict()), list(learner.classes)
    x = torch.randn(4, 6)
    x[2, 1] = 101.0
    with pytest.raises((ValueError, RuntimeError), match="too large"):
        learner.observe(x, ["c", "a", "d", "b"], t)
    assert frozen(learner.state_dict()) == before
    assert learner.classes == classes
