"""Runs as small JSON files for version control: one file for each stream and learner.

Runs that differ in the seed alone form a group, with one line for each run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from everlearn.experiments.job import key_of
from everlearn.experiments.names import file_name
from everlearn.experiments.record import Record, check_run

__all__ = ["MINIATURE", "export", "read"]

FORMAT = 1
# The confusion matrix of 100 classes would be larger than the rest of the run.
CLASSES_WITH_CONFUSION = 20
# Not a stream of the paper: it is for trying things out.
MINIATURE = "split-digits"
SHARED = ("settings", "version", "hardware")


def export(records: Iterable[Record], folder: Path) -> list[Path]:
    """Add runs that succeeded to a folder of results; returns the files that were written.

    If a run exists already, the newer one is kept. Runs on `split-digits` are left out.
    """
    files: dict[Path, dict[str, Record]] = {}
    for record in records:
        if record.error is None and record.result is not None and record.job["stream"] != MINIATURE:
            path = folder / file_name(record.job["stream"]) / f"{file_name(record.job['learner'])}.json"
            if path not in files:
                files[path] = {old.key: old for old in (_read_file(path) if path.exists() else ())}
            name = key_of(record.job, record.settings)
            old = files[path].get(name)
            if old is None or record.started > old.started:
                files[path][name] = record
    for path, runs in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(runs.values()), "utf-8")
    return sorted(files)


def read(folder: Path) -> list[Record]:
    """The runs in a folder of results."""
    return [record for path in sorted(folder.glob("*/*.json")) for record in _read_file(path)]


def _text(records: Iterable[Record]) -> str:
    groups: dict[str, tuple[dict[str, Any], list[Record]]] = {}
    for record in records:
        shared = {"job": {k: v for k, v in record.job.items() if k != "seed"}}
        shared |= {field: getattr(record, field) for field in SHARED}
        groups.setdefault(json.dumps(shared, sort_keys=True), (shared, []))[1].append(record)
    parts = []
    for _, (shared, runs) in sorted(groups.items()):
        fields = [f'      "{field}": {json.dumps(value)},\n' for field, value in shared.items()]
        lines = [f"        {_line(run)}" for run in sorted(runs, key=lambda run: run.job["seed"])]
        parts.append(
            "    {\n" + "".join(fields) + '      "runs": [\n' + ",\n".join(lines) + "\n      ]\n    }"
        )
    return f'{{\n  "format": {FORMAT},\n  "groups": [\n' + ",\n".join(parts) + "\n  ]\n}\n"


def _line(record: Record) -> str:
    result = dict(record.result or {})
    if len((result.get("confusion") or {}).get("labels", ())) > CLASSES_WITH_CONFUSION:
        result["confusion"] = None
    run = {
        "seed": record.job["seed"],
        "started": record.started,
        "seconds": record.seconds,
        "result": result,
    }
    return json.dumps(_rounded(run), separators=(",", ":"))


def _rounded(value: Any) -> Any:
    """Numbers with six digits, which is enough for a test set of 10,000 images."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def _read_file(path: Path) -> list[Record]:
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        records = [
            Record(
                # From the stored settings, since the defaults may have changed since.
                key=key_of(group["job"] | {"seed": run["seed"]}, group["settings"]),
                job=group["job"] | {"seed": run["seed"]},
                **{field: group[field] for field in SHARED},
                started=run["started"],
                seconds=run["seconds"],
                error=None,
                result=run["result"],
            )
            for group in content["groups"]
            for run in group["runs"]
        ]
        return [check_run(record, path) for record in records]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a valid file of results ({error!r})") from error
