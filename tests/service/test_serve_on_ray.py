"""The service on a Ray cluster of two local nodes: the learner's worker is killed under load, and nothing is lost."""

import json
import os
import signal
import socket
import threading
import time
from functools import partial

import httpx
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
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 2, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    cluster.add_node(**node)
    ray.init(address=cluster.address, namespace="everlearn", log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def wait_until(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def metrics(url):
    return httpx.get(f"{url}/metrics").text


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_killed_learner_comes_back_and_nothing_acknowledged_is_lost(cluster, kafka, tmp_path):
    import ray
    from river.drift import DummyDriftDetector

    from everlearn.service.on_ray import APP, actor_name, serve_on_ray, stop_on_ray

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, acknowledged, stop = f"http://127.0.0.1:{port}", [], threading.Event()
    producer, broker = kafka
    messages = 0

    def produce(count):
        nonlocal messages
        for i in range(count):
            producer.produce("on-ray", json.dumps({"x": X[i % 4].tolist(), "y": Y[i % 4]}))
        producer.flush(10)
        messages += count

    def applied():
        return client.status()["consumer"]["applied"]

    produce(7)
    serve_on_ray(
        {"model": tmp_path / "model"},
        small(),
        port=port,
        replicas=2,
        drift=partial(DummyDriftDetector, trigger_method="fixed", t_0=4),
        sources={"model": f"kafka://{broker}/on-ray"},
        batch_size=2,
    )
    client = Client(url, retries=20)
    client.observe(X, Y)
    assert sorted(client.status()["classes"]) == Y
    assert client.input()["missing_labels"] == "refuse"
    assert set(client.predict(X, min_position=client.position)) <= set(Y)
    with pytest.raises(ValueError, match="but the network takes"):
        client.predict(np.zeros((1, 9), np.float32))

    def learn():
        with Client(url, retries=50) as other:
            while not stop.is_set():
                other.observe(X, Y)
                acknowledged.append(4)

    client.ask(list(range(4)), X)
    client.tell(list(range(4)), Y)
    assert client.status()["alarms"] == 1  # the detector's, at the fourth answer
    wait_until(lambda: applied() == 7)
    threads = [threading.Thread(target=learn) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 30:
        time.sleep(0.01)
    actor = ray.get_actor(actor_name("model"), namespace=APP)
    first = ray.get(actor.process.remote())
    produce(20)
    os.kill(first, signal.SIGKILL)
    produce(9)
    at_the_kill = len(acknowledged)
    assert len(client.predict(X)) == 4  # predictions go on
    wait_until(lambda: len(acknowledged) >= at_the_kill + 30)
    stop.set()
    for thread in threads:
        thread.join()
    assert ray.get(actor.process.remote()) != first
    learnt = 8 + sum(acknowledged) + messages  # neither lost nor applied twice
    wait_until(lambda: client.status()["samples"] >= learnt)
    assert client.status()["samples"] == learnt
    assert f'everlearn_consumed_messages_total{{model="model"}} {applied()}' in metrics(url)
    client.close()
    stop_on_ray(["model"])
    with open_live(tmp_path / "model") as live:
        assert live.learner.samples == learnt
        assert sum(live.sources[f"kafka://{broker}/on-ray"].values()) == messages
