"""A run is stopped at any batch, and goes on in this process or another as if it had not been stopped."""

import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_learners import NAMES, every_learner, make, on_digits, same_state

from everlearn import load, stream
from everlearn.checkpoint import CheckpointError

LABELS = ["a", "b", 3, 2.5, ("pair", None)]

observed = st.tuples(st.just("observe"), st.lists(st.sampled_from(LABELS), min_size=2, max_size=6))
late = st.tuples(st.just("late"), st.lists(st.sampled_from(LABELS), min_size=2, max_size=4))
forgotten = st.tuples(st.just("forget"), st.sampled_from(LABELS))
ended = st.tuples(st.just("end"), st.just(None))
courses = st.lists(st.one_of(observed, observed, observed, late, forgotten, ended), min_size=1, max_size=8)


def live(learner, course, start, stop):
    """Run a learner through a part of a course; its input depends on the course alone."""
    for number, (event, what) in list(enumerate(course))[start:stop]:
        generator = torch.Generator().manual_seed(number)
        t = number // 3 if "t" in learner.needs else None
        if event == "forget":
            if what in learner.classes and learner.can_forget:
                learner.forget(what)
        elif event == "end":
            learner.end_horizon()
        elif event == "late":
            x = torch.randn(len(what), 6, generator=generator)
            learner.ask([(number, i) for i in range(len(what))], x)
            learner.tell([(number - 1, 0), (number, 0), (number, 1)], [what[0], what[0], what[1]], t)
        else:
            learner.observe(torch.randn(len(what), 6, generator=generator), what, t)


@every_learner
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(course=courses, share=st.floats(0, 1))
def test_a_run_stopped_anywhere_and_resumed_is_bit_identical(name, tmp_path, course, share):
    stop = round(share * len(course))
    whole, first = make(name), make(name)
    live(whole, course, 0, len(course))
    live(first, course, 0, stop)
    first.save(tmp_path / "state")
    second = load(tmp_path / "state", device="cpu")
    assert same_state(first.state_dict(), second.state_dict())
    live(second, course, stop, len(course))
    assert same_state(whole.state_dict(), second.state_dict())


def on_stream(learner, source, start, stop):
    """Let a learner learn some batches of a stream."""
    for i, (x, y, t) in enumerate(source):
        if start <= i < stop:
            learner.observe(x, y, t)


def digits():
    """A stream with short tasks at first."""
    return stream("split-digits", seed=3, imbalance=5)


ELSEWHERE = """
import pickle, sys, torch
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
from test_resume import digits, live, on_stream
from everlearn import load
torch.set_num_threads(1)
source = digits()
for name, course, stop in pickle.load(open(sys.argv[2] + "/courses", "rb")):
    learner = load(f"{sys.argv[2]}/{name}", device="cpu")
    live(learner, course, stop, len(course))
    learner.save(f"{sys.argv[2]}/{name}")
    learner = load(f"{sys.argv[2]}/{name}-digits", device="cpu")
    on_stream(learner, source, 5, 10)
    learner.save(f"{sys.argv[2]}/{name}-digits")
"""


def test_every_learner_resumes_in_another_process(tmp_path):
    torch.set_num_threads(1)
    chance, source = random.Random(0), digits()
    courses, wholes = [], {}
    for name in NAMES:
        course = [("observe", chance.choices(LABELS, k=5)) for _ in range(12)]
        course.insert(7, ("forget", course[0][1][0]))
        course.insert(9, ("late", ["a", "b", "c"]))
        stop = chance.randrange(len(course))
        courses.append((name, course, stop))
        wholes[name], first = make(name), make(name)
        live(wholes[name], course, 0, len(course))
        live(first, course, 0, stop)
        first.save(tmp_path / name)
        whole = on_digits(name, source, seed=3)
        on_stream(whole, source, 0, 5)
        whole.save(tmp_path / f"{name}-digits")
        on_stream(whole, source, 5, 10)
        whole.save(tmp_path / f"{name}-whole")
    (tmp_path / "courses").write_bytes(pickle.dumps(courses))
    words = [sys.executable, "-c", ELSEWHERE, str(Path(__file__).parent), str(tmp_path)]
    subprocess.run(words, check=True)
    for name, whole in wholes.items():
        assert same_state(whole.state_dict(), load(tmp_path / name, device="cpu").state_dict())
        assert (tmp_path / f"{name}-digits").read_bytes() == (tmp_path / f"{name}-whole").read_bytes(), name


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    learner = make("cope", memory_size=5, hidden=2, embedding=2)
    learner.observe(torch.randn(4, 3), ["a", "b", "a", "b"])
    learner.ask(["w"], torch.randn(1, 3))
    path = tmp_path_factory.mktemp("saved") / "state"
    learner.save(path)
    return path


@settings(max_examples=150, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_file_with_a_flipped_bit_is_refused(saved, place, bit):
    content = bytearray(saved.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    altered = saved.with_name("altered")
    altered.write_bytes(content)
    with pytest.raises(CheckpointError):
        load(altered, device="cpu")


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(saved, share):
    content = saved.read_bytes()
    cut = saved.with_name("cut")
    cut.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError):
        load(cut, device="cpu")


FORGED = {
    "a memory that has forgotten more than it has room for": ("memory.forgotten", lambda part: part + 100),
    "a scale of more samples than can be counted": (
        "standardisation.count",
        lambda part: part * 0 + 2**63 - 1,
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_count_is_refused(what):
    name, forge = FORGED[what]
    learner = make("reservoir")
    learner.observe(torch.randn(4, 6), ["a", "b", "a", "b"])
    before = learner.state_dict()
    with pytest.raises(CheckpointError, match="can't be loaded"):
        learner.load_state_dict(before | {name: forge(before[name])})
    assert same_state(before, learner.state_dict())


def test_what_a_state_lacks_or_has_of_another_shape_is_named():
    learner = make("cope", averaging=0.9)
    learner.observe(torch.randn(4, 6), list("abab"))
    state = learner.state_dict()
    without = {name: part for name, part in state.items() if name != "prototypes"}
    wider = state | {"average.1.weight": torch.zeros(3, 3)}
    assert "average.1.weight" in state
    for changed, words in ((without, "it lacks 'prototypes'"), (wider, r"size mismatch for 1\.weight")):
        with pytest.raises(CheckpointError, match=f"^this state can't be loaded: .*{words}[^\n]*$"):
            learner.load_state_dict(changed)
        assert same_state(state, learner.state_dict())


def test_a_folder_is_said_to_be_one(tmp_path):
    with pytest.raises(CheckpointError, match="is a folder: give a file in it$"):
        load(tmp_path)
    (tmp_path / "cope-split-digits-0.safetensors").touch()
    with pytest.raises(CheckpointError, match="give a file in it, such as cope-split-digits-0.safetensors$"):
        load(tmp_path)
