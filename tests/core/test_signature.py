"""Settings as real parameters."""

import dataclasses
import inspect

import pytest

from everlearn import CoPE
from everlearn.core.learner import Learner, Settings
from everlearn.learners import registry


@pytest.mark.parametrize("name", sorted(registry()))
def test_every_setting_is_a_parameter_with_its_default_type_and_description(name):
    kind = registry()[name]
    parameters = inspect.signature(kind).parameters
    assert list(parameters)[:3] == ["network", "seed", "device"]
    for field in dataclasses.fields(kind.Settings):
        assert parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[field.name].default == field.default
        assert parameters[field.name].annotation is not inspect.Parameter.empty
        assert f"    {field.name}: " in kind.__doc__


def test_the_docstring_begins_as_it_is_written():
    written = inspect.getsource(CoPE).split('"""')[1]
    assert CoPE.__doc__.splitlines()[0] == written.splitlines()[0]


def test_a_learner_whose_settings_name_types_of_its_own_function_can_be_defined():
    class Local:
        pass

    @dataclasses.dataclass(frozen=True)
    class OwnSettings(Settings):
        kind: "Local | None" = None

    class Own(Learner):
        Settings = OwnSettings

        def step(self, x, slots, *replay):
            """Nothing."""

    assert inspect.signature(Own).parameters["kind"].default is None
