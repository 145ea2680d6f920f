"""The audited producer against a broker: what it publishes is what it had acknowledged, once."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from moldau.audit import AuditedProducer
from moldau.audit.comparison import latest
from moldau.audit.messages import Counts, Life, parse
from moldau.audit.tally import Tally, identity, window_of
from moldau.testing import Cluster

PAGE = Path(__file__).parents[3] / "docs" / "pipelines.md"
TIMEOUT_S = 60.0
MINUTE_MS = 60_000
BEGIN_MS = window_of(int(time.time() * 1000) - 3_600_000, MINUTE_MS)
NEVER_S = 3600.0
"""An interval that does not pass within a test."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def new_topic(servers: str) -> Callable[[], str]:
    def create(**config: str) -> str:
        name = f"orders-{time.monotonic_ns()}"
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        admin = AdminClient({"bootstrap.servers": servers})  # whose futures die with it
        admin.create_topics([NewTopic(name, 2, config=settings)])[name].result(TIMEOUT_S)
        return name

    return create


def read(servers: str, topic: str) -> list[Message]:
    """What is there, of transactions the committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,  # the end is seen between two messages, however often they come
        }
    )
    partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, ends = [], set()
    while len(ends) < len(partitions):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ends.add(message.partition())
    consumer.close()
    return found


def published(servers: str, audit_topic: str) -> tuple[list[Counts], list[Life]]:
    messages = [parse(json.loads(message.value() or b"")) for message in read(servers, audit_topic)]
    return (
        [one for one in messages if isinstance(one, Counts)],
        [one for one in messages if isinstance(one, Life)],
    )


def produced_by_window(counts: list[Counts], topic: str) -> dict[int, Tally]:
    found: dict[int, Tally] = {}
    for one in latest(counts):
        if one.topic == topic:
            found.setdefault((one.window_ms - BEGIN_MS) // MINUTE_MS, Tally()).merge(one.tally)
    return found


def held_by_window(servers: str, topic: str) -> dict[int, Tally]:
    found: dict[int, Tally] = {}
    for message in read(servers, topic):
        at_ms = message.timestamp()[1]
        minute = (window_of(at_ms, MINUTE_MS) - BEGIN_MS) // MINUTE_MS
        found.setdefault(minute, Tally()).add(identity(at_ms, message.key(), message.value()))
    return found


def new_producer(servers: str, topic: str, config: dict[str, Any] | None = None) -> AuditedProducer:
    settings = {"bootstrap.servers": servers, **(config or {})}
    return AuditedProducer(settings, name="shop", audit_topic=f"audit-of-{topic}", interval_s=NEVER_S)


def test_what_is_published_is_what_the_topic_holds_over_several_lives(
    servers: str, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    for life in range(2):
        with new_producer(servers, topic) as producer:
            for number in range(50):
                at_ms = BEGIN_MS + number % 3 * MINUTE_MS + number
                producer.produce(topic, f"{life}-{number}", key="k" if number % 2 else None, timestamp=at_ms)
            producer.produce(topic, None, key=b"", timestamp=BEGIN_MS)
            producer.produce(topic, b"", timestamp=BEGIN_MS)
    counts, lives = published(servers, f"audit-of-{topic}")
    assert produced_by_window(counts, topic) == held_by_window(servers, topic)
    assert sum(tally.count for tally in produced_by_window(counts, topic).values()) == 104
    assert len({one.origin.instance for one in counts}) == 2
    assert {(one.origin.producer, one.closed) for one in latest_lives(lives)} == {("shop", True)}


def latest_lives(lives: list[Life]) -> list[Life]:
    return list({life.key: life for life in sorted(lives, key=lambda life: life.sequence)}.values())


def test_callbacks_of_the_program_are_called_and_what_was_not_stored_is_not_counted(
    servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="2000")
    told: Counter[str] = Counter()

    def usual(error: KafkaError | None, _: Message) -> None:
        told["usual failed" if error else "usual"] += 1

    def own(error: KafkaError | None, _: Message) -> None:
        told["own failed" if error else "own"] += 1

    producer = new_producer(servers, topic, {"on_delivery": usual})
    producer.produce(topic, b"1", timestamp=BEGIN_MS)
    producer.produce(topic, b"2", None, 0, own, timestamp=BEGIN_MS)
    producer.produce(topic, b"3", on_delivery=own, timestamp=BEGIN_MS)
    producer.produce(topic, b"4", callback=own, timestamp=BEGIN_MS)
    assert producer.flush(TIMEOUT_S) == 0
    producer.produce(topic, b"x" * 5000, on_delivery=own, timestamp=BEGIN_MS)
    assert producer.flush(TIMEOUT_S) == 0
    batch = [{"value": b"5"}, {"value": b"6", "callback": own}]
    assert producer.produce_batch(topic, batch) == 2
    assert producer.produce_batch(topic, batch[1:]) == 1  # as who sends again what did not fit
    assert producer.close()
    assert told == {"usual": 2, "own": 5, "own failed": 1}
    counts, _ = published(servers, f"audit-of-{topic}")
    assert produced_by_window(counts, topic) == held_by_window(servers, topic)
    assert sum(tally.count for tally in produced_by_window(counts, topic).values()) == 7


def test_a_transaction_counts_when_it_is_committed(servers: str, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    with new_producer(servers, topic, {"transactional.id": f"of-{topic}"}) as producer:
        producer.init_transactions(TIMEOUT_S)
        for attempt in range(4):
            producer.begin_transaction()
            for number in range(5):
                producer.produce(topic, f"{attempt}-{number}", timestamp=BEGIN_MS)
            if attempt % 2:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
    counts, _ = published(servers, f"audit-of-{topic}")
    assert produced_by_window(counts, topic) == held_by_window(servers, topic)
    assert produced_by_window(counts, topic)[0].count == 10


def test_the_windows_of_a_topic_with_log_append_time_are_the_brokers(
    servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    with new_producer(servers, topic) as producer:
        for number in range(20):
            producer.produce(topic, str(number), timestamp=BEGIN_MS)
    counts, _ = published(servers, f"audit-of-{topic}")
    assert produced_by_window(counts, topic) == held_by_window(servers, topic)
    assert 0 not in produced_by_window(counts, topic)


def test_totals_come_by_themselves_into_a_compacted_topic(servers: str, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    producer = AuditedProducer(
        {"bootstrap.servers": servers}, audit_topic=f"audit-of-{topic}", interval_s=0.05
    )
    producer.produce(topic, b"1", timestamp=BEGIN_MS)
    assert producer.flush(TIMEOUT_S) == 0
    deadline = time.monotonic() + TIMEOUT_S
    counts: list[Counts] = []
    while not counts and time.monotonic() < deadline:
        counts, _ = published(servers, f"audit-of-{topic}")
    assert produced_by_window(counts, topic)[0].count == 1
    producer.close()
    admin = AdminClient({"bootstrap.servers": servers})
    (config,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, f"audit-of-{topic}")]).values()
    assert config.result(TIMEOUT_S)["cleanup.policy"].value == "compact,delete"


def test_reports_that_would_hide_what_is_stored_are_refused(servers: str) -> None:
    with pytest.raises(ValueError, match="hides from the audit"):
        AuditedProducer({"bootstrap.servers": servers, "delivery.report.only.error": True})
    assert issubclass(AuditedProducer, Producer)


def test_what_the_page_shows_is_so(servers: str, new_topic: Callable[[], str]) -> None:
    section = PAGE.read_text().partition("\n## Audit\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    topic = new_topic()
    exec(block.replace("localhost:9092", servers).replace('"orders"', repr(topic)), {})
    counts, _ = published(servers, "moldau_audit")
    (total,) = [one for one in latest(counts) if one.topic == topic]
    assert (total.tally.count, total.origin.producer) == (1, "shop")
