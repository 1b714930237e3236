"""`everlearn check`: whether a learner of your own keeps what every learner of the library promises."""

from __future__ import annotations

import dataclasses
import json
import traceback
from collections.abc import Sequence
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from everlearn.cli import SHOWS_CALLS
from everlearn.cli.flags import in_one_sentence
from everlearn.core.settings import TYPE_NAMES, Settings, settings_types
from everlearn.messages import either, nearest

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

    from everlearn.learners import find
    from everlearn.testing import outcomes
    from everlearn.testing.samples import subject_of

    flags = in_one_sentence(lambda: tyro.cli(CheckFlags, args=words, prog="everlearn check"))
    kind = find(flags.learner)
    # Wrong options are a mistake, not a promise that is broken.
    subject = subject_of(kind, flags.network, _settings(flags.learner, kind.Settings, flags.set))
    console = Console(highlight=False)
    done: list[Outcome] = []
    for outcome in outcomes(subject):
        done.append(outcome)
        if not flags.json:
            mark = "[red]✗[/]" if outcome.failure else ("–" if outcome.reason else "[green]✓[/]")
            console.print(f"{mark} {outcome.promise}", soft_wrap=True)
            if outcome.why:
                console.print(f"  {outcome.why}", markup=False, soft_wrap=True)
        if outcome.failure and SHOWS_CALLS.get():
            traceback.print_exception(outcome.failure)
    broken = [outcome for outcome in done if outcome.failure]
    if flags.json:
        print(json.dumps({"learner": flags.learner, "checks": [_as_json(outcome) for outcome in done]}))
    else:
        other = sum(outcome.reason is not None for outcome in done)
        kept = len(done) - len(broken) - other
        console.print(f"{flags.learner}: {kept} kept, {len(broken)} broken, {other} that do not apply")
    return 1 if broken else 0


def _settings(learner: str, settings: type[Settings], words: Sequence[str]) -> dict[str, Any]:
    """The settings in words such as `hidden=8`.

    >>> _settings("cope", Settings, ["hidden=8", "learning_rate=1e-2", "unknown=none"])
    {'hidden': 8, 'learning_rate': 0.01, 'unknown': None}
    """
    types, known = settings_types(settings), list(settings.__dataclass_fields__)  # type: ignore[arg-type]
    values = {}
    for word in words:
        name, _, text = word.partition("=")
        if not name or not text:
            raise ValueError(f"--set takes NAME=VALUE, not {word!r}")
        if name not in known:
            raise ValueError(f"{learner} has no setting {name!r}{nearest(name, known)}")
        try:
            values[name] = _value(text, types.get(name, (str,)))
        except ValueError:
            expected = either([TYPE_NAMES[kind] for kind in types[name]])
            raise ValueError(f"--set takes NAME=VALUE, not {word!r}: {name} is {expected}") from None
    return values


def _value(text: str, types: tuple[type, ...]) -> Any:
    """The text as one of these types; a ValueError if it is none of them."""
    if NoneType in types and (text == "None" or (text == "none" and str not in types)):
        return None
    if bool in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float, str):
        if kind in types:
            return kind(text)
    raise ValueError


def _as_json(outcome: Outcome) -> dict[str, object]:
    kept = False if outcome.failure else (None if outcome.reason else True)
    return {"promise": outcome.promise, "kept": kept, "why": outcome.why}
