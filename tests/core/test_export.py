"""Export to ONNX: onnxruntime gives the learner's answers."""

import json
import os

import numpy as np
import pytest
import torch
from small_learners import NAMES, batches, make, taught, teach
from torch import nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from everlearn import UNKNOWN, CoPE
from everlearn.core.learner import NotLearntYet
from everlearn.label_json import decode_label
from everlearn.learners import registry

onnxruntime = pytest.importorskip(
    "onnxruntime", reason="export needs onnxruntime: pip install 'everlearn[onnx]'"
)
pytest.importorskip("onnxscript", reason="export needs onnxscript: pip install 'everlearn[onnx]'")

# Learners whose prediction is not a function that ONNX has.
NOT_EXPORTED = {"cn-dpm"}


@pytest.fixture(autouse=True, scope="module")
def one_table_of_operators():
    """The exporter compiles its table of operators with every call, which takes most of the time."""
    patch = pytest.MonkeyPatch()
    made = ONNXRegistry.from_torchlib()
    patch.setattr(ONNXRegistry, "from_torchlib", lambda *_, **__: made)
    yield
    patch.undo()


def answers(path, x):
    """The outputs of the file by name, and the labels in its metadata."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, {"x": np.asarray(x)}), strict=True))
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    return found, [decode_label(label) for label in labels]


def check(learner, path, x):
    """Assert that the file answers as the learner does, for several batch sizes."""
    for part in (x, x[:3], x[:1]):
        found, labels = answers(path, part)
        assert labels == learner.classes
        places = found["class_index"].tolist()
        assert [UNKNOWN if place < 0 else labels[place] for place in places] == learner.predict(part)
        np.testing.assert_allclose(found["probabilities"], learner.predict_proba(part), atol=1e-5)
    return found


def distinct():
    """The first learner of each way to predict: those that share the code of their scores share its export."""
    if os.environ.get("EVERLEARN_NO_SKIPS"):  # `make test-services` has more time
        return NAMES
    found = {(registry()[name].scores, registry()[name].features): name for name in reversed(NAMES)}
    return sorted({*found.values(), "cope+"})


@pytest.mark.parametrize("name", distinct())
def test_each_learner_gives_its_own_answers_or_says_that_it_can_not(name, tmp_path):
    learner, path = taught(name), tmp_path / "model.onnx"
    learner.end_horizon()
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(3)) * 4
    if name in NOT_EXPORTED:
        with pytest.raises(ValueError, match="can't be exported to ONNX"):
            learner.export(path)
        assert not path.exists()
        return
    learner.export(path)
    found = check(learner, path, x)
    assert [
        label.decode() if isinstance(label, bytes) else label for label in found["label"]
    ] == learner.predict(x[:1])


@pytest.mark.parametrize(
    ("name", "network", "shape"),
    [
        ("cope", "slim-resnet18", (3, 8, 8)),
        ("cope", "identity", (5,)),
        ("cope-ce", "mlp", (1, 4, 4)),
    ],
)
def test_each_backbone_takes_bytes_as_the_learner_does(name, network, shape, tmp_path):
    learner = make(name, network, embedding=None, memory_size=12, iterations=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = torch.randint(0, 256, (6, *shape), dtype=torch.uint8, generator=generator)
        learner.observe(x, [0, 1, 2, 0, 1, 2])
    learner.export(tmp_path / "model.onnx")
    x = torch.randint(0, 256, (20, *shape), dtype=torch.uint8, generator=generator)
    found = check(learner, tmp_path / "model.onnx", x)
    assert found["label"].tolist() == learner.predict(x[:1])


@pytest.mark.parametrize("labels", [("a", "b", "c"), (7, 8, 9), ("a", 8, None)])
def test_a_rejected_sample_is_unknown_in_the_file_too(labels, tmp_path):
    learner = make("cope", unknown=0.05, network="identity", embedding=None, missing_labels="class")
    for x, y in batches(labels=("a", "b", "c")):
        learner.observe(x, [labels["abc".index(label)] for label in y])
    learner.export(tmp_path / "model.onnx")
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(1)) * 10
    expected = learner.predict(x)
    assert UNKNOWN in expected and len(set(expected)) > 1
    check(learner, tmp_path / "model.onnx", x)
    found, _ = answers(tmp_path / "model.onnx", x)
    if labels[0] == "a" and labels[1] == "b":
        assert found["label"].tolist() == ["UNKNOWN" if label is UNKNOWN else label for label in expected]
    elif labels[0] == 7:
        assert found["label"].tolist() == [-1 if label is UNKNOWN else label for label in expected]
    else:
        assert "label" not in found  # labels of several types are in the metadata alone


def test_a_class_named_like_a_rejected_sample_leaves_the_label_out(tmp_path):
    learner = make("cope", unknown=0.1)
    for x, y in batches(labels=("UNKNOWN", "b", "c")):
        learner.observe(x, y)
    learner.export(tmp_path / "model.onnx")
    found = check(learner, tmp_path / "model.onnx", torch.randn(5, 6))
    assert "label" not in found


def test_a_class_named_by_half_of_a_surrogate_pair_leaves_the_label_out(tmp_path):
    learner = make("cope")
    learner.observe(torch.randn(4, 6), ["a", "\udcff"] * 2)
    learner.export(tmp_path / "model.onnx")
    found, labels = answers(tmp_path / "model.onnx", torch.randn(2, 6))
    assert "label" not in found and labels == ["a", "\udcff"]


def test_the_mean_over_mirror_images_is_exported(tmp_path):
    learner = make("cope", mirrored=True, shifted=1, width=3)
    for x, y in batches():
        learner.observe(x, y)
    learner.export(tmp_path / "model.onnx")
    check(learner, tmp_path / "model.onnx", torch.randn(8, 6))


def test_a_module_of_the_users_and_tokens(tmp_path):
    module = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 6))
    learner = CoPE(module, memory_size=10, seed=0, device="cpu")
    x = torch.randint(0, 20, (8, 3), generator=torch.Generator().manual_seed(0))
    teach(learner, x, list("abcdabcd"))
    learner.export(tmp_path / "model.onnx")
    check(learner, tmp_path / "model.onnx", x)


class Branches(nn.Module):
    """A network whose operations depend on the values of its input."""

    def forward(self, x):
        return x * 2 if float(x.sum()) > 0 else x


def test_a_network_that_can_not_be_traced_is_refused_and_the_old_file_stays(tmp_path):
    learner, path = CoPE(Branches(), memory_size=10, device="cpu"), tmp_path / "model.onnx"
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match=r"cope with the network module:Branches can't be exported"):
        learner.export(path)
    assert path.read_bytes() == b"before"


def test_export_changes_nothing_and_learning_goes_on(tmp_path):
    learner, other = taught("cope+"), taught("cope+")
    learner.export(tmp_path / "model.onnx")
    x, y = next(batches(seed=9))
    for each in (learner, other):
        each.observe(x, y)
    state, expected = learner.state_dict(), other.state_dict()
    assert all(torch.equal(state[key], expected[key]) for key in state if key != "meta")


def test_before_the_first_label_there_is_nothing_to_export(tmp_path):
    with pytest.raises(NotLearntYet, match="observe a batch first, then export"):
        registry()["cope"]().export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_named_by_the_error_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.core.export._to_onnx", None)
    with pytest.raises(IsADirectoryError, match=rf"can't be written \(Is a directory\): '{tmp_path}'"):
        taught("cope").export(tmp_path)


def test_a_file_that_can_not_be_written_is_named_by_the_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "model.onnx"
    with pytest.raises(OSError, match=rf"can't be written .*: '{path}'"):
        taught("cope").export(path)
