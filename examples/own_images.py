"""Your own stream of images: camera frames whose labels come late, with predictions from another thread meanwhile.

    python examples/own_images.py

Frames of 3 x 24 x 32 bytes come from a camera, in which each kind of thing has its colour. Each is answered at once;
a person tells what it was some frames later, or never. A new kind of thing appears in the middle of the stream.
"""

import threading

import torch
from torch import nn

from everlearn import CoPE

COLOURS = {"apple": (200, 40, 40), "leaf": (40, 160, 40), "sky": (60, 90, 210)}

generator = torch.Generator().manual_seed(0)


def frame(kind: str) -> torch.Tensor:
    """One image: a colour, and noise."""
    noise = torch.randint(-40, 41, (3, 24, 32), generator=generator)
    return (torch.tensor(COLOURS[kind])[:, None, None] + noise).clamp(0, 255).to(torch.uint8)


def network() -> nn.Module:
    """Any module that maps a batch of images to an embedding; bytes reach it as 0 … 1."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16)
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    learner = CoPE(network(), memory_size=60, momentum=0.9, iterations=5, waiting=50, seed=0, device="cpu")
    told: list[tuple[int, str]] = []  # the labels that a person has yet to give
    right = asked = 0
    for number in range(400):
        kind = ["apple", "leaf"][number % 2] if number < 200 else ["leaf", "sky"][number % 2]
        (answer,) = learner.ask([number], frame(kind)[None])  # predicts, and keeps the frame
        right, asked = right + (answer == kind), asked + 1
        if number % 3:  # every third is never labelled
            told.append((number, kind))
        if len(told) == 8:  # the others come eight at a time
            report = learner.tell([number for number, _ in told], [kind for _, kind in told])
            assert not report.missing
            told.clear()
    print(f"{100 * right / asked:.0f} % of {asked} frames were answered rightly when they came")

    snapshot = learner.snapshot()  # stays as it is, and never waits for the learner
    answers: list[object] = []
    viewer = threading.Thread(
        target=lambda: answers.extend(snapshot.predict(torch.stack([frame("apple")] * 5)))
    )
    viewer.start()
    learner.observe(torch.stack([frame("sky")] * 8), ["sky"] * 8)
    viewer.join()
    print("seen again after 200 frames without one:", answers)
    print("kept:", learner.memory.counts())


if __name__ == "__main__":
    main()
