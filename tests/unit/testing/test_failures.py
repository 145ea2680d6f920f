"""`moldau.testing.Cluster` with several brokers: what a test can do to them, and what clients see of it."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.testing import Cluster

TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"orders": 1}) as running:
        yield running


def produce(
    cluster: Cluster,
    first: int,
    number: int,
    on_each: Callable[[int], object] = int,
    *,
    idempotent: bool = True,
) -> None:
    """Messages with acks=all and in order, each stored once; fails where one is not acknowledged."""
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": idempotent, "linger.ms": 0}
    )
    for value in range(first, first + number):
        producer.produce("orders", str(value), on_delivery=lambda error, _: error and failures.append(error))
        producer.poll(0)
        on_each(value)
    assert producer.flush(TIMEOUT_S) == 0 and not failures


def consumed(cluster: Cluster, number: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        messages = consumer.consume(number, TIMEOUT_S)
        assert all(message.error() is None for message in messages)
        return [int(message.value() or b"") for message in messages]
    finally:
        consumer.close()


def test_every_broker_serves_and_tells_of_all(cluster: Cluster) -> None:
    assert cluster.brokers == [1, 2, 3] and cluster.controller in (1, 2, 3)
    for address in cluster.bootstrap_servers.split(","):
        metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=TIMEOUT_S)
        assert sorted(metadata.brokers) == [1, 2, 3]
        assert sorted(metadata.topics["orders"].partitions[0].replicas) == [1, 2, 3]
    assert cluster.in_sync("orders") == [1, 2, 3]
    assert cluster.leader("orders") == cluster.replicas("orders")[0]


@pytest.mark.parametrize("end", [Cluster.stop, Cluster.kill])
def test_topics_are_created_and_groups_begin_while_a_broker_is_down(
    cluster: Cluster, end: Callable[[Cluster, int], None]
) -> None:
    cluster.create_topic("led-by-each", 3)
    end(cluster, 3)
    cluster.create_topic("returns")
    assert sorted(cluster.replicas("returns")) == [1, 2, 3]
    produce(cluster, 0, 1)
    member = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "new", "auto.offset.reset": "earliest"}
    )
    member.subscribe(["orders"])
    try:
        (message,) = member.consume(1, TIMEOUT_S)
        assert message.value() == b"0"
    finally:
        member.close()


def test_nothing_is_lost_or_doubled_when_the_leader_is_killed_in_the_middle(cluster: Cluster) -> None:
    first = cluster.leader("orders")
    assert first is not None
    produce(cluster, 0, 300, lambda value: cluster.kill(first) if value == 150 else None)
    second = cluster.leader("orders")
    assert second not in (None, first) and first not in cluster.brokers
    cluster.start(first)
    cluster.wait_in_sync()
    assert cluster.in_sync("orders") == [1, 2, 3]
    assert cluster.elect("orders") == first, "the preferred leader has everything again"
    assert consumed(cluster, 300) == list(range(300))


def test_the_controller_can_be_killed(cluster: Cluster) -> None:
    controller = cluster.controller
    assert controller is not None
    cluster.kill(controller)
    cluster.create_topic("later", partitions=2, replicas=2)
    assert cluster.controller not in (None, controller)
    assert cluster.topics == ["later", "orders"]
    cluster.start(controller)
    cluster.delete_topic("later")


def test_a_broker_that_is_stopped_hands_over_first(cluster: Cluster) -> None:
    first = cluster.leader("orders")
    assert first is not None
    produce(cluster, 0, 100, lambda value: cluster.stop(first) if value == 50 else None)
    assert cluster.leader("orders") not in (None, first)
    with pytest.raises(RuntimeError, match=f"broker {first} is not running"):
        cluster.pause(first)
    cluster.start(first)
    with pytest.raises(RuntimeError, match="running already"):
        cluster.start(first)
    assert consumed(cluster, 100) == list(range(100))


@pytest.mark.slow
def test_a_paused_leader_is_replaced_and_follows_when_it_goes_on(cluster: Cluster) -> None:
    produce(cluster, 0, 10)
    first = cluster.leader("orders")
    assert first is not None
    cluster.pause(first)
    assert first not in cluster.brokers
    second = cluster.wait_for_leader("orders")
    assert second != first
    produce(cluster, 10, 10)
    cluster.resume(first)
    cluster.wait_in_sync()
    assert cluster.leader("orders") == second
    assert consumed(cluster, 20) == list(range(20))


@pytest.mark.slow
def test_a_paused_broker_can_be_killed_and_does_nothing_first(cluster: Cluster) -> None:
    cluster.pause(2)
    cluster.pause(2)
    cluster.kill(2)
    assert cluster.brokers == [1, 3]
    cluster.start(2)
    cluster.wait_in_sync()


@pytest.mark.slow
def test_a_follower_that_is_cut_off_leaves_the_in_sync_set_until_it_is_healed(cluster: Cluster) -> None:
    busy = (cluster.leader("orders"), cluster.controller)
    follower = next(number for number in (1, 2, 3) if number not in busy)
    cluster.cut(follower)
    produce(cluster, 0, 10, idempotent=False)  # else it may ask the one that is cut off for a producer id
    wait_until(lambda: follower not in cluster.in_sync("orders"))
    cluster.heal()
    cluster.wait_in_sync()
    cluster.elect("orders", broker=follower)
    assert consumed(cluster, 10) == list(range(10)), "it has what was written without it"


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("waited in vain")


def test_a_lead_goes_where_it_is_wanted_if_that_broker_has_everything(cluster: Cluster) -> None:
    for broker in (2, 3, 1):
        assert cluster.elect("orders", 0, broker) == broker == cluster.leader("orders")
    cluster.kill(3)
    wait_until(lambda: 3 not in cluster.in_sync("orders"))
    with pytest.raises(RuntimeError, match="orders-0"):
        cluster.elect("orders", 0, 3)
    cluster.create_topic("narrow", replicas=1)
    other = next(number for number in (1, 2) if number not in cluster.replicas("narrow"))
    with pytest.raises(ValueError, match=f"broker {other} has no replica of narrow-0"):
        cluster.elect("narrow", 0, other)


@pytest.mark.slow
def test_with_two_of_three_gone_there_is_no_leader_that_takes_writes(cluster: Cluster) -> None:
    leader = cluster.leader("orders")
    others = [number for number in (1, 2, 3) if number != leader]
    for number in others:
        cluster.kill(number)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 2000})
    failures: list[object] = []
    producer.produce("orders", b"1", on_delivery=lambda error, _: failures.append(error))
    producer.flush(TIMEOUT_S)
    assert failures[0] is not None
    for number in others:
        cluster.start(number)
    produce(cluster, 0, 10)


@pytest.mark.slow
def test_members_of_a_group_go_on_when_their_coordinator_is_killed(cluster: Cluster) -> None:
    produce(cluster, 0, 10)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "shop",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(["orders"])
    try:
        assert len(consumer.consume(10, TIMEOUT_S)) == 10
        consumer.commit(asynchronous=False)
        leaders = {cluster.leader("__consumer_offsets", index) for index in range(5)}
        (victim,) = sorted(number for number in leaders if number is not None)[:1]
        cluster.kill(victim)
        produce(cluster, 10, 10)
        assert [int(message.value() or b"") for message in consumer.consume(10, TIMEOUT_S)] == list(
            range(10, 20)
        )
    finally:
        consumer.close()


def test_data_outlive_a_restart_of_all_and_of_nothing_else_is_left(temporary_folder: Path) -> None:
    threads = threading.active_count()
    cluster = Cluster(brokers=3, topics={"orders": 1})
    with cluster:
        produce(cluster, 0, 5)
        addresses = cluster.bootstrap_servers
        cluster.restart()
        assert cluster.bootstrap_servers == addresses
        produce(cluster, 5, 5)
        assert consumed(cluster, 10) == list(range(10))
        assert os.listdir(temporary_folder)
    assert os.listdir(temporary_folder) == []
    wait_until(lambda: threading.active_count() <= threads)
    with pytest.raises(RuntimeError, match="not running"):
        cluster.leader("orders")


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="1 to 20 brokers"):
        Cluster(brokers=0)
    with pytest.raises(ValueError, match=r"node\.id and listeners"):
        Cluster(brokers=2, config={"node.id": 4})
    cluster = Cluster(brokers=2)
    with pytest.raises(ValueError, match="there is no broker 3: there are 1 to 2"):
        cluster.kill(3)
    with pytest.raises(RuntimeError, match="not running"):
        cluster.start(1)
    with cluster, pytest.raises(KeyError):
        cluster.leader("no-such-topic")
