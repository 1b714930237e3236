"""Kills at random moments while learning and saving; `benchmarks/kills.py` does a hundred."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_some_kills_no_checkpoint_is_lost_and_every_resume_is_bit_identical():
    words = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--kills", "5", "--learners", "cope"]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "5 kills" in printed
    assert "no checkpoint lost, every resume bit-identical" in printed
