"""The claims of the paper on the page, each with its verdict and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from everlearn.paper.claims import FAILS, Finding, Judgement
from everlearn.paper.report.formatting import in_html, signed
from everlearn.paper.report.provenance import check_anchor
from everlearn.paper.report.tables import head, table_of

__all__ = ["claims_section"]

FEW = 3
"""Checks that are shown unfolded."""


def claims_section(judgements: Sequence[Judgement]) -> str:
    """All claims on which there are runs."""
    return (
        '<section id="claims"><h2>What the paper says, checked</h2><p>Claims of its text on which there are runs. '
        "A claim holds where the 95 % interval of the difference, paired over seeds, lies above zero; by more or by "
        "less, where the paper's number lies outside the interval; it is unclear where the interval has zero in it."
        f"</p>{''.join(_claim(place, judgement) for place, judgement in enumerate(judgements))}</section>"
    )


def _claim(place: int, judgement: Judgement) -> str:
    claim, count = judgement.claim, len(judgement.findings)
    note = f' <span class="quiet">{in_html(claim.note)}</span>' if claim.note else ""
    heads = "".join(map(head, ("check", "ours", "95 % interval", "paper", "n", "verdict")))
    rows = [_row(check_anchor(place, row), finding) for row, finding in enumerate(judgement.findings)]
    checks = table_of([f"<tr>{heads}</tr>"], rows)
    opened = " open" if count <= FEW else ""
    return (
        f'<div class="claim">{_badge(judgement.verdict)}<div>{in_html(claim.text)} '
        f'<span class="quiet">{escape(claim.source)}.</span>{note}'
        f"<details{opened}><summary>{count} check{'s' * (count > 1)}</summary>{checks}</details></div></div>"
    )


def _badge(verdict: str) -> str:
    kind = "yes" if verdict.startswith("holds") else "no" if verdict == FAILS else ""
    return f'<span class="verdict {kind}">{escape(verdict)}</span>'


def _row(place: str, finding: Finding) -> str:
    text, verdict = escape(finding.check.text), escape(finding.verdict)
    check = f'<th scope="row" data-value="{text}"><code>{text}</code></th>'
    d, paper = finding.difference, finding.paper
    if d is None:
        return f'<tr>{check}<td colspan="5"><small>{verdict}</small></td></tr>'
    link = f'<a href="#{place}">'
    # Intervals are sorted by where they begin.
    interval = (
        f'<td data-value="{d.low:.4f}">{link}[{signed(d.low, 1)}, {signed(d.high, 1)}]</a></td>'
        if d.low != d.high
        else '<td data-value=""></td>'
    )
    return (
        f'<tr>{check}<td data-value="{d.mean:.4f}">{link}{signed(d.mean)}</a></td>{interval}'
        f'<td data-value="{"" if paper is None else paper}">{signed(paper, 1)}</td>'
        f'<td data-value="{d.n}">{d.n}</td><td data-value="{verdict}">{verdict}</td></tr>'
    )
