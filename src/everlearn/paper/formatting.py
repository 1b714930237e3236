"""Names and numbers as a paper prints them: in figures, HTML, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

__all__ = [
    "in_html",
    "in_latex",
    "in_math",
    "number",
    "p_value",
    "proper",
    "short",
    "signed",
    "without_formulas",
]

PROPER = {
    "cope": "CoPE",
    "cope-ce": "CoPE-CE",
    "gem": "GEM",
    "icarl": "iCaRL",
    "curl": "CURL",
    "cn-dpm": "CN-DPM",
    "mir": "MIR",
    "gss": "GSS",
    "er-ace": "ER-ACE",
    "der++": "DER++",
    "scr": "SCR",
    "pcr": "PCR",
    "gdumb": "GDumb",
    "ocm": "OCM",
    "onpro": "OnPro",
    "gsa": "GSA",
    "mose": "MOSE",
    "mkd": "MKD",
    "ccl-dc": "CCL-DC",
    "split-digits": "Split-Digits",
    "split-mnist": "Split-MNIST",
    "split-fashion-mnist": "Split-Fashion-MNIST",
    "split-cifar10": "Split-CIFAR10",
    "split-cifar100": "Split-CIFAR100",
}
NAMES = re.compile(
    rf"(?<![\w/-])(?:{'|'.join(map(re.escape, sorted(PROPER, key=len, reverse=True)))})(?![\w/.])(?!-(?!mini))"
)
SYMBOL = re.compile(r"\|?\b([A-Za-z])\|?(?:\(([A-Z])_(\d+|\w)\)|_(\w)\|?)")

LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", "−": "$-$", "–": "--", "…": r"\ldots{}",
}  # fmt: skip


def proper(name: str) -> str:
    """With learners and streams as the paper writes them.

    >>> proper("der++"), proper("cope, not renormalised"), proper("split-mnist-mini"), proper("memory 500")
    ('DER++', 'CoPE, not renormalised', 'Split-MNIST-mini', 'memory 500')
    """
    return NAMES.sub(lambda found: PROPER[found[0]], name)


def in_math(text: str) -> str:
    """With the paper's symbols set as mathematics.

    >>> in_math("S(T_10)"), in_math("memory |M_r|"), in_math("cope")
    ('$S(T_{10})$', 'memory $|M_{r}|$', 'CoPE')
    """
    plain = without_formulas(proper(text))
    return SYMBOL.sub(lambda found: f"${_subscripts(found[0], '_{', '}')}$", plain)


def without_formulas(text: str) -> str:
    """A text for a figure, of which nothing is taken for a formula.

    >>> print(without_formulas("5$ or 6$"))
    5\\$ or 6\\$
    """
    return text.replace("$", r"\$")


def in_html(text: str) -> Markup:
    """Escaped, with the paper's names and subscripts.

    >>> str(in_html("S(T_10)")), str(in_html("|B_n| < 20"))
    ('S(T<sub>10</sub>)', '|B<sub>n</sub>| &lt; 20')
    """
    escaped = str(escape(proper(text)))
    return Markup(SYMBOL.sub(lambda found: _subscripts(found[0], "<sub>", "</sub>"), escaped))


def in_latex(text: str) -> str:
    r"""Escaped for LaTeX, with the paper's names, and its symbols as mathematics.

    >>> print(in_latex("S(T_10), 5 % & cope ± 1"))
    $S(T_{10})$, 5 \% \& CoPE $\pm$ 1
    """
    text, parts, start = proper(text), [], 0
    for found in SYMBOL.finditer(text):
        parts += [_escape_latex(text[start : found.start()]), f"${_subscripts(found[0], '_{', '}')}$"]
        start = found.end()
    return "".join([*parts, _escape_latex(text[start:])])


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def _subscripts(symbol: str, before: str, after: str) -> str:
    return re.sub(r"_(\w+)", lambda found: f"{before}{found[1]}{after}", symbol)


def number(value: float | None, digits: int = 2) -> str:
    """A number as printed; a dash where there is none.

    >>> number(93.944), number(None)
    ('93.94', '–')
    """
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign; what rounds to nothing has none.

    >>> signed(0.5), signed(-1.234), signed(-0.001)
    ('+0.50', '−1.23', '0.00')
    """
    if value is None:
        return "–"
    return number(0.0, digits) if round(value, digits) == 0 else f"{value:+.{digits}f}".replace("-", "−")


def short(columns: Sequence[str]) -> list[str]:
    """Columns without the words that all of them begin with.

    >>> short(["memory 100", "memory 200"]), short(["split-mnist", "split-cifar10"])
    (['100', '200'], ['split-mnist', 'split-cifar10'])
    """
    words = [column.split(" ") for column in columns]
    shared = 0
    while len(columns) > 1 and all(
        len(w) > shared + 1 and w[: shared + 1] == words[0][: shared + 1] for w in words
    ):
        shared += 1
    return [" ".join(w[shared:]) for w in words]


def p_value(p: float) -> str:
    """A p-value in a column of such.

    >>> p_value(0.00001), p_value(0.0312)
    ('< 0.001', '0.031')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
