"""Kills at random moments while learning and saving; `benchmarks/kills.py` does a hundred."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from everlearn import checkpoint

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_some_kills_no_checkpoint_is_lost_and_every_resume_is_bit_identical():
    words = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--kills", "5", "--learners", "cope"]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "5 kills" in told
    assert "no checkpoint lost, every resume bit-identical" in told


@pytest.mark.skipif(os.name != "posix", reason="where the living can be told from the dead")
def test_what_a_killed_process_left_half_written_is_swept_away_and_a_living_ones_is_not(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = tmp_path / f".state.{ended.pid}.abc", tmp_path / f".state.{os.getpid()}.abc"
    other = tmp_path / ".state.notes.txt"
    for left in (dead, alive, other):
        left.write_bytes(b"half")
    checkpoint.write({"a": torch.zeros(3), "meta": "{}"}, tmp_path / "state")
    assert sorted(part.name for part in tmp_path.iterdir()) == sorted([alive.name, other.name, "state"])
