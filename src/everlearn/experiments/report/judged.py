"""The claims of the paper on the page, each with its verdict and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from everlearn.experiments.claims import FAILS, Finding, Judgement
from everlearn.experiments.report.parts import table_of
from everlearn.experiments.report.words import in_html, signed

__all__ = ["claims_section"]

FEW = 3
"""Checks that are shown unfolded."""


def claims_section(judgements: Sequence[Judgement]) -> str:
    """All claims on which there are runs."""
    return (
        '<section id="claims"><h2>What the paper says, checked</h2><p>Claims of its text on which there are runs. '
        "A claim holds where the 95 % interval of the difference, paired over seeds, lies above zero; by more or by "
        "less, where the paper's number lies outside the interval; it is unclear where the interval has zero in it."
        f"</p>{''.join(_claim(judgement) for judgement in judgements)}</section>"
    )


def _claim(judgement: Judgement) -> str:
    claim, count = judgement.claim, len(judgement.findings)
    note = f' <span class="quiet">{in_html(claim.note)}</span>' if claim.note else ""
    heads = (
        "<tr><th>check</th><th>ours</th><th>95 % interval</th><th>paper</th><th>n</th><th>verdict</th></tr>"
    )
    checks = table_of([heads], [_row(finding) for finding in judgement.findings])
    opened = " open" if count <= FEW else ""
    return (
        f'<div class="claim">{_badge(judgement.verdict)}<div>{in_html(claim.text)} '
        f'<span class="quiet">{escape(claim.source)}.</span>{note}'
        f"<details{opened}><summary>{count} check{'s' * (count > 1)}</summary>{checks}</details></div></div>"
    )


def _badge(verdict: str) -> str:
    kind = "yes" if verdict.startswith("holds") else "no" if verdict == FAILS else ""
    return f'<span class="verdict {kind}">{escape(verdict)}</span>'


def _row(finding: Finding) -> str:
    check = f'<th scope="row"><code>{escape(finding.check.text)}</code></th>'
    d = finding.difference
    if d is None:
        return f'<tr>{check}<td colspan="5"><small>{finding.verdict}</small></td></tr>'
    interval = f"[{signed(d.low, 1)}, {signed(d.high, 1)}]" if d.low != d.high else ""
    return (
        f"<tr>{check}<td>{signed(d.mean)}</td><td>{interval}</td><td>{signed(finding.paper, 1)}</td>"
        f"<td>{d.n}</td><td>{escape(finding.verdict)}</td></tr>"
    )
