"""How long predicting an image takes on one core, by how many images pass the network at once: each as a ratio.

    python benchmarks/predict.py [--networks slim-resnet18 resnet18 cnn]

Random images of CIFAR's size. The sizes are timed in turns; 1 is the size that a learner chooses by itself.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from unittest.mock import patch

import torch
from torch import Tensor

from everlearn import CoPE
from everlearn.core import prediction
from everlearn.core.chunks import chunk_size

SIZES = (10, 40, None, 250, 1000)  # None: the learner's own choice
ROUNDS = 5


def seconds(learner: CoPE, x: Tensor, size: int) -> float:
    """CPU time of predicting x in chunks of this size."""
    with patch.object(prediction, "chunk_size", lambda learner: size):
        start = time.process_time()
        learner.predict(x)
        return time.process_time() - start


def compare(network: str, images: int) -> None:
    """Print the time of an image for each size, relative to the learner's own choice."""
    learner = CoPE(network, memory_size=20, device="cpu", seed=0)
    learner.observe(torch.randint(0, 256, (20, 3, 32, 32), dtype=torch.uint8), list(range(10)) * 2)
    x = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8)
    own = chunk_size(learner)
    sizes = [own if size is None else size for size in SIZES]
    turns = [[seconds(learner, x, size) for size in sizes] for _ in range(ROUNDS)]
    print(
        f"{network}: {statistics.median(turn[sizes.index(own)] for turn in turns) / images * 1e3:.2f} ms an image"
    )
    for place, size in enumerate(sizes):
        quotient = statistics.median(turn[place] / turn[sizes.index(own)] for turn in turns)
        print(f"  {size:5d} at once  {quotient:5.2f}{'  (chosen)' if size == own else ''}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=["slim-resnet18", "resnet18", "cnn"])
    parser.add_argument("--images", type=int, default=1000)
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    for network in arguments.networks:
        compare(network, arguments.images)


if __name__ == "__main__":
    main()
