"""`moldau.testing.Cluster`: a broker in this process, and nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from moldau.config.key import ConfigError
from moldau.log.log import Log
from moldau.testing import Cluster


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where clusters put their data, so that a test can see what is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def produce(bootstrap_servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, 20)
        assert all(message.error() is None for message in messages)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def partitions_of(bootstrap_servers: str, topic: str) -> int:
    topics = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=20).topics
    return len(topics[topic].partitions)


def open_files() -> set[str]:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:
            pass  # the listing's own
    return found


def test_messages_can_be_produced_and_consumed() -> None:
    with Cluster() as cluster:
        produce(cluster.bootstrap_servers, "orders", b"1", b"2", b"3")
        assert consume(cluster.bootstrap_servers, "orders", 3) == [b"1", b"2", b"3"]
        assert cluster.topics == ["orders"]


@pytest.mark.parametrize(
    ("config", "retention_ms"),
    [
        ({}, "-1"),
        ({"log.retention.hours": 1}, "3600000"),
        ({"log.retention.minutes": 2}, "120000"),
        ({"log.retention.ms": 3, "log.retention.hours": 1}, "3"),
    ],
)
def test_retention_is_unlimited_unless_it_is_given_in_any_unit(
    config: dict[str, int], retention_ms: str
) -> None:
    with Cluster(config=config, topics={"orders": 1}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topic = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        (described,) = admin.describe_configs([topic]).values()
        assert described.result(20)["retention.ms"].value == retention_ms


def test_nothing_is_left_at_the_end(temporary_folder: Path) -> None:
    with Cluster():  # what is loaded once per process, such as random devices, is loaded now
        pass
    threads, files = set(threading.enumerate()), open_files()
    with Cluster(topics={"orders": 3}) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        assert host == "127.0.0.1"
        with socket.create_connection((host, int(port)), timeout=10):
            pass
        assert list(temporary_folder.iterdir())
        cluster.delete_topic("orders")
    assert list(temporary_folder.iterdir()) == []
    # Clients of other tests may end late: what was open before may be gone.
    assert set(threading.enumerate()) <= threads
    assert open_files() <= files
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10).close()


def test_a_start_imports_neither_what_decides_for_groups_nor_the_handlers_of_what_nobody_asks() -> None:
    script = (
        "import sys\n"
        "from moldau.testing import Cluster\n"
        "from moldau.broker.loading import load_the_rest\n"
        "late = {'group.shard', 'group.classic', 'group.consumer.group', 'transaction.shard'}\n"
        "late = {f'moldau.coordinator.{name}' for name in late}\n"
        "late |= {f'moldau.broker.handlers.{name}' for name in ('produce', 'join_group', 'describe_configs')}\n"
        "with Cluster(topics={'orders': 1}):\n"
        "    assert not late & sys.modules.keys()\n"
        "    load_the_rest()\n"
        "    assert late <= sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_clusters_live_beside_each_other() -> None:
    with Cluster() as one, Cluster() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        one.create_topic("only-here")
        assert (one.topics, other.topics) == (["only-here"], [])


def test_a_restart_keeps_the_address_and_the_data() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        address = cluster.bootstrap_servers
        produce(address, "orders", b"before")
        cluster.restart()
        assert cluster.bootstrap_servers == address
        produce(address, "orders", b"after")
        assert consume(address, "orders", 2) == [b"before", b"after"]


@pytest.fixture
def waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each file or folder that is synced from now on."""
    seen: list[int] = []
    monkeypatch.setattr(os, "fsync", seen.append)
    return seen


@pytest.mark.parametrize("brokers", [1, 2])
def test_nothing_is_synced_or_closed_that_is_thrown_away(
    brokers: int, waits_for_the_disk: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    close = Log.close

    async def noted(log: Log) -> None:
        closed.append(log.topic_partition.topic)
        await close(log)

    monkeypatch.setattr(Log, "close", noted)
    with Cluster(brokers=brokers, topics={"orders": 20}) as cluster:
        cluster.create_topic("strict", config={"flush.messages": 1, "segment.bytes": 1 << 20})
        produce(cluster.bootstrap_servers, "strict", b"1" * 700_000, b"2" * 700_000)
        produce(cluster.bootstrap_servers, "orders", b"1")
        cluster.restart()
        assert closed.count("orders") == 20 * brokers, "a restart is clean"
        closed.clear()
        cluster.wait_for_leader("strict")
        assert [value[:1] for value in consume(cluster.bootstrap_servers, "strict", 2) if value] == [
            b"1",
            b"2",
        ]
    assert (closed, waits_for_the_disk) == ([], [])


def test_a_cluster_that_is_started_again_after_its_end_is_a_new_one() -> None:
    cluster = Cluster()
    with cluster:
        cluster.create_topic("orders")
    with cluster:
        assert cluster.topics == []


def test_topics_are_made_as_they_were_asked_for() -> None:
    with Cluster(topics={"orders": 3}) as cluster:
        cluster.create_topic("small", partitions=2, config={"max.message.bytes": 100})
        assert partitions_of(cluster.bootstrap_servers, "orders") == 3
        assert partitions_of(cluster.bootstrap_servers, "small") == 2
        failures = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce(
            "small", b"x" * 200, on_delivery=lambda error, _message: failures.append(error.name())
        )
        producer.flush(20)
        assert failures == ["MSG_SIZE_TOO_LARGE"]


def test_a_topic_that_the_broker_refuses_is_refused_with_its_reason() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        with pytest.raises(ValueError, match="already exists"):
            cluster.create_topic("orders")
        with pytest.raises(ValueError, match="a/b"):
            cluster.create_topic("a/b")
        with pytest.raises(ValueError, match=r"retention\.mss"):
            cluster.create_topic("other", config={"retention.mss": 1})
        with pytest.raises(KeyError, match="missing"):
            cluster.delete_topic("missing")
        assert cluster.topics == ["orders"]


def test_settings_of_the_broker_can_be_given_as_python_values() -> None:
    with Cluster(config={"num.partitions": 4}) as cluster:
        produce(cluster.bootstrap_servers, "made-by-use", b"1")
        assert partitions_of(cluster.bootstrap_servers, "made-by-use") == 4
    with Cluster(config={"auto.create.topics.enable": False}) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        assert client.list_topics("not-made", timeout=20).topics["not-made"].error is not None
        assert cluster.topics == []


def test_an_unknown_setting_is_refused_and_leaves_nothing(temporary_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"num\.partition"):
        Cluster(config={"num.partition": 4}).start()
    assert list(temporary_folder.iterdir()) == []


def test_a_start_that_fails_leaves_nothing(temporary_folder: Path) -> None:
    threads = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = Cluster(config={"listeners": f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(OSError):
            cluster.start()
    assert set(threading.enumerate()) <= threads
    assert list(temporary_folder.iterdir()) == []


def test_the_data_folder_is_the_clusters_own() -> None:
    with pytest.raises(ValueError, match=r"log\.dirs"):
        Cluster(config={"log.dirs": "/somewhere"})


def test_a_cluster_that_does_not_run_says_so() -> None:
    cluster = Cluster()
    with pytest.raises(RuntimeError, match="not running"):
        _ = cluster.bootstrap_servers
    with cluster, pytest.raises(RuntimeError, match="running already"):
        cluster.start()
    cluster.stop()  # once more is once


def test_it_serves_the_tests_of_async_programs() -> None:
    async def program() -> list[bytes | None]:
        async with Cluster(topics={"orders": 1}) as cluster:
            address = cluster.bootstrap_servers
            await asyncio.to_thread(produce, address, "orders", b"1")
            return await asyncio.to_thread(consume, address, "orders", 1)

    assert asyncio.run(program()) == [b"1"]


def test_a_forgotten_cluster_ends_with_its_process_and_leaves_no_folder(tmp_path: Path) -> None:
    script = (
        "from moldau.testing import Cluster\n"
        "cluster = Cluster(topics={'orders': 2})\n"
        "cluster.start()\n"
        "print(cluster.bootstrap_servers)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("127.0.0.1:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_neither_stops_the_cluster_nor_takes_its_data(tmp_path: Path) -> None:
    program = f"""
import os, sys, tempfile
tempfile.tempdir = {str(tmp_path)!r}
from moldau.testing import Cluster
with Cluster(topics={{"kept": 1}}) as cluster:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, "the child failed"
        assert os.listdir(tempfile.tempdir), "the child took the data"
        cluster.create_topic("another")
        cluster.restart()
        assert cluster.topics == ["another", "kept"]
    else:
        try:
            cluster.create_topic("from-the-child")
        except RuntimeError as error:
            assert "another process" in str(error)
# The child leaves the block as well, and both end as Python programs do.
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_a_client_meets_the_end_of_a_cluster_as_a_lost_connection() -> None:
    with Cluster() as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        client.list_topics(timeout=20)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
