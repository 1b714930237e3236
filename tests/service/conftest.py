"""What several tests of the service need."""

import pytest


@pytest.fixture(scope="module")
def kafka():
    """A producer with a mock cluster of librdkafka's own; and the address of a broker."""
    confluent = pytest.importorskip(
        "confluent_kafka", reason="no client of Kafka: pip install 'everlearn[streams]'"
    )
    producer = confluent.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused:1"})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    return producer, f"{broker.host}:{broker.port}"
