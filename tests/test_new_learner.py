"""The two methods of docs/new-learner.md, as files of the package: found by name, tested by the contract tests."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "new-learner.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "new_learner.py"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The environment of a copy of the package with the files of both methods."""
    home = tmp_path_factory.mktemp("src")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "everlearn", home / "everlearn", ignore=ignored)
    assert "cp examples/new_learner.py src/everlearn/learners/slow_teacher.py" in PAGE
    learners = home / "everlearn" / "learners"
    shutil.copy(EXAMPLE, learners / "slow_teacher.py")
    (learners / "nearest_mean.py").write_text(nearest_mean(), "utf-8")
    return {**os.environ, "PYTHONPATH": str(home), "OMP_NUM_THREADS": "1"}


def nearest_mean():
    """The page's method without a softmax layer, with the imports of the block before it."""
    first, *others = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    imports = first[: first.index("@dataclasses")].replace(", mse_loss", "")
    (method,) = [block for block in others if "class NearestMean(" in block]
    return imports + method.replace("from everlearn import load\n", "")


def run(command, package, *more):
    """What a command of the page prints."""
    assert command in PAGE
    words = command.removeprefix("python -m ").split()
    done = subprocess.run(
        [sys.executable, "-m", *words, *more], env=package, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def steps(source):
    """The statements of `step`, without its docstring."""
    step = next(part for part in ast.walk(ast.parse(source)) if getattr(part, "name", "") == "step")
    return [
        ast.unparse(part) for part in step.body if not isinstance(getattr(part, "value", None), ast.Constant)
    ]


def test_it_is_complete_in_under_60_lines_and_the_page_shows_its_step():
    source = EXAMPLE.read_text("utf-8")
    assert len(source.splitlines()) < 60
    shown = re.search(r"```python\n(.*?)```", PAGE, re.S)[1]
    assert steps(shown) == steps(source)


def test_the_contract_tests_find_both_methods_and_they_keep_the_contract(package):
    command = "python -m pytest tests/learners/test_contract.py -k slow-teacher"
    both = ["-k", "slow-teacher or nearest-mean", "-v", "-p", "no:cacheprovider"]
    printed = run(command, package, *both)
    for name in ("slow-teacher", "nearest-mean"):
        assert len(re.findall(rf"\b{name}\b.* PASSED", printed)) > 25


def test_the_command_line_finds_it_and_its_settings_are_flags(package):
    printed = run("everlearn run --learner slow-teacher --distillation 0.5 --seeds 3", package, "--json")
    assert json.loads(printed)["settings"]["distillation"] == 0.5


class NothingReachesTheHost(TorchDispatchMode):
    """Refuses what a CUDA graph can't hold: values read by the host, and shapes that depend on values."""

    REFUSED = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function not in self.REFUSED, function
        return function(*args, **(kwargs or {}))


def test_its_step_is_tensors_alone(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    from new_learner import SlowTeacher

    learner = SlowTeacher(hidden=16, memory_size=20, device="cpu")
    learner.observe(torch.randn(6, 4), ["a", "b", "c"] * 2)
    step, steps = learner.step, []

    def watched(*tensors):
        with NothingReachesTheHost():
            steps.append(step(*tensors))

    learner.step = watched
    learner.observe(torch.randn(6, 4), ["a", "b", "c"] * 2)
    assert len(steps) == 1
    with pytest.raises(AssertionError), NothingReachesTheHost():
        torch.ones(()).item()
