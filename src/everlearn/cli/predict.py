"""`everlearn predict`: predict the samples of a file with a service."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from pathlib import Path

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.cli.observe import bar, check_size

__all__ = ["PredictFlags", "command"]


@dataclasses.dataclass(frozen=True)
class PredictFlags:
    """Predict the samples of a .jsonl, .csv or .npz file with `everlearn serve`: a JSON line for each.

    If the file has labels, the accuracy is printed at the end.
    """

    file: tyro.conf.Positional[Path]
    """the file: lines {"x": [...]}; a CSV with a header; or an array x"""
    url: str = "http://127.0.0.1:8000"
    """the service"""
    model: str | None = None
    """the model, if the service has several"""
    token: str | None = None
    """a token with the scope predict; by default $EVERLEARN_TOKEN"""
    batch_size: int = 256
    """samples in a request"""
    confidence: bool = False
    """print the probability of each answer, too"""
    out: Path | None = None
    """write the lines to this file"""
    label: str | None = None
    """the column of labels in a CSV file; by default label or y, if there is one"""
    id: str | None = None
    """the column of ids in a CSV file; by default id, if there is one"""


def command(words: list[str]) -> int:
    """Predict; returns the exit code."""
    flags = in_one_sentence(lambda: tyro.cli(PredictFlags, args=words, prog="everlearn predict"))
    from everlearn.service.client import Client
    from everlearn.service.files import batches, read_samples
    from everlearn.service.wire import encode_labels

    check_size(flags.batch_size)
    samples = read_samples(flags.file, flags.label, flags.id)
    right = 0
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(flags.url, flags.model, token=flags.token))
        advance = stack.enter_context(bar(f"predict {flags.file.name}", len(samples.x)))
        out = sys.stdout if flags.out is None else stack.enter_context(flags.out.open("w", encoding="utf-8"))
        for x, y, ids in batches(samples, flags.batch_size):
            labels, shares = (
                client.predict(x, confidence=True) if flags.confidence else (client.predict(x), None)
            )
            for i, label in enumerate(encode_labels(labels)):
                line = {} if ids is None else {"id": encode_labels([ids[i]])[0]}
                line["label"] = label
                if shares is not None:
                    line["confidence"] = round(float(shares[i]), 6)
                print(json.dumps(line), file=out)
            right += sum(label == true for label, true in zip(labels, y or (), strict=False))
            advance(len(x))
    if samples.y is not None:
        print(f"accuracy {right / len(samples.x):.4f} on {len(samples.x):,} samples", file=sys.stderr)
    return 0
