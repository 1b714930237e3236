"""Learn from your own images: labels arrive late, and another thread predicts meanwhile.

    python examples/own_images.py

A camera sends frames of 3 x 24 x 32 bytes, in which each kind of object has its own colour. The learner predicts each
frame at once. A person labels it some frames later, or never. In the middle of the stream a new kind appears.
"""

import threading

import torch
from torch import nn

from everlearn import CoPE

COLOURS = {"apple": (200, 40, 40), "leaf": (40, 160, 40), "sky": (60, 90, 210)}

generator = torch.Generator().manual_seed(0)


def frame(kind: str) -> torch.Tensor:
    """One image: the colour of its object, with noise."""
    noise = torch.randint(-40, 41, (3, 24, 32), generator=generator)
    return (torch.tensor(COLOURS[kind])[:, None, None] + noise).clamp(0, 255).to(torch.uint8)


def network() -> nn.Module:
    """Any module that maps a batch of images to embeddings. Bytes are scaled to 0 … 1 before they reach it."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16)
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)

    # Step 1: create a learner. `waiting=50` keeps up to 50 frames until their labels arrive.
    learner = CoPE(network(), memory_size=60, momentum=0.9, iterations=5, waiting=50, seed=0, device="cpu")

    # Step 2: predict each frame with `ask`, and pass its label to `tell` when it is known.
    labels: list[tuple[int, str]] = []  # labels that will be passed on soon
    correct = 0
    for number in range(400):
        kind = ["apple", "leaf"][number % 2] if number < 200 else ["leaf", "sky"][number % 2]
        (answer,) = learner.ask([number], frame(kind)[None])  # predicts, and keeps the frame
        correct += answer == kind
        if number % 3:  # every third frame never gets a label
            labels.append((number, kind))
        if len(labels) == 8:  # labels arrive eight at a time
            report = learner.tell([number for number, _ in labels], [kind for _, kind in labels])
            assert not report.missing
            labels.clear()
    print(f"{100 * correct / 400:.0f} % of 400 frames were predicted correctly when they arrived")

    # Step 3: predict from another thread. A snapshot does not change and does not wait for the learner.
    snapshot = learner.snapshot()
    answers: list[object] = []
    viewer = threading.Thread(
        target=lambda: answers.extend(snapshot.predict(torch.stack([frame("apple")] * 5)))
    )
    viewer.start()
    learner.observe(torch.stack([frame("sky")] * 8), ["sky"] * 8)
    viewer.join()
    print("five apples, after 200 frames without one:", answers)
    print("samples in the replay memory:", learner.memory.counts())


if __name__ == "__main__":
    main()
