"""`everlearn check`: whether a learner of your own keeps what every learner of the library promises."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import tyro

from everlearn.cli.flags import in_one_sentence

if TYPE_CHECKING:
    from everlearn.testing import Outcome

__all__ = ["CheckFlags", "command"]


@dataclasses.dataclass(frozen=True)
class CheckFlags:
    """Check that a learner keeps what every learner of the library promises.

    It resumes to the bit, a failed batch changes nothing, predictions change nothing, and so on: in small, on samples
    of six numbers, in a few seconds.
    """

    learner: tyro.conf.Positional[str]
    """the learner, by name; your own is module:Class"""
    network: str = "mlp"
    """a name, or your own as module:function"""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE…")] = ()
    """settings of the learner, beside those that make it small"""
    json: bool = False
    """print one JSON object and nothing else"""


def command(words: list[str]) -> int:
    """Run all checks; returns 1 if a promise is not kept."""
    from rich.console import Console

    from everlearn.experiments.search_space import parse_space
    from everlearn.learners import find
    from everlearn.testing import SMALL, Subject, outcomes

    flags = in_one_sentence(lambda: tyro.cli(CheckFlags, args=words, prog="everlearn check"))
    given = {name: choice.options[0] for name, choice in parse_space(flags.learner, flags.set).items()}
    subject = Subject(find(flags.learner), flags.network, {**SMALL} | given)
    subject.make()  # wrong settings are a mistake, not a promise that is broken
    console = Console(highlight=False)
    done: list[Outcome] = []
    for outcome in outcomes(subject):
        done.append(outcome)
        if not flags.json:
            mark = "[red]✗[/]" if outcome.failure else ("–" if outcome.reason else "[green]✓[/]")
            console.print(f"{mark} {outcome.promise}", soft_wrap=True)
            if outcome.failure or outcome.reason:
                console.print(f"  {_said(outcome)}", markup=False, soft_wrap=True)
    broken = [outcome for outcome in done if outcome.failure]
    if flags.json:
        print(json.dumps({"learner": flags.learner, "checks": [_as_json(outcome) for outcome in done]}))
    else:
        other = sum(outcome.reason is not None for outcome in done)
        kept = len(done) - len(broken) - other
        console.print(f"{flags.learner}: {kept} kept, {len(broken)} broken, {other} that do not apply")
    return 1 if broken else 0


def _said(outcome: Outcome) -> str:
    """Why it is broken, or does not apply, in one line."""
    failure = outcome.failure
    if failure is None:
        return outcome.reason or ""
    said = str(failure) if isinstance(failure, AssertionError) else f"{type(failure).__name__}: {failure}"
    return " ".join(said.split())


def _as_json(outcome: Outcome) -> dict[str, object]:
    kept = False if outcome.failure else (None if outcome.reason else True)
    return {"promise": outcome.promise, "kept": kept, "why": _said(outcome) or None}
