"""Errors in a user's own code, as the command shows them."""

import pytest

from everlearn.cli import main

MODULE = """
import torch
from everlearn.learners.reservoir import Reservoir


class WrongShapes(Reservoir):
    name = "wrong-shapes"

    def step(self, x, slots, *replay):
        return x.flatten(1).float() @ torch.ones(3, 3)


class WrongKey(Reservoir):
    name = "wrong-key"

    def step(self, x, slots, *replay):
        return {}["nothing"]


def ends_badly(seed=0):
    yield torch.zeros(2, 4), ["a", "b"]
    raise KeyError("the third file")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"module_of_{tmp_path.name.replace('-', '_')}.py"  # another name in each test
    file.write_text(MODULE)
    return file


@pytest.mark.parametrize(
    ("name", "error", "line"),
    [("WrongShapes", "RuntimeError: mat1 and mat2", 10), ("WrongKey", "KeyError", 17)],
)
def test_an_error_in_a_learner_of_ones_own_is_a_sentence_with_its_place(module, capsys, name, error, line):
    assert main(["run", "--learner", f"{module.stem}:{name}", "--no-keep"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"everlearn: {error}")
    assert f"({module}, line {line}, in step; --traceback shows all calls)" in said


def test_an_error_in_a_stream_of_ones_own_has_its_place(module, capsys):
    assert main(["run", "--stream", f"{module.stem}:ends_badly", "--no-keep"]) == 2
    assert f"({module}, line 22, in ends_badly;" in capsys.readouterr().err


def test_traceback_raises_the_error_itself(module):
    with pytest.raises(KeyError, match="nothing"):
        main(["run", "--learner", f"{module.stem}:WrongKey", "--no-keep", "--traceback"])


def test_a_mistake_that_is_not_in_a_users_code_has_no_place(capsys):
    assert main(["run", "--learner", "copee"]) == 2
    assert "--traceback" not in capsys.readouterr().err
