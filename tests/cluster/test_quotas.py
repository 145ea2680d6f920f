"""`moldau quota`, and how clients of two libraries meet the quotas that it sets, on a broker of its own."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from cluster.up import COMMAND, TIMEOUT_S
from golden.recorder import Kafka
from moldau.testing import Cluster

pytestmark = pytest.mark.slow

TOPIC = "topic"
PATIENCE_S = 60.0
SHORT_WINDOW = {"quota.window.num": 3}
"""Two seconds' worth may come at once, so that a test need not wait for eleven."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={TOPIC: 1}, config=SHORT_WINDOW) as running:
        yield running


@pytest.fixture(autouse=True)
def no_quotas_are_left(cluster: Cluster) -> Iterator[None]:
    yield
    for one in listed(cluster):
        run(cluster, "remove", *options(one["entity"]))
    assert listed(cluster) == []


def call(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "quota", *arguments, "--bootstrap", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert "Traceback" not in done.stderr
    return done


def run(cluster: Cluster, *arguments: str) -> str:
    done = call(cluster, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def listed(cluster: Cluster, *arguments: str) -> Any:
    return json.loads(run(cluster, "list", *arguments, "--json"))


def options(entity: dict[str, str | None]) -> list[str]:
    return [
        word
        for type_, name in entity.items()
        for word in ([f"--default-{type_}"] if name is None else [f"--{type_}", name])
    ]


# The command


def test_quotas_are_set_listed_and_removed(cluster: Cluster) -> None:
    said = run(cluster, "set", "--user", "alice", "producer_byte_rate=1MB", "request_percentage=12.5%")
    assert said == "user alice: set: producer_byte_rate 976.6 KiB/s, request_percentage 12.5 %\n"
    run(cluster, "set", "--user", "alice", "--client-id", "app", "consumer_byte_rate=512KiB")
    run(cluster, "set", "--default-client-id", "controller_mutation_rate=10")
    run(cluster, "set", "--ip", "10.0.0.7", "connection_creation_rate=5")
    table = [re.split(r"  +", line.strip()) for line in run(cluster, "list").splitlines()]
    assert table == [
        ["OF", "QUOTA", "VALUE"],
        ["client-id <default>", "controller_mutation_rate", "10 partitions/s"],
        ["client-id app, user alice", "consumer_byte_rate", "512.0 KiB/s"],
        ["ip 10.0.0.7", "connection_creation_rate", "5 connections/s"],
        ["user alice", "producer_byte_rate", "976.6 KiB/s"],
        ["user alice", "request_percentage", "12.5 %"],
    ]
    assert listed(cluster, "--user", "alice") == [
        {"entity": {"client-id": "app", "user": "alice"}, "quotas": {"consumer_byte_rate": 524288.0}},
        {
            "entity": {"user": "alice"},
            "quotas": {"producer_byte_rate": 1000000.0, "request_percentage": 12.5},
        },
    ]
    assert run(cluster, "remove", "--user", "alice", "request_percentage") == (
        "user alice: removed: request_percentage\n"
    )
    done = json.loads(run(cluster, "remove", "--user", "alice", "--json"))
    assert done == {"entity": {"user": "alice"}, "quotas": ["producer_byte_rate"], "status": "removed"}
    warned = call(cluster, "set", "--user", "bob", "consumer_byte_rate=10KB", "--dry-run").stderr
    assert "A batch of more than 97.7 KiB is never read" in warned
    assert not call(cluster, "set", "--user", "bob", "consumer_byte_rate=1MB", "--dry-run").stderr
    run(cluster, "set", "--user", "bob", "producer_byte_rate=1MB", "--dry-run")
    assert listed(cluster, "--user", "bob") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["set", "producer_byte_rate=1"], 2, "Whose quota is it?"),
        (["set", "--user", "a", "producer_byt_rate=1"], 2, "Did you mean producer_byte_rate"),
        (["set", "--user", "a", "connection_creation_rate=1"], 2, "cannot have a quota"),
        (["set", "--user", "a", "producer_byte_rate=fast"], 2, "is not a rate in bytes"),
        (["set", "--user", "a", "request_percentage=x"], 2, "is not a number"),
        (["set", "--user", "a", "--default-user", "request_percentage=1"], 2, "two different things"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "request_percentage=1"], 2, "by itself"),
        (["set", "--user", "a", "producer_byte_rate=0"], 2, "must be greater than 0"),
        (["set", "--ip", "here", "connection_creation_rate=1"], 2, "is not a valid IP"),
        (["remove", "--user", "nobody"], 4, "user nobody has no quota."),
        (["remove", "--user", "nobody", "producer_byte_rate"], 4, "has no quota producer_byte_rate."),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    cluster: Cluster, arguments: list[str], code: int, said: str
) -> None:
    done = call(cluster, *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


# Clients


class Heard:
    """What librdkafka tells of throttled requests: their `throttle_time_ms`, in seconds."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, event: Any) -> None:
        self.times.append(event.throttle_time)


def test_a_producer_of_librdkafka_hears_of_its_quota_and_loses_nothing(cluster: Cluster) -> None:
    run(cluster, "set", "--client-id", "limited", "producer_byte_rate=400KB")
    heard = Heard()
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "limited",
            "throttle_cb": heard,
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
    )
    delivered: list[Any] = []
    for _ in range(12):  # 1.2 MB, 0.8 MB within the window
        producer.produce(TOPIC, bytes(100_000), on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert delivered == [None] * 12
    assert heard.times and 0 < max(heard.times) < 10, heard.times


def test_a_producer_of_kafka_python_is_throttled_and_another_beside_it_is_not(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    run(cluster, "set", "--client-id", "loud", "producer_byte_rate=200KB")
    loud = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="loud", batch_size=0)
    quiet = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="quiet", batch_size=0)
    try:
        waiting = [
            loud.send(TOPIC, bytes(100_000)) for _ in range(8)
        ]  # 400 KB within the window, 2 s for the rest
        waits = []
        while not waiting[-1].is_done:
            start_s = time.monotonic()
            quiet.send(TOPIC, b"x").get(PATIENCE_S)
            waits.append(time.monotonic() - start_s)
            assert sum(waits) < PATIENCE_S
        assert sorted(waits)[len(waits) // 2] < 0.5, "most of what the other sends is not held up"
        assert len(waits) > 20
        assert all(one.succeeded() for one in waiting)
        assert "ProduceResponse throttled by broker" in caplog.text, "kafka-python says so"
    finally:
        loud.close()
        quiet.close()


def test_a_consumer_of_librdkafka_gets_everything_later(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(200):
        producer.produce(TOPIC, b"%d" % number + bytes(10_000))
    assert producer.flush(PATIENCE_S) == 0
    run(cluster, "set", "--default-client-id", "consumer_byte_rate=800KB")
    heard = Heard()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "limited",
            "client.id": "reader",
            "throttle_cb": heard,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 100_000,
        }
    )
    consumer.subscribe([TOPIC])
    total, deadline_s = 0, time.monotonic() + PATIENCE_S
    while total < 2_200_000 and time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        total += 0 if message is None or message.error() else len(message.value())
    consumer.close()
    assert total >= 2_200_000
    assert heard.times and max(heard.times) > 0


def test_a_client_that_uses_the_loop_too_much_is_told(cluster: Cluster) -> None:
    """0.001 % is 0.1 ms in ten seconds: less than a few requests take."""
    run(cluster, "set", "--user", "ANONYMOUS", "--client-id", "golden", "request_percentage=0.001")
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    kafka = Kafka(host, int(port))
    waits_ms = [0.0]
    while not waits_ms[-1] and len(waits_ms) < 1000:
        answer = kafka.ask("Metadata", 12, {"topics": None})
        waits_ms.append(answer.throttle_time.total_seconds() * 1000)
    assert 0 < waits_ms[-1] <= 1000, waits_ms


def test_an_address_that_connects_too_fast_is_closed_after_a_while(cluster: Cluster) -> None:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    run(cluster, "set", "--default-ip", "connection_creation_rate=4")
    answers = 0
    refused = 0
    for _ in range(20):
        try:
            Kafka(host, int(port)).ask("ApiVersions", 0, {})
            answers += 1
        except Exception:  # the end of the stream, as the recorder meets it
            refused += 1
            break
    assert 4 <= answers <= 10 and refused
    deadline_s = time.monotonic() + PATIENCE_S
    while call(cluster, "remove", "--default-ip").returncode and time.monotonic() < deadline_s:
        time.sleep(0.5)


def test_a_user_is_limited_by_the_name_that_it_came_in_with(cluster: Cluster) -> None:
    """Over TLS and SCRAM, whatever client ids it gives itself; another user beside is not."""
    with Cluster(secure=True, topics={TOPIC: 1}, config=SHORT_WINDOW) as secure:
        secure.create_user("alice", "secret-of-alice")
        settings = secure.client_settings()
        command = [*COMMAND, "quota", "set", "--user", "alice", "producer_byte_rate=500KB"]
        for name, value in settings.items():
            command += ["--bootstrap" if name == "bootstrap.servers" else "-X"]
            command += [str(value) if name == "bootstrap.servers" else f"{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr

        def heard_by(settings: dict[str, Any]) -> list[float]:
            heard = Heard()
            for client_id in ("one", "other"):
                own = {"client.id": client_id, "throttle_cb": heard, "linger.ms": 0, "batch.num.messages": 1}
                producer = Producer(settings | own)
                for _ in range(7):  # 1.4 MB by both, 1 MB within the window
                    producer.produce(TOPIC, bytes(100_000))
                assert producer.flush(PATIENCE_S) == 0
            return [wait_s for wait_s in heard.times if wait_s > 0]

        assert heard_by(secure.client_settings(user="alice", password="secret-of-alice"))
        assert not heard_by(settings)
