"""The claims of the paper on the page, each with its verdict and its checks."""

from __future__ import annotations

import dataclasses

from everlearn.paper.claims import FAILS, Finding, Judgement
from everlearn.paper.report.provenance import check_anchor
from everlearn.paper.report.tables import interval
from everlearn.paper.table_view import Column, Entry, Row, TableView, number_entry

__all__ = ["JudgedClaim", "judged_claim"]

FEW = 3
"""Up to this many checks are shown unfolded."""
COLUMNS = ("ours", "95 % interval", "paper", "n", "verdict")


@dataclasses.dataclass(frozen=True)
class JudgedClaim:
    """A claim as the page shows it. kind: `yes` where it holds, `no` where it does not, else empty."""

    text: str
    source: str
    note: str
    verdict: str
    kind: str
    count: int
    table: TableView

    @property
    def open(self) -> bool:
        """Whether its checks are shown unfolded."""
        return self.count <= FEW


def judged_claim(place: int, judgement: Judgement) -> JudgedClaim:
    """A claim with its checks. place: its number on the page, for the links to its parts."""
    claim, verdict = judgement.claim, judgement.verdict
    rows = [_row(check_anchor(place, row), finding) for row, finding in enumerate(judgement.findings)]
    return JudgedClaim(
        claim.text,
        claim.source,
        claim.note,
        verdict,
        "yes" if verdict.startswith("holds") else "no" if verdict == FAILS else "",
        len(rows),
        TableView("check", tuple(Column(title) for title in COLUMNS), tuple(rows)),
    )


def _row(place: str, finding: Finding) -> Row:
    check = Entry(finding.check.text, style=("code",), sort=finding.check.text)
    difference = finding.difference
    if difference is None:
        return Row(check, (Entry(finding.verdict, span=len(COLUMNS), style=("small",)),))
    # Intervals are sorted by their lower end.
    between = Entry()
    if difference.low != difference.high:
        between = Entry(interval(difference), link=place, sort=difference.low)
    return Row(
        check,
        (
            Entry(mean=difference.mean, signed=True, link=place),
            between,
            number_entry(finding.paper, 1, signed=True),
            Entry(str(difference.n), sort=difference.n),
            Entry(finding.verdict, sort=finding.verdict),
        ),
    )
