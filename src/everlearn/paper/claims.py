r"""The claims of the paper's text, each as checks over cells, and whether our runs confirm them.

A check is one line, for example

    balanced[cope, split-mnist] > balanced[mir, split-mnist]            the first is higher
    imbalanced[cope, split-mnist] - imbalanced[cope-ce, split-mnist] = 4.0      ... by so many points
    batch-size[split-mnist, 10] ~ batch-size[split-mnist, 20] within 1          they are alike

`experiment[words]` is the mean over all cells of the experiment whose row, column, stream or panel have all
these words; `{a|b}` stands for one check with a and one with b. Instead of the accuracy, a check may ask for
`early(...)` or `late(...)`, the accuracy at the end on the first or the second half of the tasks; for `std(...)`
over seeds; for `speed(...)`, samples per second; or for `memory(...)`, in megabytes. The last three are compared as
they are, without a test.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files
from statistics import fmean

from everlearn.experiments import significance
from everlearn.experiments.codec import StoredResult, decode
from everlearn.experiments.significance import Difference
from everlearn.messages import nearest
from everlearn.paper.tables import MeasuredCell, Table

__all__ = ["Check", "Claim", "Finding", "Judgement", "claims", "judge"]

SIDE = r"(?:(?P<{0}metric>\w+)\()?(?P<{0}experiment>[\w-]+)\[(?P<{0}words>[^\]]+)\]\)?"
CHECK = re.compile(
    rf"{SIDE.format('a')}\s*(?:(?P<above>>)|-|(?P<alike>~))\s*{SIDE.format('b')}"
    r"(?:\s*=\s*(?P<points>-?[\d.]+))?(?:\s*within\s+(?P<margin>[\d.]+))?"
)
NOT_MEASURED, HOLDS, LARGER, SMALLER, UNCLEAR, FAILS = (
    "not measured yet", "holds", "holds, by more", "holds, by less", "unclear", "does not hold",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of a check: a metric of the cells of an experiment that have all these words."""

    metric: str
    experiment: str
    words: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Check:
    """a > b, a − b = points, or a ~ b within a margin."""

    text: str
    a: Side
    b: Side
    points: float | None = None
    margin: float | None = None


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its source, and its checks. note: how the sentence was interpreted."""

    text: str
    source: str
    checks: tuple[Check, ...]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Finding:
    """The verdict of our runs on a check. difference: our a − b. paper: a − b in the paper, where it prints both."""

    check: Check
    verdict: str
    difference: Difference | None
    paper: float | None


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The verdict of our runs on a claim."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """The verdict that all checks share, or how many of them hold."""
        found = [finding.verdict for finding in self.findings]
        if len(set(found)) == 1:
            return found[0]
        measured = [verdict for verdict in found if verdict != NOT_MEASURED]
        holding = sum(verdict in (HOLDS, LARGER, SMALLER) for verdict in measured)
        missing = len(found) - len(measured)
        rest = f", {missing} not measured yet" if missing else ""
        if holding == len(measured) and not missing:
            return HOLDS if SMALLER not in measured else "holds, in part by less"
        failing = f", {measured.count(FAILS)} do not" if FAILS in measured else ""
        unclear = f", {measured.count(UNCLEAR)} unclear" if UNCLEAR in measured else ""
        return f"{holding} of {len(found)} hold{failing}{unclear}{rest}"


def parse(text: str) -> Check:
    """A check from its line.

    >>> check = parse("balanced[cope, split-mnist] - balanced[cope-ce, split-mnist] = 2.2")
    >>> check.a.words, check.points
    (('cope', 'split-mnist'), 2.2)
    """
    found = CHECK.fullmatch(text.strip())
    if found is None or (found["above"] is None and found["alike"] is None and found["points"] is None):
        raise ValueError(f"{text!r} is not a check; write a > b, a - b = points, or a ~ b within margin")
    if (found["alike"] is None) != (found["margin"] is None):
        raise ValueError(f"{text!r}: ~ needs a margin, and only ~ takes one")
    a, b = (
        Side(
            found[f"{side}metric"] or "accuracy",
            found[f"{side}experiment"],
            tuple(word.strip() for word in found[f"{side}words"].split(",")),
        )
        for side in "ab"
    )
    for side in (a, b):
        if side.metric not in KNOWN:
            raise ValueError(f"{text!r}: there is no metric {side.metric!r}{nearest(side.metric, KNOWN)}")
    points, margin = (float(found[name]) if found[name] else None for name in ("points", "margin"))
    return Check(text, a, b, points, margin)


def expanded(text: str) -> list[str]:
    """A line with {a|b} as several lines; the same braces stand for the same word in one line.

    >>> expanded("balanced[cope, {x|y}] > balanced[{gem|mir}, {x|y}]")[1]
    'balanced[cope, x] > balanced[mir, x]'
    """
    groups = list(dict.fromkeys(re.findall(r"\{[^}]*\}", text)))
    lines = []
    for choice in itertools.product(*(group[1:-1].split("|") for group in groups)):
        line = text
        for group, word in zip(groups, choice, strict=True):
            line = line.replace(group, word)
        lines.append(line)
    return lines


def claims() -> list[Claim]:
    """All claims, in the order of the paper's text."""
    content = tomllib.loads(files("everlearn.paper").joinpath("claims.toml").read_text("utf-8"))
    return [
        Claim(
            entry["text"],
            entry["source"],
            tuple(parse(line) for check in entry["checks"] for line in expanded(check)),
            entry.get("note", ""),
        )
        for entry in content["claim"]
    ]


def judge(claim: Claim, tables: Sequence[Table]) -> Judgement:
    """The verdict of the runs in these tables on a claim."""
    return Judgement(claim, tuple(_finding(check, tables) for check in claim.checks))


def _finding(check: Check, tables: Sequence[Table]) -> Finding:
    a, b = (cells_of(side, tables, check.text) for side in (check.a, check.b))
    ours_a, ours_b = _values(check.a, a), _values(check.b, b)
    paper = check.points
    if paper is None and check.a.metric == check.b.metric == "accuracy":
        printed_a, printed_b = _published(a), _published(b)
        paper = None if printed_a is None or printed_b is None else printed_a - printed_b
    if ours_a is None or ours_b is None:
        difference = None
    elif check.a.metric in UNTESTED:
        both = fmean(ours_a.values()) - fmean(ours_b.values())
        difference = Difference(both, both, both, 0.0, min(len(ours_a), len(ours_b)))
        if check.a.metric == "speed" and _machines(a) != _machines(b):
            difference = None  # speeds on different machines can't be compared
    else:
        difference = significance.paired(ours_a, ours_b)
    return Finding(check, _verdict(check, difference), difference, paper)


def _verdict(check: Check, difference: Difference | None) -> str:
    if difference is None:
        return NOT_MEASURED
    mean, low, high = difference.mean, difference.low, difference.high
    if check.margin is not None:
        if abs(mean) <= check.margin:
            return HOLDS
        return FAILS if low > check.margin or high < -check.margin else UNCLEAR
    if check.points is not None and check.points < 0:
        mean, low, high = -mean, -high, -low
    if high < 0:
        return FAILS
    if low <= 0:
        return UNCLEAR
    claimed = abs(check.points or 0.0)
    if not claimed or low <= claimed <= high:
        return HOLDS
    return LARGER if low > claimed else SMALLER


def cells_of(side: Side, tables: Sequence[Table], text: str) -> list[MeasuredCell]:
    """The cells of one side of a check; a ValueError if there are none."""
    known = {table.experiment.name for table in tables}
    if side.experiment not in known:
        raise ValueError(
            f"{text!r}: there is no experiment {side.experiment!r}{nearest(side.experiment, known)}"
        )
    found = [
        measured
        for table in tables
        if table.experiment.name == side.experiment
        for measured in table.cells
        if set(side.words) <= {measured.cell.row, measured.cell.column, measured.stream, table.title}
    ]
    if not found:
        raise ValueError(f"{text!r}: {side.experiment} has no cell with {' and '.join(side.words)}")
    return found


def _values(side: Side, cells: Sequence[MeasuredCell]) -> dict[int, float] | None:
    """For each seed the mean over the cells; None unless every cell has runs."""
    if side.metric == "std":
        spreads = [cell.ours.std for cell in cells if cell.ours is not None and cell.ours.std is not None]
        return {0: fmean(spreads)} if len(spreads) == len(cells) else None
    metric = METRICS[side.metric]
    values = [{run.job["seed"]: metric(decode(run.result)) for run in cell.runs} for cell in cells]
    seeds = set.intersection(*(set(value) for value in values))
    return {seed: fmean([value[seed] for value in values]) for seed in sorted(seeds)} or None


def _machines(cells: Sequence[MeasuredCell]) -> set[str]:
    return {run.hardware for cell in cells for run in cell.runs}


def _published(cells: Sequence[MeasuredCell]) -> float | None:
    means = [cell.cell.published.mean for cell in cells if cell.cell.published is not None]
    return fmean(means) if len(means) == len(cells) else None


def _half(result: StoredResult, late: bool) -> float:
    """The accuracy at the end on the first or the second half of the tasks, in percent."""
    accuracies = list(result.concepts.values())
    half = len(accuracies) // 2
    return 100 * fmean(accuracies[-half:] if late else accuracies[:half])


def _defined(value: float | None) -> float:
    if value is None:
        raise ValueError("a run has no accuracy, speed or memory to compare; leave it out of the report")
    return float(value)


METRICS: dict[str, Callable[[StoredResult], float]] = {
    "accuracy": lambda result: 100 * _defined(result.accuracy),
    "early": lambda result: _half(result, late=False),
    "late": lambda result: _half(result, late=True),
    "speed": lambda result: _defined(result.samples_per_second),
    "memory": lambda result: _defined(result.memory_bytes) / 1e6,
}
UNTESTED = ("std", "speed", "memory")
KNOWN = (*METRICS, "std")
