"""How many images each method passes through its network for one new image, in a protocol.

python benchmarks/images_per_new_image.py P1 [LEARNERS]
"""

from __future__ import annotations

import sys

from everlearn.experiments.cost import images_per_new_image
from everlearn.experiments.protocol import protocol


def main() -> None:
    """Print a table."""
    name = sys.argv[1] if len(sys.argv) > 1 else "P1"
    used = protocol(name)
    stream = next(iter(used.memory_sizes))
    print(f"images per new image in {name}")
    for learner in sys.argv[2:] or used.learners:
        cost = images_per_new_image(learner, used.settings(learner, stream), used.batch_size)
        print(f"{learner:10s} {cost:7.1f}", flush=True)


if __name__ == "__main__":
    main()
