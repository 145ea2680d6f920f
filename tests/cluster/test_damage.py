"""A batch in the middle of a closed segment goes bad on the disk: no client is given it, and `verify` names it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.server import MoldauServer, Server
from cluster.support import create_topic
from moldau.log.index import read_waiting
from moldau.log.scan import headers
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

COUNT = 30
VALUES = {offset: b"%d:" % offset + bytes([65 + offset]) * 90_000 for offset in range(COUNT)}
POLLS_S = 6.0


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, Path, int]]:
    """A broker with 30 messages in segments of 1 MiB, of which one batch has a flipped bit; where that is."""
    server: Server = MoldauServer(tmp_path_factory.mktemp("damaged") / "broker").start()
    create_topic(server.bootstrap_servers, "rotten", segment_bytes=str(1 << 20))
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0})
    for value in VALUES.values():
        producer.produce("rotten", value)
        producer.flush()
    server.stop()
    (segment,) = server.data.glob("**/rotten-0/00000000000000000000.log")
    disk = RealDisk(Features.detect())
    batches = list(headers(disk.open(str(segment)), 0, segment.stat().st_size, read_waiting))
    bad = batches[len(batches) // 2]
    with open(segment, "r+b") as file:
        file.seek(bad.position + 1000)
        byte = file.read(1)[0]
        file.seek(bad.position + 1000)
        file.write(bytes([byte ^ 0x08]))
    server.start()
    yield server.bootstrap_servers, bad.header.base_offset, segment, bad.position
    server.kill()


Read = Callable[[str, int], dict[int, bytes]]
"""What a client is given from an offset on, by offset, until it gets no further."""


def by_confluent(bootstrap: str, offset: int) -> dict[int, bytes]:
    """librdkafka does not look at checksums unless it is told to."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rot", "enable.auto.commit": False})
    consumer.assign([TopicPartition("rotten", 0, offset)])
    got: dict[int, bytes] = {}
    while (message := consumer.poll(POLLS_S)) is not None:
        if message.error() is None:
            got[message.offset()] = message.value()
            if message.offset() == COUNT - 1:
                break
        else:
            break
    consumer.close()
    return got


def by_kafka_python(bootstrap: str, offset: int) -> dict[int, bytes]:
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=int(POLLS_S * 1000))
    place = kafka.TopicPartition("rotten", 0)
    consumer.assign([place])
    consumer.seek(place, offset)
    got: dict[int, bytes] = {}
    try:
        for message in consumer:
            got[message.offset] = message.value
            if message.offset == COUNT - 1:
                break
    except kafka.errors.KafkaError:
        pass
    consumer.close()
    return got


def by_aiokafka(bootstrap: str, offset: int) -> dict[int, bytes]:
    aiokafka = pytest.importorskip("aiokafka")

    async def read() -> dict[int, bytes]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        place = aiokafka.TopicPartition("rotten", 0)
        consumer.assign([place])
        consumer.seek(place, offset)
        got: dict[int, bytes] = {}
        try:
            while COUNT - 1 not in got:
                message = await asyncio.wait_for(consumer.getone(), POLLS_S)
                got[message.offset] = message.value
        except (TimeoutError, aiokafka.errors.KafkaError):
            pass
        await consumer.stop()
        return got

    return asyncio.run(read())


@pytest.mark.slow
@pytest.mark.parametrize("read", [by_confluent, by_kafka_python, by_aiokafka])
def test_no_client_is_given_a_batch_that_went_bad(read: Read, damaged: tuple[str, int, Path, int]) -> None:
    bootstrap, bad, _, _ = damaged
    before = read(bootstrap, 0)
    assert before == {offset: VALUES[offset] for offset in range(bad)}
    after = read(bootstrap, bad + 1)
    assert after == {offset: VALUES[offset] for offset in range(bad + 1, COUNT)}


@pytest.mark.slow
def test_verify_names_the_segment_and_the_batch(damaged: tuple[str, int, Path, int]) -> None:
    _, bad, segment, position = damaged
    command = [
        MoldauServer(segment.parent.parent / "none").command()[0],
        "log",
        "verify",
        "--json",
        str(segment.parent),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = [one for one in json.loads(done.stdout)["findings"] if one["severity"] == "damage"]
    assert [(one["kind"], one["file"], one["position"]) for one in found] == [
        ("checksum", str(segment), position)
    ]
    assert f"offset {bad} does not match" in found[0]["what"]
