"""Transactions with clients that were not written here: what is committed is seen, what is aborted is not.

The same tests run against Apache Kafka with `--target kafka`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from bench.apache_kafka import Distribution
from bench.server import MoldauServer
from cluster.support import create_topic, wait_until
from interop.clients import Client
from interop.clients.java import JavaTools

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-transactions")]

TIMEOUT_S = 20
NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def java(clients: Callable[[str], Client]) -> JavaTools:
    client = clients("java-tools")
    assert isinstance(client, JavaTools)
    return client


def producer_of(target: str, transactional_id: str, **settings: object) -> Producer:
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    made = Producer(
        {"bootstrap.servers": target, "transactional.id": transactional_id, "log_level": 0, **dotted}
    )
    made.init_transactions(TIMEOUT_S)
    return made


def read(target: str, topic: str, *, partition: int = 0, committed: bool = True) -> list[bytes | None]:
    """All values up to where the reader may see."""
    consumer = Consumer(
        {
            "bootstrap.servers": target,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value())
    finally:
        consumer.close()


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


# ---- Python's clients ---------------------------------------------------------------------------------------------


def test_confluent_commits_and_aborts_over_several_partitions(target: str, new_topic: NewTopic) -> None:
    first, second = new_topic("first", partitions=2), new_topic("second")
    producer = producer_of(target, first)
    for number, ends in enumerate((Producer.commit_transaction, Producer.abort_transaction) * 3):
        producer.begin_transaction()
        for partition in range(2):
            send(producer, first, b"%d" % number, partition=partition)
        send(producer, second, b"%d" % number)
        ends(producer, TIMEOUT_S)
    for topic, partition in ((first, 0), (first, 1), (second, 0)):
        assert read(target, topic, partition=partition) == [b"0", b"2", b"4"]
        everything = read(target, topic, partition=partition, committed=False)
        assert everything == [b"%d" % number for number in range(6)]


def test_what_is_open_is_not_seen_and_holds_back_what_follows(target: str, new_topic: NewTopic) -> None:
    topic = new_topic("open")
    slow, quick = producer_of(target, topic + "-slow"), producer_of(target, topic + "-quick")
    slow.begin_transaction()
    send(slow, topic, b"slow")
    quick.begin_transaction()
    send(quick, topic, b"quick")
    quick.commit_transaction(TIMEOUT_S)
    assert read(target, topic) == []
    assert read(target, topic, committed=False) == [b"slow", b"quick"]
    slow.commit_transaction(TIMEOUT_S)
    wait_until(lambda: read(target, topic) == [b"slow", b"quick"], what="the end of the transaction")


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(
    target: str, new_topic: NewTopic
) -> None:
    topic = new_topic("fenced")
    old = producer_of(target, topic)
    old.begin_transaction()
    send(old, topic, b"old")
    new = producer_of(target, topic)
    new.begin_transaction()
    send(new, topic, b"new")
    new.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException):
        old.commit_transaction(TIMEOUT_S)
    assert read(target, topic) == [b"new"]


def test_a_transaction_whose_time_is_up_is_aborted(tmp_path: Path) -> None:
    quickly = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with MoldauServer(tmp_path, quickly) as server:
        create_topic(server.bootstrap_servers, "late")
        late = producer_of(server.bootstrap_servers, "late", transaction_timeout_ms=1000)
        late.begin_transaction()
        send(late, "late", b"late")
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        send(producer, "late", b"plain")
        wait_until(lambda: read(server.bootstrap_servers, "late") == [b"plain"], what="the abort")
        with pytest.raises(KafkaException):
            late.commit_transaction(TIMEOUT_S)


def test_offsets_count_when_their_transaction_is_committed(target: str, new_topic: NewTopic) -> None:
    source, group = new_topic("source"), new_topic("group")
    producer = producer_of(target, source)
    plain = Producer({"bootstrap.servers": target})
    send(plain, source, b"a", b"b", b"c")
    consumer = Consumer({"bootstrap.servers": target, "group.id": group, "enable.auto.commit": False})

    def commit_offset(offset: int, ends: Callable[..., None]) -> None:
        producer.begin_transaction()
        place = TopicPartition(source, 0, offset)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)
        ends(TIMEOUT_S)

    def committed() -> int:
        return int(consumer.committed([TopicPartition(source, 0)], TIMEOUT_S)[0].offset)

    commit_offset(2, producer.commit_transaction)
    wait_until(lambda: committed() == 2, what="the offset")
    commit_offset(3, producer.abort_transaction)
    assert committed() == 2
    consumer.close()


def test_aiokafka_commits_aborts_and_reads_what_is_committed(target: str, new_topic: NewTopic) -> None:
    topic = new_topic("aio")

    async def main() -> list[bytes | None]:
        producer = AIOKafkaProducer(bootstrap_servers=target, transactional_id=topic)
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"one", partition=0)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"two", partition=0)
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send_and_wait(topic, b"three", partition=0)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=target,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]
        finally:
            await consumer.stop()

    assert asyncio.run(main()) == [b"one", b"three"]
    assert read(target, topic, committed=False) == [b"one", b"two", b"three"]


def test_kafka_python_commits_and_aborts(target: str, new_topic: NewTopic) -> None:
    topic = new_topic("kafka-python")
    producer = KafkaProducer(bootstrap_servers=target, transactional_id=topic)
    producer.init_transactions()
    for value, ends in (
        (b"one", producer.commit_transaction),
        (b"two", producer.abort_transaction),
        (b"three", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(TIMEOUT_S)
        ends()
    producer.close()
    assert read(target, topic) == [b"one", b"three"]


# ---- Java's tools -------------------------------------------------------------------------------------------------


@contextmanager
def open_transaction(target: str, topic: str, transactional_id: str) -> Iterator[Producer]:
    producer = producer_of(target, transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"open")
    yield producer
    producer.abort_transaction(TIMEOUT_S)


def test_javas_console_consumer_reads_what_is_committed(
    java: JavaTools, target: str, new_topic: NewTopic
) -> None:
    topic = new_topic("console")
    producer = producer_of(target, topic)
    for value, ends in ((b"one", producer.commit_transaction), (b"two", producer.abort_transaction)):
        producer.begin_transaction()
        send(producer, topic, value)
        ends(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, topic, b"three")
    producer.commit_transaction(TIMEOUT_S)
    for isolation, expected in (("read_committed", "one three"), ("read_uncommitted", "one two three")):
        printed = java.run(
            "console-consumer",
            *("--topic", topic, "--from-beginning", "--isolation-level", isolation),
            *("--max-messages", str(len(expected.split())), "--timeout-ms", "20000"),
        ).stdout
        assert printed.split() == expected.split()


def test_javas_transactions_tool_tells_of_open_transactions(
    java: JavaTools, target: str, new_topic: NewTopic
) -> None:
    topic = new_topic("tool")
    with open_transaction(target, topic, topic):
        listed = java.run("transactions", "list").stdout
        assert re.search(rf"^{topic}\s+\d+\s+\d+\s+Ongoing", listed, re.MULTILINE)
        described = java.run("transactions", "describe", "--transactional-id", topic).stdout
        assert re.search(rf"{topic}.*Ongoing.*{topic}-0", described, re.DOTALL)
        words = ("describe-producers", "--topic", topic, "--partition", "0")
        assert re.search(r"^\d+\s+\d+\s+.*\s0\s*$", java.run("transactions", *words).stdout, re.MULTILINE)
        hanging = java.run("transactions", "find-hanging", "--topic", topic).stdout
        assert topic not in hanging


def test_the_transaction_log_is_printed_by_kafkas_formatter(
    java: JavaTools, target: str, new_topic: NewTopic
) -> None:
    topic = new_topic("formatted")
    with open_transaction(target, topic, topic):
        pass
    printed = java.run(
        "console-consumer",
        *("--topic", "__transaction_state", "--from-beginning", "--timeout-ms", "5000"),
        *("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
    ).stdout
    records, decoder, position = [], json.JSONDecoder(), 0
    while position < len(printed.strip()):
        record, position = decoder.raw_decode(printed, position)
        records.append(record)
        position += len(printed[position:]) - len(printed[position:].lstrip())
    mine = [r["value"]["data"] for r in records if r["key"]["data"]["transactionalId"] == topic]
    states = [value["transactionStatus"] for value in mine]
    assert states[0] in (0, "Empty")
    assert states[-1] in (5, "CompleteAbort")
    partitions = [value["transactionPartitions"] for value in mine]
    assert [{"topic": topic, "partitionIds": [0]}] in partitions


def test_kafkas_copier_copies_every_message_once_with_random_aborts(
    java: JavaTools, target: str, new_topic: NewTopic, requires_kafka: Distribution
) -> None:
    source, copy = new_topic("copied"), new_topic("copy")
    count = 600
    java.run(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--topic", source, "--max-messages", str(count), "--throughput", "-1", "--acks", "-1"),
    )
    done = requires_kafka.run(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", target, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", copy, "--transactional-id", copy, "--consumer-group", copy),
        *("--transaction-size", "50", "--max-messages", str(count), "--enable-random-aborts"),
        *("--group-mode", "--use-group-metadata"),
        timeout_s=120,
    )
    assert '"stage":"ShutdownComplete"' in done.stdout
    found = read(target, copy)
    assert len(found) == count
    assert found == read(target, source)


def test_transactional_producer_performance_runs(java: JavaTools, target: str, new_topic: NewTopic) -> None:
    topic = new_topic("performance")
    printed = java.run(
        "producer-perf-test",
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", topic, "--transaction-duration-ms", "50"),
    ).stdout
    assert "2000 records sent" in printed
    deadline = time.monotonic() + TIMEOUT_S
    while len(read(target, topic)) < 2000:
        assert time.monotonic() < deadline
