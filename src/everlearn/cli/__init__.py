"""The command `everlearn`: one module per command, and `show` for tables and pictures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from importlib import import_module

import everlearn
from everlearn.messages import nearest
from everlearn.user_code import place_in_user_code

__all__ = ["SHOWS_CALLS", "main"]

# Each is a module here with a function `command`, imported when it is used.
COMMANDS = (
    "run",
    "demo",
    "tune",
    "check",
    "reproduce",
    "report",
    "data",
    "serve",
    "observe",
    "predict",
    "token",
)

TRACEBACK = "--traceback"  # with any command
SHOWS_CALLS = ContextVar(TRACEBACK, default=False)
# Errors that say in a sentence what is wrong. Others are defects of ours, unless the user's own code raised them.
MISTAKES = (OSError, ValueError, TypeError, RuntimeError, ImportError)

HELP = """\
everlearn: a classifier that never stops learning.

It learns from a labelled stream in one pass, without task boundaries, in fixed memory, with new labels
at any time, and predicts at any moment. The method is CoPE, Continual Prototype Evolution (ICCV 2021).

  everlearn demo                                   compare CoPE with finetuning, with pictures, in a minute
  everlearn run  --learner cope --stream split-mnist --seeds 5      one method on one stream
  everlearn reproduce balanced                     the paper's Table 2 beside ours; stop and resume at any time
  everlearn report                                 all runs so far on one page
  everlearn tune --learner cope --stream split-digits              settings chosen on the validation part
  everlearn check my_module:MyClass                does your own learner keep the contract of all learners?
  everlearn data list | fetch NAME | verify [NAME]                  the datasets

  everlearn serve FOLDER                           a durable learner over HTTP, with a dashboard
  everlearn observe FILE | predict FILE            send a .jsonl, .csv or .npz file to it
  everlearn token create NAME                      who may call it

Learners: {learners}
Streams:  {streams}
Experiments: {experiments} all rivals rates-P0 real-streams

  everlearn run --help                             every setting, with its default and the paper's symbol
  everlearn run --learner finetune --help          the same for another learner
  everlearn run --stream split-mnist --imbalance 3 the imbalanced variant S(T_3)
  everlearn run --json                             one JSON object, for programs
  everlearn reproduce balanced --quick             a small version on split-digits, in a minute
  everlearn reproduce balanced --dry-run           what would run, and how long it would take
  everlearn run --learner my_module:MyClass --traceback             where an error in your own code comes from

Data is read from --data-dir, $EVERLEARN_DATA or the user's cache folder. split-digits needs no download.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. A mistake of the user gives one sentence and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    traceback = TRACEBACK in words
    SHOWS_CALLS.set(traceback)
    words = [word for word in words if word != TRACEBACK]
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if words[0] == "--version":
        print(f"everlearn {everlearn.__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            raise ValueError(f"there is no command {words[0]!r}{nearest(words[0], COMMANDS)}")
        code: int = import_module(f"everlearn.cli.{words[0]}").command(words[1:])
        return code
    except KeyboardInterrupt:
        print("everlearn: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        place = place_in_user_code(error)
        if traceback or not (place or isinstance(error, MISTAKES)):
            raise
        print(f"everlearn: {_sentence(error, place)}", file=sys.stderr)
        return 2


def _sentence(error: Exception, place: str | None) -> str:
    """An error in one sentence; of the user's own code, with its place there."""
    if place is not None:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"{' '.join(said.split())} ({place}; {TRACEBACK} shows all calls)"
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{error.strerror or error}"
    return " ".join(str(error).split())


def _help() -> str:
    from everlearn import learners, streams
    from everlearn.paper.experiment import experiments

    return HELP.format(
        learners=" ".join(learners.registry()),
        streams=" ".join(streams.names()),
        experiments=" ".join(experiments()),
    )
