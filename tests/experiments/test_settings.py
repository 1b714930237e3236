"""The settings of every learner on every benchmark, as data."""

import dataclasses
import re
from importlib.resources import files

import pytest

from everlearn.experiments.settings import (
    benchmark_settings,
    check_settings,
    inherited_settings,
    read_benchmark,
    settings_in_force,
)
from everlearn.learners.reservoir import Reservoir, ReservoirSettings

BENCHMARK_MISTAKES = {
    "x.toml: there is no variant 'balance'": "[balance.cope]\n",
    "x.toml, [balanced.cop]: there is no learner 'cop'; did you mean 'cope'?": "[balanced.cop]\n",
    "x.toml, [balanced.cope]: cope has no setting 'memory'": "[balanced.cope]\nmemory = 3",
    "x.toml, [balanced.cope]: there is no network 'mpl'": '[balanced.cope]\nnetwork = "mpl"',
    "x.toml, [balanced.gss]: memory_size must be a whole number, not 2.5": "[balanced.gss]\nmemory_size = 2.5",
    "x.toml, [balanced.cope]: momentum must be between 0 and 1, not 3": "[balanced.cope]\nmomentum = 3",
    "x.toml, [balanced.cope]: iterations must be a whole number, not True": "[balanced.cope]\niterations = true",
}


@pytest.mark.parametrize("sentence", BENCHMARK_MISTAKES)
def test_a_benchmark_with_what_is_no_setting_is_refused(sentence):
    with pytest.raises(ValueError) as caught:
        read_benchmark(BENCHMARK_MISTAKES[sentence], "x.toml")
    assert sentence in str(caught.value)


PAPER = files("everlearn.experiments").joinpath("benchmarks")
BENCHMARKS = sorted(file.name for file in PAPER.iterdir() if file.name.endswith(".toml"))
SETTING = re.compile(r"(\w+) = (.*?)\s*(?:# (\w+)(?:[, ].*)?)?$")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_setting_has_a_source_that_the_head_of_its_file_explains(name):
    head, *tables = PAPER.joinpath(name).read_text("utf-8").split("\n[")
    for table in tables:
        for line in filter(None, table.splitlines()[1:]):
            source = SETTING.fullmatch(line)[3]
            explained = source is not None and re.search(rf"\b{source}(?: NAME)?, ", head)
            assert explained, f"{name}, [{table.splitlines()[0]}: {line}"


@pytest.mark.parametrize("name", ["split-digits", "split-fashion-mnist"])
def test_what_is_said_to_be_as_on_split_mnist_is(name):
    for table in PAPER.joinpath(f"{name}.toml").read_text("utf-8").split("\n[")[1:]:
        variant, learner = table.splitlines()[0].replace('"', "").rstrip("]").split(".", 1)
        here, there = (
            settings_in_force(learner, stream, variant == "imbalanced", {})
            for stream in (name, "split-mnist")
        )
        for setting, _, source in (
            SETTING.fullmatch(line).groups() for line in table.splitlines()[1:] if line
        ):
            if source == "N":
                assert here[setting] == there[setting], (name, variant, learner, setting)


def test_the_low_capacity_streams_have_the_settings_of_the_imbalanced_ones():
    for name in ("split-mnist", "split-cifar10"):
        assert benchmark_settings("cope", f"{name}-mini", False) == benchmark_settings("cope", name, True)


class Mine(Reservoir):
    """A method of one's own that changes nothing."""

    name = "mine"


@dataclasses.dataclass(frozen=True)
class LouderSettings(ReservoirSettings):
    """Another learning rate."""

    learning_rate: float = 0.5


class Louder(Mine):
    """A method with a learning rate of its own."""

    Settings = LouderSettings


@pytest.mark.parametrize("imbalanced", [False, True])
def test_a_class_of_ones_own_has_the_settings_of_the_learner_that_it_is_made_from(imbalanced):
    theirs = benchmark_settings("reservoir", "split-mnist", imbalanced)
    assert theirs["memory_size"] < 2001
    assert inherited_settings(Mine, "split-mnist", imbalanced) == theirs
    assert benchmark_settings(f"{__name__}:Mine", "split-mnist", imbalanced) == theirs


def test_a_setting_that_a_class_of_ones_own_defines_is_not_the_benchmarks():
    theirs = benchmark_settings("reservoir", "split-mnist", False)
    assert inherited_settings(Louder, "split-mnist", False) == {
        name: value for name, value in theirs.items() if name != "learning_rate"
    }


def test_a_learner_of_the_library_has_only_settings_of_its_own():
    assert benchmark_settings("mose", "split-mnist", False) == {}
    assert inherited_settings(Mine, "no-such-stream", False) == {}


def test_a_network_is_named_by_a_text():
    with pytest.raises(ValueError, match="network is a name, such as mlp or module:function, not 3"):
        check_settings("cope", {"network": 3})
