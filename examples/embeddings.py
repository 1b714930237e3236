"""Embeddings from another model: a pure prototype memory, which learns without a network.

    python examples/embeddings.py

Another model has turned each document into a vector; here random directions stand in for it. `network="identity"`
takes the vectors as they are: nothing moves but one prototype for each topic, beside a memory of examples. Topics
come and go, one is forgotten on request, and a document of a topic never seen is answered by "none of these".
"""

import torch

from everlearn import UNKNOWN, CoPE

TOPICS = ["billing", "delivery", "returns", "passwords"]
SIZE = 384

generator = torch.Generator().manual_seed(0)
directions = dict(zip([*TOPICS, "poetry"], torch.randn(5, SIZE, generator=generator), strict=True))


def documents(topic: str, count: int) -> torch.Tensor:
    """Vectors as a sentence encoder gives them, of float16 to save memory."""
    return (directions[topic] + 1.5 * torch.randn(count, SIZE, generator=generator)).half()


def main() -> None:
    # α = 0.9: with nothing else to learn, prototypes may follow faster than they do over a network that moves.
    learner = CoPE("identity", memory_size=200, momentum=0.9, unknown=0.02, seed=0, device="cpu")
    for day in range(60):
        topics = TOPICS[:2] if day < 30 else TOPICS[2:]  # two topics at first, two others later
        x = torch.cat([documents(topic, 4) for topic in topics])
        learner.observe(x, [topic for topic in topics for _ in range(4)])

    for topic in [*TOPICS, "poetry"]:
        answers = learner.predict(documents(topic, 100))
        right = sum(answer == topic for answer in answers)
        print(
            f"{topic:10s} {right:3d} % right, {sum(answer is UNKNOWN for answer in answers):3d} % none of these"
        )

    learner.forget("billing")  # at once and for good
    print("after forget:", learner.classes, learner.memory.counts())
    print("bytes of operational memory:", learner.footprint())


if __name__ == "__main__":
    main()
