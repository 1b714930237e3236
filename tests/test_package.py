"""The package as a stranger meets it: imports, README, wheel."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_importing_everlearn_loads_nothing_heavy():
    heavy = ("torch", "sklearn", "scipy", "matplotlib", "tyro", "rich", "joblib", "PIL", "ray")
    code = f"import sys, everlearn; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_learning_needs_torch_numpy_and_safetensors_alone():
    code = """
import sys
for name in ("sklearn", "scipy", "matplotlib", "tyro", "rich", "joblib", "river", "PIL"):
    sys.modules[name] = None
import torch, everlearn
learner = everlearn.CoPE("mlp", memory_size=10)
learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
result = everlearn.run(learner, [(torch.randn(4, 3), [0, 1, 0, 1])])
print(len(learner.predict(torch.randn(4, 3))))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "4"


def test_every_public_name_is_there():
    import everlearn

    for name in everlearn.__all__:
        assert getattr(everlearn, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Cope'"):
        _ = everlearn.Cope


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_on_every_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S):
        exec(compile(block, str(page), "exec"), space)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_on_every_page_is_understood(page, tmp_path):
    """Each `everlearn …` in a shell block names a known command, learner, stream and flags."""
    import dataclasses

    import tyro

    from everlearn.cli.report import ReportFlags
    from everlearn.cli.reproduce import ReproduceFlags
    from everlearn.cli.run import parse
    from everlearn.paper.reproduce import plan
    from everlearn.streams import datasets

    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", page.read_text("utf-8"), re.S):
        for line in block.splitlines():
            words = line.split("#")[0].split()
            if words[:2] == ["everlearn", "run"]:
                parse(words[2:])
            elif words[:2] == ["everlearn", "data"]:
                assert words[2] in ("list", "fetch", "verify")
                assert set(words[3:]) <= set(datasets.NAMES)
            elif words[:2] == ["everlearn", "reproduce"]:
                flags = tyro.cli(ReproduceFlags, args=words[2:])
                if not flags.experiment.endswith(".toml"):
                    plan(flags.experiment, dataclasses.replace(flags.run, store=tmp_path / "none"))
            elif words[:2] == ["everlearn", "report"]:
                tyro.cli(ReportFlags, args=words[2:])
            elif words[:1] == ["everlearn"]:
                assert words[1:] in (["demo"], ["--help"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_experiment_on_every_page_is_one(page):
    from everlearn.paper.definition import check, parse

    for block in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.S):
        if "[[panels]]" in block:
            check(parse(block, page.name), page.name)


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) < 150
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_a_wheel_builds_and_holds_the_data(tmp_path):
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    for name in (
        "py.typed",
        "streams/checksums.json",
        "streams/benchmarks.toml",
        "experiments/rates.toml",
        "experiments/benchmarks/split-mnist.toml",
        "paper/experiments/balanced.toml",
    ):
        assert f"everlearn/{name}" in names
    assert not any(name.startswith("tests") for name in names)
