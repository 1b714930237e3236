"""`everlearn predict`: predict the samples of a file with a service."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.cli.remote import RemoteFlags, read, send

__all__ = ["PredictFlags", "command"]


@dataclasses.dataclass(frozen=True)
class PredictFlags(RemoteFlags):
    """Predict the samples of a .jsonl, .csv or .npz file with `everlearn serve`: a JSON line for each.

    If the file has labels, the accuracy is printed at the end.
    """

    batch_size: int = 256
    """samples in a request"""
    confidence: bool = False
    """print the probability of each answer, too"""
    out: Path | None = None
    """write the lines to this file"""


def command(words: list[str]) -> int:
    """Predict; returns the exit code."""
    flags = in_one_sentence(lambda: tyro.cli(PredictFlags, args=words, prog="everlearn predict"))
    from everlearn.service.wire import encode_labels

    samples = read(flags)
    right = 0

    def predict(client: Any, x: Any, y: Any, ids: Any) -> None:
        nonlocal right
        labels, shares = client.predict(x, confidence=True) if flags.confidence else (client.predict(x), None)
        for i, label in enumerate(encode_labels(labels)):
            line = {} if ids is None else {"id": encode_labels([ids[i]])[0]}
            line["label"] = label
            if shares is not None:
                line["confidence"] = round(float(shares[i]), 6)
            print(json.dumps(line), file=out)
        right += sum(label == true for label, true in zip(labels, y or (), strict=False))

    with contextlib.ExitStack() as stack:
        out = sys.stdout if flags.out is None else stack.enter_context(flags.out.open("w", encoding="utf-8"))
        send(flags, samples, "predict", predict)
    if samples.y is not None:
        print(f"accuracy {right / len(samples.x):.4f} on {len(samples.x):,} samples", file=sys.stderr)
    return 0
