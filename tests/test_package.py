"""The package as a new user gets it: imports, README, wheel."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

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


# test_tutorial_own_images.py runs that page, and looks at what it writes.
ELSEWHERE = "tutorial-own-images.md"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != ELSEWHERE], ids=lambda page: page.name
)
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

    from everlearn.cli.observe import ObserveFlags
    from everlearn.cli.predict import PredictFlags
    from everlearn.cli.report import ReportFlags
    from everlearn.cli.reproduce import ReproduceFlags
    from everlearn.cli.run import parse
    from everlearn.cli.serve import parse as serve_flags
    from everlearn.cli.tune import TuneFlags
    from everlearn.paper.reproduce import plan
    from everlearn.streams import datasets, record_files

    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", page.read_text("utf-8"), re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:2] == ["everlearn", "run"]:
                parse(words[2:])
            elif words[:2] == ["everlearn", "data"]:
                assert words[2] in ("list", "fetch", "verify")
                assert set(words[3:]) <= {*datasets.NAMES, *record_files.RECORD_FILES}
            elif words[:2] == ["everlearn", "reproduce"]:
                flags = tyro.cli(ReproduceFlags, args=words[2:])
                if not flags.experiment.endswith(".toml") and flags.experiment != "real-streams":
                    plan(flags.experiment, dataclasses.replace(flags.run, store=tmp_path / "none"))
            elif words[:2] == ["everlearn", "tune"]:
                tyro.cli(TuneFlags, args=words[2:])
            elif words[:2] == ["everlearn", "report"]:
                tyro.cli(ReportFlags, args=words[2:])
            elif words[:2] == ["everlearn", "serve"]:
                serve_flags(words[2:])
            elif words[:2] in (["everlearn", "observe"], ["everlearn", "predict"]):
                tyro.cli(ObserveFlags if words[1] == "observe" else PredictFlags, args=words[2:])
            elif words[:2] == ["everlearn", "token"]:
                assert words[2] in ("create", "list", "revoke")
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built once."""
    out = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_every_file_of_the_package_and_no_test(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    package = [path for path in (source / "everlearn").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {path.relative_to(source).as_posix() for path in package} <= names
    assert not any(name.startswith("tests") for name in names)


def test_the_wheel_installs_and_its_command_runs(wheel, tmp_path):
    words = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path / "site"), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    where = [sys.executable, "-c", "import everlearn; print(everlearn.__file__)"]
    found = subprocess.check_output(where, env=environment, cwd=tmp_path, text=True)
    assert Path(found.strip()).is_relative_to(tmp_path / "site")
    quick = ["run", "--json", "--hidden", "8", "--iterations", "1", "--device", "cpu"]
    words = [sys.executable, "-m", "everlearn", *quick]
    answer = json.loads(subprocess.check_output(words, env=environment, cwd=tmp_path))
    assert answer["accuracy"]["mean"] > 0.2


def test_the_version_is_the_same_everywhere():
    import everlearn

    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == everlearn.__version__
    assert f"now {everlearn.__version__}" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"## {everlearn.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_extra_all_has_every_extra_for_users():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    users = sorted(extras.keys() - {"all", "docs", "test", "dev"})
    assert extras["all"] == [f"everlearn[{','.join(users)}]"]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_every_link_of_the_pages_for_contributors_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text("utf-8")):
        assert target.startswith("http") or (ROOT / target).exists(), target


@pytest.mark.parametrize("file", [".pre-commit-config.yaml", ".github/workflows/ci.yml", "CITATION.cff"])
def test_every_yaml_file_can_be_read(file):
    assert isinstance(yaml.safe_load((ROOT / file).read_text("utf-8")), dict)


def test_the_architecture_page_knows_every_package_and_only_files_that_exist():
    package = ROOT / "src" / "everlearn"
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == packages
    assert set(re.findall(r'font-weight="bold"[^>]*>(\w+)<', picture)) == packages
    for file in re.findall(r"`([\w/]+\.(?:py|toml))`", page):
        assert (package / file).exists() or (ROOT / file).exists(), file
