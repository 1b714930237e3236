"""The checks of a learner: each fails for a learner that breaks its promise, and for no other reason."""

import ast
import json
from pathlib import Path

import pytest
import torch
from broken_learners import BROKEN, Gambling, LacksKey, NewSum, ReadsEagerly, SumInPlace
from torch import nn

from everlearn import CoPE, Finetune, testing
from everlearn.cli import main
from everlearn.learners.reservoir import Reservoir
from everlearn.testing import CHECKS, Subject, check_learner

BY_NAME = {check.__name__: check for check in CHECKS}


@pytest.mark.parametrize(("check", "kind", "said"), BROKEN)
def test_a_learner_that_breaks_a_promise_fails_its_check(check, kind, said):
    with pytest.raises((AssertionError, IndexError, ValueError), match=said):
        BY_NAME[check](Subject(kind))


def test_every_check_has_a_learner_that_fails_it():
    assert {check for check, _, _ in BROKEN} == BY_NAME.keys()


@pytest.mark.parametrize("kind", [Reservoir, NewSum, Finetune, ReadsEagerly])
def test_a_learner_that_keeps_them_passes(kind):
    check_learner(kind)


def test_what_rejects_samples_or_embeds_them_as_they_are_passes():
    check_learner(CoPE, "identity")
    check_learner(CoPE, unknown=0.05)


def test_python_does_not_skip_a_check_when_it_optimises():
    for file in Path(testing.__file__).parent.glob("*.py"):
        assert not [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Assert)]


def test_the_global_generator_is_as_before():
    before = torch.get_rng_state()
    check_learner(Reservoir)
    with pytest.raises(AssertionError, match="draws from the global generator"):
        check_learner(Gambling)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_first_broken_promise_is_raised_with_the_class_and_the_part():
    with pytest.raises(AssertionError, match=r"SumInPlace: A step that fails .* changed the state: total"):
        check_learner(SumInPlace)


def test_an_error_is_raised_with_its_type_and_its_place():
    with pytest.raises(
        AssertionError, match=r"KeyError: 'means' \(.*broken_learners.py, line \d+, in step\)"
    ):
        check_learner(LacksKey)


def test_a_network_of_ones_own_is_made_anew_for_each_check():
    made = []

    def network():
        made.append(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)))
        return made[-1]

    check_learner(Reservoir, network, learning_rate=0.01)
    assert len(made) > 20


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        ((Reservoir,), {"learning_rate": -1}, "learning_rate must be above 0, not -1"),
        (
            (Reservoir,),
            {"learning_rat": 1},
            "Reservoir has no setting 'learning_rat'; did you mean 'learning",
        ),
        ((Finetune,), {"memory_size": 10}, "Finetune has no setting 'memory_size'"),
        (("reservoir",), {}, "takes the class of a learner, not 'reservoir'"),
        ((Reservoir(),), {}, "the class of a learner, not an object of Reservoir: give Reservoir itself"),
        ((nn.Linear,), {}, "takes a subclass of everlearn.Learner that sets `name`, not Linear"),
        ((Reservoir, nn.Linear(6, 4)), {}, "a function that makes a module, .* not an object of Linear"),
        ((Reservoir, lambda: 3), {}, "a network is a name or an nn.Module, not 3"),
        ((Reservoir, "cnn"), {}, "cnn takes images"),
    ],
)
def test_wrong_arguments_are_refused_at_the_start(arguments, settings, said):
    with pytest.raises((TypeError, ValueError), match=said):
        check_learner(*arguments, **settings)


def test_the_command_lists_every_promise_and_fails_if_one_is_broken(capsys):
    assert main(["check", "broken_learners:Hoarder"]) == 1
    printed = capsys.readouterr().out
    assert "✓ Prediction changes nothing.\n" in printed
    assert (
        "✗ A batch that is revisited is neither stored nor counted.\n  revisit changed the state: memory."
        in printed
    )
    assert f"broken_learners:Hoarder: {len(CHECKS) - 1} kept, 1 broken, 0 that do not apply" in printed


def test_the_command_as_json(capsys):
    assert main(["check", "finetune", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["learner"] == "finetune" and len(told["checks"]) == len(CHECKS)
    by_promise = {check["promise"]: check for check in told["checks"]}
    assert by_promise["Prediction changes nothing."] == {
        "promise": "Prediction changes nothing.",
        "kept": True,
        "why": None,
    }
    assert by_promise["Images of bytes are kept as bytes."]["kept"] is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LacksKey", "KeyError: 'means' ("),
        ("BareAssert", "AssertionError ("),
        ("Closed", "IndexError: no room ("),
    ],
)
def test_an_error_in_ones_own_code_is_shown_with_its_place(name, said, capsys):
    assert main(["check", f"broken_learners:{name}", "--json"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    for why in (check["why"] for check in checks if check["kept"] is False):
        assert why.startswith(said) and "broken_learners.py, line " in why


def test_traceback_shows_all_calls(capsys):
    for words, shown in (([], False), (["--traceback"], True)):
        assert main(["check", "broken_learners:Closed", *words]) == 1
        calls = 'raise IndexError("no room")\nIndexError: no room\n'
        assert (calls in capsys.readouterr().err) == shown


def test_a_network_of_ones_own_by_name(capsys):
    assert main(["check", "reservoir", "--network", "broken_learners:small_network"]) == 0
    assert "– Images of bytes are kept as bytes.\n  its network is your own" in capsys.readouterr().out


def test_a_setting_is_read_by_its_type(capsys):
    words = ["hidden=8", "learning_rate=1e-2", "unknown=none", "mirrored=false", "augmentation=none"]
    assert main(["check", "reservoir", "--set", *words]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["copee"], "there is no learner 'copee'; did you mean 'cope'?"),
        (["cope", "--set", "hidden=-3"], "hidden must be at least 1, not -3"),
        (
            ["cope", "--set", "hidden=8:16"],
            "--set takes NAME=VALUE, not 'hidden=8:16': hidden is a whole number",
        ),
        (
            ["cope", "--set", "hidden=8,16"],
            "--set takes NAME=VALUE, not 'hidden=8,16': hidden is a whole number",
        ),
        (
            ["cope", "--set", "blend=maybe"],
            "--set takes NAME=VALUE, not 'blend=maybe': blend is True or False",
        ),
        (["cope", "--set", "hidden"], "--set takes NAME=VALUE, not 'hidden'\n"),
        (["cope", "--set", "hiden=3"], "cope has no setting 'hiden'; did you mean 'hidden'?"),
        (["cope", "--network", "mpl"], "there is no network 'mpl'; did you mean 'mlp'?"),
        (["cope", "--network", "cnn"], "cnn takes images of shape"),
        (["cope+", "--set", "turned=0.5"], "the setting `turned` takes images"),
        (["cope", "--network", "broken_learners:Hoarder"], "must return an nn.Module, not Hoarder"),
        (["broken_learners:OneSample"], "ValueError: one sample at a time ("),
    ],
)
def test_a_mistake_is_one_sentence(words, said, capsys):
    assert main(["check", *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out
