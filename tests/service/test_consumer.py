"""Messages from Redis Streams and Kafka: each is applied exactly once, across kills."""

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
from running import small

from everlearn import open_live
from everlearn.service.consumer import Consumer
from everlearn.service.sources import KafkaSource, RedisSource, SourceError, open_source

pytestmark = pytest.mark.services

PATIENCE = 60.0


def wait_until(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    """A real Redis server; yields its port."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("no Redis here: `apt-get install redis-server`")
    pytest.importorskip("redis", reason="no client of Redis here: pip install 'everlearn[streams]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [binary, "--port", str(port), "--save", "", "--dir", str(tmp_path_factory.mktemp("redis"))]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def stream(redis_server, request):
    """A client of Redis, and the address of a stream of this test's own."""
    import redis

    client = redis.Redis(port=redis_server, retry_on_error=[redis.ConnectionError])
    wait_until(lambda: _answers(client))
    yield client, f"redis://127.0.0.1:{redis_server}/{request.node.name}"
    client.close()


def _answers(client):
    try:
        return client.ping()
    except Exception:
        return False


def send(stream, **fields):
    client, url = stream
    client.xadd(url.rpartition("/")[2], {name: json.dumps(value) for name, value in fields.items()})


def samples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (count,), generator=generator)
    return (torch.randn(count, 4, generator=generator) + 3 * y[:, None]).tolist(), y.tolist()


def test_messages_are_observed_as_a_plain_learner_would(stream, tmp_path):
    x, y = samples(47)
    for sample, label in zip(x, y, strict=True):
        send(stream, x=sample, y=label)
    with open_live(tmp_path / "folder", small()) as live:
        consumer = Consumer(live, open_source(stream[1]), batch_size=10)
        consumer.start()
        wait_until(lambda: consumer.applied == 47)
        consumer.close()
        plain = small()
        for start in range(0, 47, 10):
            plain.observe(torch.tensor(x[start : start + 10]), y[start : start + 10])
        state, expected = live.learner.state_dict(), plain.state_dict()
        assert all(torch.equal(state[key], expected[key]) for key in expected if key != "meta")
        assert live.sources[stream[1]] == consumer.status()["position"]


def test_questions_and_late_labels(stream, tmp_path):
    send(stream, x=[1.0, 0.0], y="left")
    send(stream, x=[0.0, 1.0], y="right", id="known")
    send(stream, x=[1.0, 0.1], id="first")
    send(stream, x=[0.9, 0.0], id="second")
    send(stream, y="left", id="second")
    with open_live(tmp_path / "folder", small()) as live:
        consumer = Consumer(live, open_source(stream[1]))
        consumer.start()
        wait_until(lambda: consumer.applied == 5)
        assert (live.learner.samples, list(live.learner.waiting.samples)) == (3, ["first"])
        assert live.status()["told"] == 1
        send(stream, y="left", id="first")
        wait_until(lambda: consumer.applied == 6)
        consumer.close()
        assert live.learner.samples == 4
        assert live.position == 5  # one observed without and one with an id, two asked, one told, one told


def test_a_message_that_is_wrong_is_skipped_and_the_others_are_learnt(stream, tmp_path):
    client, url = stream
    name = url.rpartition("/")[2]
    send(stream, x=[1.0, 0.0], y="a")
    for fields in ({"x": "[1]", "y": "a"}, {"x": "words", "y": "a"}, {"y": "a"}, {"x": "[NaN, 1]", "y": "a"}):
        client.xadd(name, fields)
    send(stream, x=[0.0, 1.0], y={"no": "label"})
    send(stream, x=[0.0, 1.0], y="b")
    with open_live(tmp_path / "folder", small()) as live:
        consumer = Consumer(live, open_source(url))
        consumer.start()
        wait_until(lambda: consumer.applied + consumer.skipped == 7)
        consumer.close()
        assert (live.learner.samples, live.classes, consumer.skipped) == (2, ["a", "b"], 5)
        assert "not a label" in consumer.status()["last_skipped"]


def test_a_source_that_is_away_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.service.consumer.PAUSE", 0.01)
    with open_live(tmp_path / "folder", small()) as live:
        consumer = Consumer(live, open_source("redis://127.0.0.1:9/nothing"))
        consumer.start()
        wait_until(lambda: consumer.error is not None)
        consumer.close()
        assert "redis://127.0.0.1:9/nothing can't be read" in consumer.status()["error"]


@pytest.mark.parametrize("url", ["http://host/stream", "redis://host", "kafka:///topic", "stream"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="a source is redis://host:port/stream or kafka"):
        open_source(url)


CHILD = """
import sys, time
from everlearn import CoPE, open_live
from everlearn.service.consumer import Consumer
from everlearn.service.sources import open_source

live = open_live(sys.argv[1], CoPE("mlp", memory_size=20, hidden=16, device="cpu"), snapshot_every=7)
consumer = Consumer(live, open_source(sys.argv[2]), batch_size=3)
consumer.start()
print("started", flush=True)
time.sleep(600)
"""


def test_every_message_is_applied_once_across_kills(stream, tmp_path):
    x, y = samples(600, seed=1)
    sent = 0
    chance = random.Random(0)
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "folder"), stream[1]], stdout=subprocess.PIPE
        )
        assert child.stdout.readline() == b"started\n"
        end = time.monotonic() + chance.uniform(0.05, 0.4)
        while time.monotonic() < end and sent < 500:
            send(stream, x=x[sent], y=y[sent], id=sent)
            sent += 1
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    for i in range(sent, 600):
        send(stream, x=x[i], y=y[i], id=i)
    with open_live(tmp_path / "folder") as live:
        before = live.learner.samples
        consumer = Consumer(live, open_source(stream[1]), batch_size=50)
        consumer.start()
        wait_until(lambda: live.learner.samples >= 600)
        consumer.close()
        assert consumer.applied == 600 - before
        assert live.learner.samples == 600
        assert live.status()["learnt"] == {label: y.count(label) for label in range(3)}


def test_a_topic_is_read_from_the_position_in_the_journal(kafka, tmp_path):
    producer, broker = kafka
    x, y = samples(60)
    for i in range(60):
        producer.produce("readings", json.dumps({"x": x[i], "y": y[i]}), partition=i % 2)
    producer.produce("readings", b"no JSON", partition=0)
    producer.flush(10)
    for expected in (60, 80):
        with open_live(tmp_path / "folder", None if expected == 80 else small()) as live:
            before = live.learner.samples
            consumer = Consumer(live, KafkaSource(broker, "readings"))
            consumer.start()
            wait_until(lambda live=live, expected=expected: live.learner.samples >= expected)
            consumer.close()
            assert consumer.applied == expected - before
            assert live.learner.samples == expected
            assert sum(live.sources[f"kafka://{broker}/readings"].values()) in (expected, expected + 1)
        for i in range(20):
            producer.produce("readings", json.dumps({"x": x[i], "y": y[i]}), partition=i % 2)
        producer.flush(10)


def test_a_source_of_redis_raises_an_error_in_words():
    with pytest.raises(SourceError, match="can't be read"):
        RedisSource("redis://127.0.0.1:9/nothing").read(None, 1, 0.1)
