"""`everlearn predict`: predict the samples of a file with a service."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.cli.remote import RemoteFlags, connect, count, read, send

if TYPE_CHECKING:
    from everlearn.service.files import Samples

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

    right = labelled = 0

    def predict(start: int, batch: Samples) -> None:
        nonlocal right, labelled
        labels, shares = (
            client.predict(batch.x, confidence=True) if flags.confidence else (client.predict(batch.x), None)
        )
        for i, label in enumerate(encode_labels(labels)):
            line = {} if batch.ids is None else {"id": encode_labels([batch.ids[i]])[0]}
            line["label"] = label
            if shares is not None:
                line["confidence"] = round(float(shares[i]), 6)
            print(json.dumps(line), file=out)
        pairs = [pair for pair in zip(labels, batch.y or (), strict=False) if pair[1] is not None]
        labelled += len(pairs)
        right += sum(label == true for label, true in pairs)

    with contextlib.ExitStack() as stack:
        client = stack.enter_context(connect(flags))
        samples = read(flags, client.input())
        out = sys.stdout if flags.out is None else stack.enter_context(flags.out.open("w", encoding="utf-8"))
        send(flags, samples, predict)
    if labelled:
        print(f"accuracy {right / labelled:.4f} on {count(labelled)}", file=sys.stderr)
    return 0
