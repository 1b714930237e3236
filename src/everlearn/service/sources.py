"""Streams of messages that a service can consume: Redis Streams and Kafka topics.

A source is read from a position, which the live learner stores in its journal together with what it learnt. So every
message is applied exactly once, whatever is killed when; neither consumer groups nor commits are needed.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from everlearn.service.json_text import unique

__all__ = ["KafkaSource", "Message", "RedisSource", "Source", "SourceError", "open_source"]


class SourceError(RuntimeError):
    """A source can't be reached or read; it is tried again."""


class Message(NamedTuple):
    """A message. position: that of the source after it. fields: `x`, `y` and `id`; or why it can't be read."""

    position: Any
    fields: dict[str, Any] | str


class Source(Protocol):
    """A stream of messages. name: under which the position is stored."""

    name: str

    def read(self, position: Any, most: int, seconds: float) -> list[Message]:
        """The messages after a position, or from the beginning; waits so many seconds for the first."""

    def close(self) -> None:
        """Close the connection."""


def open_source(url: str) -> Source:
    """The source at `redis://host:port/stream` or `kafka://host:port/topic`."""
    parts = urlsplit(url)
    name = parts.path.strip("/")
    if parts.scheme not in ("redis", "rediss", "kafka") or not parts.hostname or not name:
        raise ValueError(f"a source is redis://host:port/stream or kafka://host:port/topic, not {url!r}")
    return KafkaSource(parts.netloc, name) if parts.scheme == "kafka" else RedisSource(url)


def _object(content: bytes) -> dict[str, Any] | str:
    """The JSON object in a message."""
    try:
        fields = json.loads(content, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return "it is not valid JSON"
    return fields if isinstance(fields, dict) else "it is not a JSON object"


class RedisSource:
    """A Redis stream whose entries have the fields x, y and id, each as JSON: `XADD name * x "[1, 2]" y cat`.

    The position is the id of the last entry.
    """

    def __init__(self, url: str) -> None:
        try:
            import redis
        except ImportError:
            raise ImportError(
                "redis:// needs the package redis: run `pip install 'everlearn[streams]'`"
            ) from None
        parts = urlsplit(url)
        self._stream = parts.path.strip("/")
        self.name = f"redis://{parts.hostname}:{parts.port or 6379}/{self._stream}"
        self._errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._redis: Any = redis.Redis.from_url(f"{parts.scheme}://{parts.netloc}")

    def read(self, position: Any, most: int, seconds: float) -> list[Message]:
        """The next entries."""
        try:
            found = self._redis.xread({self._stream: position or "0-0"}, most, max(int(1000 * seconds), 1))
        except self._errors as error:
            raise SourceError(f"{self.name} can't be read: {error}") from None
        entries = found[0][1] if found else []
        return [Message(number.decode(), self._fields(fields)) for number, fields in entries]

    @staticmethod
    def _fields(fields: dict[bytes, bytes]) -> dict[str, Any] | str:
        values: dict[str, Any] = {}
        for name, content in fields.items():
            text = content.decode(errors="replace")
            try:
                values[name.decode(errors="replace")] = json.loads(text, object_pairs_hook=unique)
            except (ValueError, RecursionError):
                values[name.decode(errors="replace")] = text  # a word
        return values

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


class KafkaSource:
    """A Kafka topic whose messages are JSON objects with the fields x, y and id.

    The position is the next offset of each partition, as a dict. New partitions are found when the service restarts.
    """

    def __init__(self, brokers: str, topic: str) -> None:
        try:
            import confluent_kafka
        except ImportError:
            words = "kafka:// needs the package confluent-kafka: run `pip install 'everlearn[streams]'`"
            raise ImportError(words) from None
        self._kafka: Any = confluent_kafka
        self._topic = topic
        self.name = f"kafka://{brokers}/{topic}"
        self._consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "everlearn",  # required, but unused: positions are in the journal
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._at: dict[str, int] | None = None  # the next offset of each partition, where the consumer is

    def read(self, position: Any, most: int, seconds: float) -> list[Message]:
        """The next messages, of all partitions."""
        wanted: dict[str, int] = dict(position or {})
        try:
            if self._at is None or any(self._at.get(key) != offset for key, offset in wanted.items()):
                self._seek(wanted)
            found = self._consumer.consume(most, seconds)
        except self._kafka.KafkaException as error:
            raise SourceError(f"{self.name} can't be read: {error}") from None
        messages: list[Message] = []
        for message in found:
            if message.error() is not None:
                self._at = None
                raise SourceError(f"{self.name} can't be read: {message.error()}")
            wanted = wanted | {str(message.partition()): message.offset() + 1}
            messages.append(Message(wanted, _object(message.value() or b"")))
        self._at = wanted
        return messages

    def _seek(self, wanted: dict[str, int]) -> None:
        known = self._consumer.list_topics(self._topic, timeout=10).topics[self._topic].partitions
        if not known:
            raise SourceError(f"{self.name} has no partition yet")
        partition = self._kafka.TopicPartition
        beginning = self._kafka.OFFSET_BEGINNING
        self._consumer.assign(
            [partition(self._topic, each, wanted.get(str(each), beginning)) for each in known]
        )

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
