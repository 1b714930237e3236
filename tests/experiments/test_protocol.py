"""Protocols of the field, as data."""

import pytest

from everlearn.experiments.protocol import protocol, protocols, read_protocol
from everlearn.streams import names


@pytest.mark.parametrize("name", protocols())
def test_its_streams_exist_and_have_room_for_their_classes(name):
    used = protocol(name)
    assert set(used.memory_sizes) <= set(names())
    for stream, sizes in used.memory_sizes.items():
        assert sizes and all(size >= 100 for size in sizes)
        for learner in used.learners:
            settings = used.settings(learner, stream)
            assert settings["memory_size"] in sizes
            assert settings["network"] in ("resnet18", "slim-resnet18")


def test_in_the_fields_protocol_64_images_are_replayed_with_ten_new_ones_in_one_iteration():
    used = protocol("P1")
    assert (used.batch_size, used.class_order) == (10, "seed")
    for learner in used.learners:
        settings = used.settings(learner, "split-cifar100-10")
        assert (settings["network"], settings["replayed"]) == ("resnet18", 64)
        if learner == "cope+":  # ours: more iterations, within the images per new image of the costliest
            assert settings["iterations"] * (10 + 64) / 10 < 38.4
        if learner in ("cope+", "gdumb"):
            continue
        assert settings["iterations"] == 1
        assert settings["optimizer"] in ("adam", "adamw") and settings["learning_rate"] in (5e-4, 1e-3)


def test_a_learner_may_have_settings_for_one_stream_alone():
    used = protocol("P0")
    assert used.settings("cope+", "split-cifar10")["cutout"] == 16
    assert "cutout" not in used.settings("cope+", "split-cifar100")
    assert "split-cifar10" not in used.settings("cope+", "split-cifar100")


def test_a_setting_for_all_goes_only_to_learners_that_have_it():
    assert "outputs" not in protocol("P0").settings("scr", "split-cifar10")
    assert protocol("P0").settings("ocm", "split-cifar10")["similarity"] == 0.5
    assert "similarity" not in protocol("P0").settings("pcr", "split-cifar10")


@pytest.mark.parametrize(
    ("learner", "stream", "sentence"),
    [
        ("ocn", "split-cifar10", "the protocol P1 has no learner 'ocn'; did you mean 'ocm'"),
        ("ocm", "split-cifar100", "P1 has no stream 'split-cifar100'; did you mean 'split-cifar10'"),
    ],
)
def test_what_it_does_not_have_is_refused_in_a_sentence(learner, stream, sentence):
    with pytest.raises(ValueError, match=sentence):
        protocol("P1").settings(learner, stream)


@pytest.mark.parametrize("stream", ["split-digits", "my_module:my_stream"])
def test_on_other_streams_replay_and_optimiser_are_the_protocols_and_network_and_views_are_not(stream):
    settings = protocol("P1").settings("onpro", stream)
    assert (settings["replayed"], settings["optimizer"], settings["learning_rate"]) == (64, "adam", 5e-4)
    assert not {"network", "augmentation", "outputs", "precision", "memory_size"} & set(settings)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ValueError, match=r"there is no protocol 'P9' \(known: P0, P1, P2, P3\)"):
        protocol("P9")


def test_a_wrong_setting_in_a_file_is_named_with_its_place():
    text = """
title = "one"
batch_size = 10
class_order = "seed"
[all]
network = "resnet18"
[streams.split-cifar10]
memory_sizes = [500]
settings = { memory_size = 500 }
[learners.pcr]
temperatur = 0.1
"""
    with pytest.raises(
        ValueError, match=r"mine.toml, \[learners.pcr\] on split-cifar10: pcr has no setting 'temperatur'"
    ):
        read_protocol(text, "mine.toml")
