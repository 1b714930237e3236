"""Learn from embeddings of another model: prototypes and a memory, without training a network.

    python examples/embeddings.py

A sentence encoder has turned each document into a vector; here random directions replace it. With
`network="identity"` the vectors are used as they are, and only one prototype per topic is learnt. Topics appear over
time, one topic is deleted on request, and documents of an unseen topic are answered with UNKNOWN.
"""

import torch

from everlearn import UNKNOWN, CoPE

TOPICS = ["billing", "delivery", "returns", "passwords"]
SIZE = 384

generator = torch.Generator().manual_seed(0)
directions = dict(zip([*TOPICS, "poetry"], torch.randn(5, SIZE, generator=generator), strict=True))


def documents(topic: str, count: int) -> torch.Tensor:
    """Vectors like those of a sentence encoder, in float16 to save memory."""
    return (directions[topic] + 1.5 * torch.randn(count, SIZE, generator=generator)).half()


def main() -> None:
    # Step 1: create a learner. Without a network to train, prototypes can move faster, so momentum=0.9.
    # unknown=0.02 rejects documents unlike any topic, at the cost of about 2 % of the known ones.
    learner = CoPE("identity", memory_size=200, momentum=0.9, unknown=0.02, seed=0, device="cpu")

    # Step 2: learn. Two topics come first, two others later.
    for day in range(60):
        topics = TOPICS[:2] if day < 30 else TOPICS[2:]
        x = torch.cat([documents(topic, 4) for topic in topics])
        learner.observe(x, [topic for topic in topics for _ in range(4)])

    # Step 3: predict. "poetry" was never learnt.
    for topic in [*TOPICS, "poetry"]:
        answers = learner.predict(documents(topic, 100))
        correct = sum(answer == topic for answer in answers)
        unknown = sum(answer is UNKNOWN for answer in answers)
        print(f"{topic:10s} {correct:3d} % correct, {unknown:3d} % unknown")

    # Step 4: delete a topic, with its prototype and its samples.
    learner.forget("billing")
    print("after forget:", learner.classes, learner.memory.counts())
    print("bytes of operational memory:", learner.footprint())


if __name__ == "__main__":
    main()
