import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from everlearn import CoPE, checkpoint, learners, load
from everlearn.checkpoint import CheckpointError


@pytest.fixture
def saved(tmp_path):
    learner = CoPE("mlp", memory_size=10, hidden=4, embedding=3, missing_labels="class", device="cpu")
    learner.observe(torch.randn(4, 5), ["a", 1, None, (2.5, b"x")])
    path = tmp_path / "state.safetensors"
    learner.save(path)
    return path


def test_a_state_comes_back_as_it_was(saved):
    learner = load(saved, device="cpu")
    assert learner.classes == ["a", 1, None, (2.5, b"x")]
    assert learner.memory.counts() == {"a": 1, 1: 1, None: 1, (2.5, b"x"): 1}


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match="is not a valid checkpoint"):
        load(saved)


def test_an_altered_file_is_refused(saved):
    content = bytearray(saved.read_bytes())
    content[-3] ^= 1
    saved.write_bytes(content)
    with pytest.raises(CheckpointError, match="was altered after it was written"):
        load(saved)


def test_altered_meta_is_refused(saved):
    saved.write_bytes(saved.read_bytes().replace(b"momentum", b"momentun"))
    with pytest.raises(CheckpointError):
        load(saved)


def test_a_place_that_cant_be_written_is_named_and_nothing_is_left(tmp_path):
    learner = CoPE(hidden=8)
    for place in (tmp_path, Path("/dev/null/state")):
        with pytest.raises(OSError, match="can't be written") as caught:
            learner.save(place)
        assert caught.value.filename == str(place)
    assert list(tmp_path.parent.glob(f".{tmp_path.name}.*")) == []


def test_the_weights_of_another_network_are_told_by_name_and_shape(tmp_path):
    learner = CoPE(torch.nn.Linear(8, 4))
    learner.observe(torch.randn(2, 8), ["a", "b"])
    learner.save(tmp_path / "state")
    with pytest.raises(CheckpointError, match=r"bias is \[4\] in the state, \[5\] in the network"):
        load(tmp_path / "state", network=torch.nn.Linear(8, 5))


def test_of_settings_only_those_are_told_that_differ():
    state = CoPE(hidden=8).state_dict()
    with pytest.raises(
        CheckpointError, match=r"has the settings \{'hidden': 8\}, but the learner has \{'hidden': 9\}"
    ):
        CoPE(hidden=9).load_state_dict(state)


def test_a_setting_that_came_later_is_off_in_an_older_state():
    state = CoPE(hidden=8).state_dict()
    meta = json.loads(state["meta"])
    for later in ("colour", "mirrored"):
        del meta["settings"][later]
    older = state | {"meta": json.dumps(meta)}
    CoPE(hidden=8).load_state_dict(older)
    with pytest.raises(
        CheckpointError, match=r"has the settings \{'colour': 0.0\}, but the learner has \{'colour': 0.4\}"
    ):
        CoPE(hidden=8, colour=0.4).load_state_dict(older)


@pytest.mark.parametrize("settings", [None, [], "hidden"])
def test_settings_that_have_no_names_are_refused(settings):
    state = CoPE(hidden=8).state_dict()
    meta = json.loads(state["meta"]) | {"settings": settings}
    with pytest.raises(CheckpointError, match="this state's settings is .*, expected"):
        CoPE(hidden=8).load_state_dict(state | {"meta": json.dumps(meta)})


def test_a_safetensors_file_of_somebody_elses_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="not one that everlearn wrote"):
        load(tmp_path / "other")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at .*gone"):
        load(tmp_path / "gone")


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(saved, monkeypatch):
    before = saved.read_bytes()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write({"a": torch.zeros(3), "meta": "{}"}, saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_saving_keeps_the_mode_and_the_link_of_a_checkpoint(saved):
    saved.chmod(0o600)
    link = saved.parent / "latest"
    link.symlink_to(saved.name)
    load(link).save(link)
    assert link.is_symlink()
    assert saved.stat().st_mode & 0o777 == 0o600


WRITER = """
import os, sys
folder = sys.argv[1]
while os.getppid() == int(sys.argv[2]):
    for size in ("10", "5000"):
        os.link(f"{folder}/{size}", f"{folder}/next")
        os.replace(f"{folder}/next", f"{folder}/state")
"""


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a file that is open can't be replaced")
def test_reading_beside_a_writer_gives_one_whole_state_or_the_other(tmp_path):
    for size in (10, 5000):
        checkpoint.write({"a": torch.full((size,), float(size)), "meta": str(size)}, tmp_path / str(size))
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(os.getpid())])
    try:
        while not (tmp_path / "state").exists():
            assert writer.poll() is None
        for _ in range(1000):
            state = checkpoint.read(tmp_path / "state")
            assert (state["a"] == float(state["meta"])).all()
    finally:
        writer.kill()
        writer.wait()


def test_a_state_owns_its_memory_whatever_happens_to_the_file(tmp_path):
    path = tmp_path / "state"
    checkpoint.write({"a": torch.arange(10_000.0), "b": torch.ones(3, dtype=torch.uint8), "meta": "{}"}, path)
    state = checkpoint.read(path)
    with path.open("r+b") as file:  # in place, as only another program would
        file.write(bytes(path.stat().st_size))
    assert torch.equal(state["a"], torch.arange(10_000.0))
    assert state["a"].data_ptr() % 64 == 0
    state["a"] += 1
    state["b"].zero_()


def test_every_type_of_tensor_comes_back_as_safetensors_reads_it(tmp_path):
    from safetensors.torch import load_file

    bits = torch.randint(0, 2, (24,), dtype=torch.uint8)
    state = {
        f"{name} {shape}": bits[: torch.Size(shape).numel()].to(kind, copy=True).reshape(shape)
        for name, kind in checkpoint.TYPES.items()
        for shape in ((4, 6), (3,), (), (0, 7))
    }
    checkpoint.write({**state, "meta": "{}"}, tmp_path / "state")
    ours, theirs = checkpoint.read(tmp_path / "state"), load_file(tmp_path / "state")
    assert ours.pop("meta") == "{}"
    assert ours.keys() == theirs.keys() == state.keys()
    for name, part in ours.items():
        assert (part.dtype, part.shape) == (theirs[name].dtype, theirs[name].shape)
        if part.numel():
            assert torch.equal(part.flatten().view(torch.uint8), theirs[name].flatten().view(torch.uint8))


def test_a_type_that_a_file_cant_hold_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="a is of type torch.complex128, which a checkpoint can't hold"):
        checkpoint.write({"a": torch.zeros(2, dtype=torch.complex128), "meta": "{}"}, tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_could_not_be_read_again_is_not_written(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr(checkpoint, "LARGEST_HEADER", 1000)
    with pytest.raises(
        CheckpointError, match="labels, ids and settings of this state take more than 1,000 bytes"
    ):
        checkpoint.write({"meta": "x" * 1000}, saved)
    assert saved.read_bytes() == before
    with pytest.raises(CheckpointError, match="its header has .* bytes, and at most 1,000 are allowed"):
        checkpoint.read(saved)


def described(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def entered(entry):
    return {"__metadata__": {"everlearn": entry}, "a": described()}


HUGE = 2**62
FORGED = {
    "a shape beyond its bytes": {"a": described(shape=(HUGE,))},
    "bytes beyond the file": {"a": described(shape=(HUGE,), offsets=(0, HUGE))},
    "an empty shape that nothing can count": {"a": described(shape=(0, HUGE, HUGE), offsets=(0, 0))},
    "two tensors in the same bytes": {"a": described(), "b": described()},
    "bytes in no tensor": {"a": described(shape=(2,), offsets=(2, 4))},
    "bytes after the last": {"a": described(shape=(2,), offsets=(0, 2))},
    "bytes that end before they begin": {"a": described(shape=(2,), offsets=(4, 2))},
    "a negative size": {"a": described(shape=(-4,))},
    "a size that is not whole": {"a": described(shape=(4.0,))},
    "a size that is a truth value": {"a": described(shape=(True, 4))},
    "a shape that is a number": {"a": {**described(), "shape": 4}},
    "a thousand dimensions": {"a": described(shape=(1,) * 1000 + (4,))},
    "a type that there is not": {"a": described("U7")},
    "a type that is a list": {"a": {**described(), "dtype": ["U8"]}},
    "no description": {"a": None},
    "half a description": {"a": {"dtype": "U8", "shape": [4]}},
    "no object": [1, 2],
    "metadata that are no object": {"__metadata__": 3, "a": described()},
    "an entry that is no string": entered(3),
    "an entry that is a number": entered("3"),
    "an entry that is no JSON": entered("{"),
    "an entry too deep": entered("[" * 100_000),
    "meta that is no string": entered('{"meta": 3, "checksum": "00"}'),
    "a checksum that is no string": entered('{"meta": "{}", "checksum": []}'),
    "meta that is no Unicode": entered('{"meta": "\\ud800", "checksum": "00"}'),
    "a name that is no Unicode": {
        **entered('{"meta": "{}", "checksum": "00"}'),
        "\ud800": described("U8", (0,), (0, 0)),
    },
    "a header too deep": "[" * 100_000,
    "a name twice": f'{{"a": {json.dumps(described())}, "a": {json.dumps(described())}}}',
    "a number of many digits": f'{{"a": {"1" * 10_000}}}',
    "a header in UTF-16": json.dumps({"a": described()}).encode("utf-16"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_header_is_refused_in_a_sentence_before_memory_is_taken(case, tmp_path):
    header = FORGED[case]
    if isinstance(header, dict | list):
        header = json.dumps(header)
    header = header.encode() if isinstance(header, str) else header
    path = tmp_path / "forged"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"data")
    with pytest.raises(
        CheckpointError, match="forged (is not a valid checkpoint|is a safetensors file|was altered)"
    ):
        checkpoint.read(path)


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (2**63, "it does not begin with the size of its header"),
        (2**64 - 1, "it does not begin with the size of its header"),
        (10**5, "its header should have 100,000 bytes, but the file ends after"),
    ],
)
def test_a_file_is_not_read_beyond_what_its_header_says(length, reason, tmp_path):
    path = tmp_path / "forged"
    header = json.dumps({"a": described()}).encode()
    path.write_bytes(length.to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match=reason):
        checkpoint.read(path)
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with contextlib.suppress(OSError):  # a file with a hole, where the disk allows one of this size
        os.truncate(path, 2**40)
    with pytest.raises(CheckpointError, match="its tensors should have 4 bytes, but .* follow the header"):
        checkpoint.read(path)


def test_a_forged_count_of_samples_is_refused():
    learner = learners.find("ranpac")("identity", projection=20, seed=0)
    learner.observe(torch.rand(20, 6), [0, 1] * 10)
    state = learner.state_dict()
    name = "held_out.class_means.counts"
    with pytest.raises(CheckpointError, match="counts that are no numbers of samples"):
        learner.load_state_dict(state | {name: torch.full_like(state[name], 1e38)})


def test_only_the_first_of_many_unknown_tensors_are_named():
    state = CoPE(hidden=8).state_dict() | {f"other.{n}": torch.zeros(1) for n in range(9)}
    with pytest.raises(CheckpointError, match=r"does not have: other\.0, other\.1, other\.2 and 6 more$"):
        CoPE(hidden=8).load_state_dict(state)


def test_samples_that_do_not_suit_the_network_are_refused_as_any_other_state():
    learner = CoPE("slim-resnet18", memory_size=4, device="cpu")
    learner.observe(torch.rand(2, 3, 8, 8), [0, 1])
    state = learner.state_dict()
    meta = json.loads(state["meta"]) | {"sample_shape": [1]}
    with pytest.raises(CheckpointError, match="sample_shape does not suit its network"):
        learner.load_state_dict(state | {"meta": json.dumps(meta)})
