import json
import os
from pathlib import Path

import pytest
import torch

from everlearn import CoPE, checkpoint, load
from everlearn.checkpoint import CheckpointError


@pytest.fixture
def saved(tmp_path):
    learner = CoPE("mlp", memory_size=10, hidden=4, embedding=3, device="cpu")
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
    with pytest.raises(CheckpointError, match="is no sound checkpoint"):
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
    with pytest.raises(CheckpointError, match="this state's settings are .*, and should have names"):
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
