"""How long jobs take, where nobody has measured it: by the images that pass the network."""

import pytest

from everlearn.experiments import estimate
from everlearn.experiments.job import Job


def job(learner, **settings):
    return Job(learner, "split-digits", 0, device="cpu", settings={"network": "slim-resnet18", **settings})


@pytest.fixture(autouse=True)
def table(monkeypatch):
    rates = {"core": {"slim-resnet18": {"reservoir": 50.0, "images": 200.0}, "mlp": {"cope": 1.0}}}
    monkeypatch.setattr(estimate, "_table", lambda: rates)


def test_a_learner_that_is_not_listed_takes_as_long_as_its_images_do():
    er_ace = job("er-ace", replayed=30, iterations=2)  # 2 · (10 + 30) / 10 images for each new one
    assert estimate.seconds(er_ace, {}) == pytest.approx(er_ace.passes() * 8 / 200)


def test_a_listed_rate_and_an_earlier_run_come_first():
    listed = job("reservoir", iterations=2)
    assert estimate.seconds(listed, {}) == pytest.approx(listed.passes() * 2 / 50)
    earlier = {("er-ace", "split-digits", estimate.hardware("cpu")): [10.0]}
    assert estimate.seconds(job("er-ace", iterations=1), earlier) == pytest.approx(listed.passes() / 10)


def test_what_does_not_train_with_each_batch_has_no_estimate():
    assert estimate.seconds(job("gdumb"), {}) is None


def test_a_network_without_a_rate_has_no_estimate():
    assert estimate.seconds(job("er-ace", network="mlp"), {}) is None
