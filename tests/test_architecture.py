"""What docs/architecture.md says about the code."""

import inspect
import re
from pathlib import Path

import pytest

from everlearn import CoPE
from everlearn.losses import ppp
from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.prototypes import Prototypes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "everlearn"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
READING = re.findall(r"^\| `([^`]+\.py)` \|", PAGE.partition("## CoPE in six files")[2], re.M)

METHOD = [
    *(CoPE.observe, CoPE.plan, CoPE.draw_replay, CoPE.replay_size, CoPE.learn),
    *(CoPE.step, CoPE.fit_embedding, ppp.ppp_loss, CoPE.after_steps, Prototypes.move),
    *(BalancedMemory.draw, BalancedMemory.admit),
    *(CoPE.features, CoPE.scores_of, CoPE.predict, CoPE.predict_proba, CoPE.embed),
]


def test_cope_reads_in_six_files_and_900_lines():
    lines = {name: len((PACKAGE / name).read_text("utf-8").splitlines()) for name in READING}
    assert len(lines) == 6
    assert sum(lines.values()) <= 900 and max(lines.values()) <= 300, lines


@pytest.mark.parametrize("part", METHOD, ids=lambda part: part.__qualname__)
def test_each_part_of_cope_is_in_these_files(part):
    source = Path(inspect.getsourcefile(inspect.unwrap(part)))
    assert source.relative_to(PACKAGE).as_posix() in READING


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|toml))`", PAGE))
    missing = {name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()}
    assert len(named) > 40 and not missing
