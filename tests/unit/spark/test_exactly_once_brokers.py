"""A task writes its rows once while brokers die, and leaders and coordinators move, at any step."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_int, c_void_p

import pytest
from confluent_kafka.admin import AdminClient
from sink_attempts import APPLICATION, STEPS, Sink, values

from moldau.spark.topic_sink.exactly_once import KEPT, MARKERS, TaskIdentity, Transactions
from moldau.spark.topic_sink.librdkafka import Producer, _function
from moldau.testing import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.long]
COORDINATED = {"group": "__consumer_offsets", "transaction": "__transaction_state"}
PARTITIONS = 3
DEADLINE_S = 60.0
NOT_WHEN_KEPT = ("fenced the others", "marker read again")
CONFIG = {"offsets.topic.num.partitions": PARTITIONS, "transaction.state.log.num.partitions": PARTITIONS}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        yield cluster
        KEPT.close()
        MARKERS.close()


def move(cluster: Cluster, topic: str) -> None:
    """Every partition that somebody leads gets the next leader in sync."""
    for partition in range(PARTITIONS):
        leader = cluster.wait_for_leader(topic, partition)
        others = [broker for broker in cluster.in_sync(topic, partition) if broker != leader]
        cluster.elect(topic, partition, others[leader % len(others)])


def kill_a_leader(cluster: Cluster, topic: str) -> None:
    """It comes back when others lead what it has led."""
    broker = cluster.wait_for_leader(topic, 0)
    cluster.kill(broker)
    for partition in range(PARTITIONS):
        cluster.wait_for_leader(topic, partition)
    cluster.start(broker)
    cluster.wait_in_sync()


TROUBLES: dict[str, Callable[[Cluster, str], None]] = {
    "the leaders of the topic move": move,
    "the group coordinators move": lambda cluster, topic: move(cluster, COORDINATED["group"]),
    "the transaction coordinators move": lambda cluster, topic: move(cluster, COORDINATED["transaction"]),
    "the topic's leader is killed": kill_a_leader,
    "a transaction coordinator is killed": lambda cluster, topic: kill_a_leader(
        cluster, COORDINATED["transaction"]
    ),
}


@pytest.mark.parametrize("keeping", [True, False], ids=["the producer is kept", "a new producer each time"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_rows_are_written_once_while(cluster: Cluster, trouble: str, keeping: bool) -> None:
    topic = f"out-{list(TROUBLES).index(trouble)}-{keeping}"
    cluster.create_topic(topic, PARTITIONS)
    sink = Sink(cluster.bootstrap_servers, topic)
    sink.attempt(0, values(1, 30))
    for version, step in enumerate(STEPS, 1):
        if not keeping:
            KEPT.close()
        first = 30 * version + 1
        happened: list[str] = []

        def reached(now: str, step: str = step, happened: list[str] = happened) -> None:
            if now == step and not happened:
                TROUBLES[trouble](cluster, topic)
                happened.append(now)

        sink.attempt(version, values(first, first + 29), reached)
        assert happened or (keeping and step in NOT_WHEN_KEPT)
    assert sink.committed() == sorted(values(1, 30 * (len(STEPS) + 1)))


def test_a_kept_producer_finds_the_new_group_coordinator_when_the_old_one_has_gone(cluster: Cluster) -> None:
    """librdkafka alone waits until a broker closes a connection that has been idle for ten minutes."""
    cluster.create_topic("out-gone", PARTITIONS)
    sink = Sink(cluster.bootstrap_servers, "out-gone")
    KEPT.close()
    sink.attempt(0, values(1, 10))
    sink.attempt(1, values(11, 20))  # its first marker is where the coordinator is asked for
    group = TaskIdentity(APPLICATION, 0, 0).transactional_id(sink.topic)
    admin = AdminClient({"bootstrap.servers": sink.servers})
    broker = admin.describe_consumer_groups([group])[group].result(DEADLINE_S).coordinator.id
    cluster.kill(broker)
    for topic in (sink.topic, *COORDINATED.values()):
        for partition in range(PARTITIONS):
            cluster.wait_for_leader(topic, partition)
    forget(broker, kept_producer())
    with ThreadPoolExecutor(1) as pool:  # a call that hangs in the main thread is deaf to the test's time-out
        assert pool.submit(sink.attempt, 2, values(21, 30)).result(DEADLINE_S).rows == 10
    cluster.start(broker)
    cluster.wait_in_sync()
    assert sink.committed() == sorted(values(1, 30))


def kept_producer() -> Transactions:
    ((transactions, _),) = KEPT._clients.values()
    return transactions


def forget(broker: int, transactions: Transactions) -> None:
    """Let the producer see the brokers that are left; it gives up what it has of the one that is not there."""
    for _ in range(100):
        if broker not in brokers_known_to(transactions.outlet.producer):
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"broker {broker} is still there")


class Metadata(ctypes.Structure):
    """The heads of rd_kafka_metadata_t and rd_kafka_metadata_broker_t."""

    class Broker(ctypes.Structure):
        _fields_ = [("id", ctypes.c_int32), ("host", ctypes.c_char_p), ("port", ctypes.c_int)]

    _fields_ = [("count", ctypes.c_int), ("brokers", ctypes.POINTER(Broker))]


def brokers_known_to(producer: Producer) -> list[int]:
    """It asks one of them, and keeps the answer."""
    place = ctypes.POINTER(Metadata)()
    ask = _function(
        "metadata", c_int, c_void_p, c_int, c_void_p, ctypes.POINTER(ctypes.POINTER(Metadata)), c_int
    )
    assert ask(producer._handle, 1, None, ctypes.byref(place), int(DEADLINE_S * 1000)) == 0
    found = [place[0].brokers[index].id for index in range(place[0].count)]
    _function("metadata_destroy", None, c_void_p)(place)
    return found
