"""The tutorial on your own images runs as it stands, from a folder of PNGs to a table in LaTeX."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from everlearn.experiments.store import Store

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial-own-images.md"
NOTEBOOK = ROOT / "docs" / "notebooks" / "own-images.ipynb"

spec = importlib.util.spec_from_file_location("notebook_hook", ROOT / "docs" / "hooks" / "notebook.py")
assert spec is not None and spec.loader is not None
hook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hook)


def test_the_notebook_is_the_page() -> None:
    # After a change of the page: python docs/hooks/notebook.py docs/tutorial-own-images.md
    assert json.loads(NOTEBOOK.read_text("utf-8")) == hook.as_notebook(PAGE.read_text("utf-8"))


def test_the_notebook_runs_from_a_folder_of_images_to_a_table_in_latex(tmp_path: Path) -> None:
    cells = hook.code_of(json.loads(NOTEBOOK.read_text("utf-8")))
    (tmp_path / "notebook.py").write_text("\n\n".join(cells))
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "notebook.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    latex = (tmp_path / "tables.tex").read_text()
    assert latex.count(r"\begin{tabular}") == 3 and "Soft replay (ours) &" in latex and "& Photos" in latex
    assert latex.count(r"\textbf{") == 3
    assert "soft replay less cope" in done.stdout and "failed" not in done.stdout
    assert (tmp_path / "figures" / "comparison-photos-accuracy.pdf").read_bytes().startswith(b"%PDF")
    assert "soft replay less each other method" in (tmp_path / "report" / "report.html").read_text()


# The whole way in 40 lines: own images, own network and own method against two others, five seeds, validation, a
# blurry stream, a table in LaTeX and curves in TensorBoard.
TRIAL = '''
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import everlearn
from everlearn import Evaluator
from everlearn.learners.reservoir import Reservoir
from everlearn.networks import as_input


class Asymmetric(Reservoir):
    """New samples compete among their own classes only."""

    name = "asymmetric"

    def step(self, x, slots, *replay):
        old, old_slots = replay
        logits = self.logits(as_input(torch.cat([x, old])))
        present = torch.zeros_like(logits[0], dtype=torch.bool).index_fill(0, slots, True)
        loss = cross_entropy(logits[: len(x)].masked_fill(~present, -1e9), slots)
        self.descend(loss + cross_entropy(logits[len(x) :], old_slots) if len(old) else loss)


def net(shape):
    return nn.Sequential(nn.Conv2d(shape[0], 8, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten())


def photos(seed, validation):
    return everlearn.split("photos", tasks=3, scenario="blurry", validation=validation, seed=seed)


found = everlearn.experiment(
    {"cope": "cope", "reservoir": "reservoir", "ours": Asymmetric},
    {"photos": photos},
    network=net, settings={"memory_size": 30}, seeds=5, validation=True, against="ours",
    evaluator=Evaluator(every=4), track="tensorboard:curves",
)
found.to_latex("table.tex")
'''


def test_the_whole_way_takes_40_lines_with_nothing_that_is_not_documented(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert len([line for line in TRIAL.splitlines() if line.strip()]) <= 40
    random = np.random.default_rng(0)
    for label in ("ant", "bee", "cat", "dog", "elk", "fox"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(10):
            pixels = random.integers(0, 255, (10, 10, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    (tmp_path / "trial.py").write_text(TRIAL)
    done = subprocess.run([sys.executable, "trial.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    latex = (tmp_path / "table.tex").read_text()
    assert all(f"\n{row} & " in latex for row in ("CoPE", "reservoir", "ours")) and "--" not in latex
    records = Store(tmp_path / "runs" / "store.sqlite").records()
    assert len(records) == 15 and all(run.job["validation"] for run in records)
    assert len(list((tmp_path / "curves").glob("*/events*"))) == 15
