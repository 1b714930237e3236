"""Runs on a real Ray cluster of two nodes, one of which is lost midway."""

import json
import subprocess
import sys
import threading
import time

import pytest

from everlearn.experiments import on_ray
from everlearn.experiments.job import Job
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.runner import execute
from everlearn.experiments.store import Store
from everlearn.paper.reproduce import plan, reproduce

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.services

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}

EXPERIMENT = """
title = "Eight runs"
seeds = 8
[[panels]]
title = "Split-Digits"
figure = "table"
all = { learner = "cope", settings = { hidden = 20, iterations = 1 } }
columns = { split-digits = { stream = "split-digits" } }
[panels.rows]
cope = {}
"""


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


# Ray leaves sockets and files of its own to the end of the process.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_node_that_is_lost_midway_loses_and_doubles_no_result(cluster, tmp_path):
    second = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    mine, path = tmp_path / "mine.toml", tmp_path / "store.sqlite"
    mine.write_text(EXPERIMENT)
    lost_after = []

    def lose() -> None:
        # When something is stored and both nodes are at work.
        while not Store(path).records() or ray.available_resources().get("CPU", 0) > 0:
            time.sleep(0.05)
        cluster.remove_node(second, allow_graceful=False)
        lost_after.append(len(Store(path).records()))

    loss = threading.Thread(target=lose)
    loss.start()
    begun = reproduce(mine, SweepOptions(store=path, device="cpu", backend="ray", address=cluster.address))
    loss.join()
    assert lost_after[0] < 8
    records = Store(path).records()
    assert sorted(record.job["seed"] for record in records) == list(range(8))
    assert [record.error for record in records] == [None] * 8
    last = next(record for record in records if record.job["seed"] == 7)
    assert last.result["accuracy"] == execute(begun.todo[7]).accuracy
    assert plan(mine, SweepOptions(store=path)).todo == ()


# Ray leaves sockets and files of its own to the end of the process.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_that_must_be_alone_has_a_node_to_itself_after_the_rest(cluster, monkeypatch):
    cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20)
    cluster.wait_for_nodes()

    def watched(job):
        begun = time.time()
        time.sleep(0.5)
        cores = ray.get_runtime_context().get_assigned_resources()["CPU"]
        return begun, time.time(), cores

    monkeypatch.setattr(on_ray, "attempt", watched)
    jobs = [Job("cope", "split-digits", seed, device="cpu", alone=seed in (0, 2)) for seed in range(5)]
    spans = dict(on_ray.on_ray(jobs, cluster.address, lambda samples: None))
    assert sorted(spans) == [0, 1, 2, 3, 4]
    for place in (0, 2):
        begun, ended, cores = spans.pop(place)
        assert cores == 2
        assert all(end <= begun or start >= ended for start, end, _ in spans.values())
        spans[place] = begun, ended, cores
    assert max(spans[place][1] for place in (1, 3, 4)) <= min(spans[place][0] for place in (0, 2))


def test_an_address_at_which_no_cluster_answers_is_said_at_once(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(EXPERIMENT)
    with pytest.raises(ConnectionError, match="no Ray cluster answers at 127.0.0.1:1 "):
        reproduce(mine, SweepOptions(store=tmp_path / "store.sqlite", backend="ray", address="127.0.0.1:1"))


MODULE = """
from everlearn import Finetune


class Hurried(Finetune):
    name = "hurried"

    def step(self, x, slots, *replay):
        for _ in range(2):
            self.fit(x, slots)
"""
SCRIPT = """
import json

import torch
from torch import nn

import everlearn
from hurried import Hurried


class Own(everlearn.Finetune):
    name = "own"


def network(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU())


def made(seed, device):
    return everlearn.CoPE(network(None), seed=seed, device=device, memory_size=20)


def blobs(seed, validation=False):
    y = torch.arange(80) % 4
    x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(4)[y]
    return everlearn.split(x, y.tolist(), tasks=2, seed=seed, validation=validation)


if __name__ == "__main__":
    for backend in ("ray", "local"):
        found = everlearn.experiment(
            {"module": Hurried, "script": Own, "function": made}, {"blobs": blobs},
            network=network, seeds=2, backend=backend, store=f"{backend}.sqlite",
        )
        rows = ("module", "script", "function")
        print(json.dumps({row: found.mean(row, "blobs", "anytime_accuracy") for row in rows}))
"""


def test_own_objects_of_a_script_and_of_its_modules_run_on_ray_as_they_do_here(tmp_path):
    (tmp_path / "hurried.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    on_ray_, here = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert on_ray_ == here and all(0 < value <= 1 for value in here.values())
