"""The service on a Ray cluster of two local nodes: the learner's worker is killed under load, and nothing is lost."""

import os
import signal
import socket
import threading
import time

import numpy as np
import pytest
from running import small

from everlearn import Client, open_live

pytest.importorskip("ray.serve", reason="no Ray Serve here: pip install 'everlearn[serve-ray]'")

pytestmark = pytest.mark.services

X = np.eye(4, dtype=np.float32)
Y = ["a", "b", "c", "d"]
PATIENCE = 120.0


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes on this machine."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, namespace="everlearn", log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_killed_learner_comes_back_and_nothing_acknowledged_is_lost(cluster, tmp_path):
    import ray

    from everlearn.service.on_ray import APP, actor_name, serve_on_ray, stop_on_ray

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, acknowledged, stop = f"http://127.0.0.1:{port}", [], threading.Event()
    serve_on_ray({"model": tmp_path / "model"}, small(), port=port, replicas=2)
    client = Client(url, retries=20)
    client.observe(X, Y)
    assert sorted(client.status()["classes"]) == Y
    assert set(client.predict(X, min_position=client.position)) <= set(Y)
    with pytest.raises(ValueError, match="but the network takes"):
        client.predict(np.zeros((1, 9), np.float32))

    def learn():
        with Client(url, retries=50) as other:
            while not stop.is_set():
                other.observe(X, Y)
                acknowledged.append(4)

    threads = [threading.Thread(target=learn) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 30:
        time.sleep(0.01)
    actor = ray.get_actor(actor_name("model"), namespace=APP)
    first = ray.get(actor.process.remote())
    os.kill(first, signal.SIGKILL)
    at_the_kill = len(acknowledged)
    assert len(client.predict(X)) == 4  # predictions go on
    end = time.monotonic() + PATIENCE
    while len(acknowledged) < at_the_kill + 30:
        assert time.monotonic() < end, "the learner does not come back"
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert ray.get(actor.process.remote()) != first
    assert client.status()["samples"] == 4 + sum(acknowledged)  # neither lost nor applied twice
    client.close()
    stop_on_ray(["model"])
    with open_live(tmp_path / "model") as live:
        assert live.learner.samples == 4 + sum(acknowledged)
