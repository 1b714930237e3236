"""What is known of the numbers where ours and the paper's differ, from differences.toml."""

from __future__ import annotations

import dataclasses
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Literal, get_args

__all__ = ["Difference", "Known", "Outcome", "Place", "known_differences", "outcome", "tally"]

Outcome = Literal["supported", "as released", "ruled out"]
"""supported: with the cause, a run agrees with the paper. as released: the released code, run here, does not give the
paper's number either. ruled out: a run with the cause still differs."""
Place = tuple[str, str, str]
OUTCOMES: dict[Outcome, str] = {
    "supported": "it explains {}",
    "as released": "for {} the released code, run here, does not give the paper's number either",
    "ruled out": "for {} it is ruled out",
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One reason why a number may differ. tested: what the runs that it cites say of that reason, if any."""

    text: str
    tested: Outcome | None = None

    def __post_init__(self) -> None:
        if self.tested not in (None, *get_args(Outcome)):
            raise ValueError(f"tested is {self.tested!r}; expected one of {', '.join(get_args(Outcome))}")


Known = dict[Place, list[Difference]]


def known_differences() -> Known:
    """Known reasons why a number of ours differs, by experiment, row and column."""
    content = tomllib.loads(files("everlearn.paper").joinpath("differences.toml").read_text("utf-8"))
    known: Known = {}
    for entry in content["difference"]:
        difference = Difference(entry["known"], entry.get("tested"))
        for row in entry["rows"]:
            for column in entry["columns"]:
                known.setdefault((entry["experiment"], row, column), []).append(difference)
    return known


def outcome(differences: Sequence[Difference]) -> Outcome | None:
    """The most telling outcome of the tests of one number's causes; None where there was no test.

    >>> outcome([Difference("the learning rate", "ruled out"), Difference("the seeds")])
    'ruled out'
    """
    found = {difference.tested for difference in differences}
    return next((each for each in get_args(Outcome) if each in found), None)


def tally(places: Iterable[Place], known: Known) -> str:
    """A sentence: for how many of these numbers a cause was tested, with which outcome, and how many are open.

    >>> tally([("balanced", "gem", "split-mnist")], {})
    'Of those that do not agree (1), a cause was tested for 0. Open: 1.'
    """
    counts = Counter(outcome(known.get(place, [])) for place in places)
    found = "; ".join(text.format(counts[each]) for each, text in OUTCOMES.items() if counts[each])
    tested = f"{counts.total() - counts[None]}" + (f": {found}" if found else "")
    return f"Of those that do not agree ({counts.total()}), a cause was tested for {tested}. Open: {counts[None]}."
