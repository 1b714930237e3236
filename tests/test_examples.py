"""Every example runs, alone and as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = {path.name: path for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py"))}

EXPECTED = {
    "compare_on_a_recording.py": ["learner", "finetune", "cope"],
    "embeddings.py": ["after forget: ['delivery', 'returns', 'passwords']"],
    "new_learner.py": ["slow-teacher: 9"],
    "own_images.py": ["['apple', 'apple', 'apple', 'apple', 'apple']"],
    "tabular_river.py": ["CoPE"],
    "resume_after_a_kill.py": ["bit-identical to an uninterrupted learner: True"],
}

# Arguments for a shorter run of slow examples.
WORDS = {"compare_on_a_recording.py": ["finetune", "cope"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name):
    words = [sys.executable, str(EXAMPLES[name]), *WORDS.get(name, [])]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for line in EXPECTED.get(name, []):
        assert line in done.stdout
