"""Learners by name: from the library, entry points, module:Class; and the class of a saved learner."""

import sys
import textwrap

import pytest
import torch

from everlearn import load
from everlearn.checkpoint import CheckpointError
from everlearn.cli import main
from everlearn.learners import find

SOURCE = """
    from everlearn.core.learner import Learner
    from everlearn.core.settings import SoftmaxSettings

    class Twice(Learner):
        '''Two steps on each batch.'''

        name = "NAME"
        Settings = SoftmaxSettings

        def step(self, x, slots, *replay):
            self.fit(x, slots)
            self.fit(x, slots)

    class NotALearner:
        pass
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a user's module that is not imported yet."""
    # A unique name: classes of other tests are imported as well.
    (tmp_path / "my_methods.py").write_text(textwrap.dedent(SOURCE).replace("NAME", tmp_path.name))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_methods", None)


def test_a_class_in_the_working_folder_is_found_by_its_module(folder):
    assert find("my_methods:Twice").name == folder.name
    assert str(folder) not in sys.path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my_methods:Thrice", "no attribute 'Thrice'"),
        ("no_such_module:Twice", "No module named 'no_such_module'"),
        ("my_methods:NotALearner", "not a subclass of everlearn.Learner that sets `name`"),
        ("cop", "did you mean 'cope'"),
    ],
)
def test_what_is_not_there_is_one_sentence(folder, name, said):
    with pytest.raises(ValueError, match=said):
        find(name)


def test_an_entry_point_of_an_installed_package_is_found(folder, monkeypatch):
    info = folder / "my_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[everlearn.learners]\ntwice = my_methods:Twice\n")
    monkeypatch.syspath_prepend(folder)
    assert find("twice").name == folder.name


def test_the_command_line_runs_a_class_of_the_users(folder, capsys):
    main(["run", "--learner", "my_methods:Twice", "--learning-rate", "0.1", "--json", "--no-keep"])
    assert '"learning_rate": 0.1' in capsys.readouterr().out


def test_a_file_never_imports_the_module_of_its_learner(folder):
    learner = find("my_methods:Twice")("mlp", hidden=8, device="cpu")
    learner.observe(torch.randn(4, 3), list("abab"))
    learner.save(folder / "state")
    assert type(load(folder / "state", device="cpu")) is type(learner)  # imported already

    kind = type(learner)
    kind.name = "another"  # as in a process that has not imported it
    with pytest.raises(CheckpointError, match="import its class first, or use load"):
        load(folder / "state", device="cpu")
    kind.name = folder.name
    assert load(folder / "state", device="cpu", learner=kind).classes == ["a", "b"]
