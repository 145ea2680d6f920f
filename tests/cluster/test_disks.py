"""Disks that are full, break, or are not there, for real: small file systems that the test mounts. Root only."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.raw import (
    RawConnection,
    fetch_request,
    metadata_request,
    produce_request,
    request_class,
)
from bench.server import StartFailed
from cluster.broker_on_disks import BrokerOnDisks
from cluster.disks import Disk, disk
from cluster.support import create_topic, one_record_batch, wait_until
from moldau.records.record import read_records

STORAGE_ERROR, LEADER_NOT_AVAILABLE = 56, 5
VALUE_BYTES = 100_000
DECIDED_S = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Mounts file systems as Linux does it.")


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerOnDisks]]:
    made: list[BrokerOnDisks] = []

    def make(*log_dirs: Path, **settings: object) -> BrokerOnDisks:
        made.append(BrokerOnDisks(tmp_path / "broker", *log_dirs, **settings))
        return made[-1]

    yield make
    for broker in made:
        broker.kill()


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path / "small", kind=request.param) as made:
        yield made


@pytest.fixture
def two_disks(tmp_path: Path) -> Iterator[tuple[Disk, Disk]]:
    with disk(tmp_path / "one", kind="ext4") as one, disk(tmp_path / "two", kind="ext4") as two:
        yield one, two


def produce(connection: RawConnection, topic: str, partition: int, value: bytes) -> tuple[int, int]:
    """Error code and offset."""
    answer = connection.ask(produce_request(topic, partition, one_record_batch(value), acks=-1))
    (outcome,) = answer.responses[0].partition_responses
    return int(outcome.error_code), outcome.base_offset


def fetch(
    connection: RawConnection, topic: str, partition: int, offset: int
) -> tuple[int, list[bytes | None]]:
    answer = connection.ask(fetch_request(topic, partition, offset, wait_ms=0))
    (found,) = answer.responses[0].partitions
    values: list[bytes | None] = []
    data, position = bytes(found.records or b""), 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        values += [r.value for r in read_records(data[position : position + size]) if r.offset >= offset]
        position += size
    return int(found.error_code), values


def everything(connection: RawConnection, topic: str, partition: int, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        error, more = fetch(connection, topic, partition, len(values))
        assert error == 0 and more, (error, len(values), count)
        values += more
    return values


def numbered(number: int) -> bytes:
    return b"%06d" % number + bytes(VALUE_BYTES)


def test_a_full_disk_refuses_producers_serves_readers_and_takes_up_again(
    small_disk: Disk, new_broker: Callable[..., BrokerOnDisks]
) -> None:
    broker = new_broker(small_disk.path / "data").start()
    create_topic(broker.bootstrap_servers, "full")
    assert broker.health()[0] == 200
    with RawConnection(broker.bootstrap_servers) as connection:
        assert produce(connection, "full", 0, numbered(0)) == (0, 0)
        small_disk.take(4 << 20)
        count = fill_with_records(connection, "full", 1)
        for _ in range(50):
            assert produce(connection, "full", 0, numbered(count)) == (STORAGE_ERROR, -1)
        assert everything(connection, "full", 0, count) == [numbered(i) for i in range(count)]
        status, health = broker.health()
        assert (status, health["status"]) == (503, "degraded")
        assert health["data_folders"] == [
            {
                "path": str(small_disk.path / "data"),
                "state": "full",
                "reason": "no space left on device",
            }
        ]
        assert 'state="full"} 1' in broker.metrics()
        assert health["offline_partitions"] == []
        assert broker.log().count("is full") == 1, "told once, not for every request"
        small_disk.make_room()
        wait_until(lambda: broker.health()[0] == 200, what="room to be noticed")
        assert produce(connection, "full", 0, numbered(count)) == (0, count)
        assert "has room again" in broker.log()
        assert everything(connection, "full", 0, count + 1)[-1] == numbered(count)


def test_a_nearly_full_disk_is_full_as_long_as_what_was_refused_does_not_fit(
    tmp_path: Path, new_broker: Callable[..., BrokerOnDisks]
) -> None:
    with disk(tmp_path / "small") as small_disk:
        broker = new_broker(small_disk.path / "data").start()
        create_topic(broker.bootstrap_servers, "full")
        with RawConnection(broker.bootstrap_servers) as connection:
            assert produce(connection, "full", 0, b"before") == (0, 0)
            small_disk.take(os.statvfs(small_disk.path).f_bavail * 4096 - 500_000)
            assert produce(connection, "full", 0, bytes(900_000)) == (STORAGE_ERROR, -1)
            stored = 0
            for _ in range(25):  # longer than the folder is tried again
                stored += produce(connection, "full", 0, b"small")[0] == 0
                assert produce(connection, "full", 0, bytes(900_000)) == (STORAGE_ERROR, -1)
                assert broker.health()[0] == 503
                time.sleep(0.1)
            assert stored > 20, "small messages fit"
            assert (broker.log().count("is full"), broker.log().count("has room again")) == (1, 0)
            small_disk.make_room()
            wait_until(lambda: broker.health()[0] == 200, what="room to be noticed")
            assert produce(connection, "full", 0, bytes(900_000)) == (0, 1 + stored)


def fill_with_records(connection: RawConnection, topic: str, first: int) -> int:
    for number in range(first, 10_000):
        error, offset = produce(connection, topic, 0, numbered(number))
        if error:
            assert error == STORAGE_ERROR
            return number
        assert offset == number
    raise AssertionError("the disk does not fill up")


def test_a_broker_killed_on_a_full_disk_comes_up_on_it_with_all_that_was_acknowledged(
    small_disk: Disk, new_broker: Callable[..., BrokerOnDisks]
) -> None:
    broker = new_broker(small_disk.path / "data").start()
    create_topic(broker.bootstrap_servers, "full")
    with RawConnection(broker.bootstrap_servers) as connection:
        assert produce(connection, "full", 0, numbered(0)) == (0, 0)
        small_disk.take(4 << 20)
        count = fill_with_records(connection, "full", 1)
    broker.kill()
    broker.start()
    with RawConnection(broker.bootstrap_servers) as connection:
        assert everything(connection, "full", 0, count) == [numbered(i) for i in range(count)]
        error, _ = produce(connection, "full", 0, numbered(count))
        assert error in (0, STORAGE_ERROR)
        small_disk.make_room()
        wait_until(lambda: broker.health()[0] == 200, what="room to be noticed")
        assert produce(connection, "full", 0, numbered(count))[0] == 0
    assert broker.stop(), "a clean stop"


def partitions_on(path: Path, topic: str) -> list[int]:
    return sorted(int(folder.name.rpartition("-")[2]) for folder in path.glob(f"{topic}-?"))


def describe_log_dirs(connection: RawConnection) -> dict[str, tuple[int, list[int], int]]:
    """Of each folder: the error, the partitions, and whether its size is known."""
    answer = connection.ask(request_class(35, 4)(topics=None))
    return {
        found.log_dir: (
            int(found.error_code),
            sorted(p.partition_index for topic in found.topics for p in topic.partitions),
            min(found.total_bytes, 0),
        )
        for found in answer.results
    }


def metadata(
    connection: RawConnection, topic: str
) -> dict[int, tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """Of each partition: error, leader, in-sync and offline replicas."""
    answer = connection.ask(metadata_request())
    (found,) = [t for t in answer.topics if t.name == topic]
    return {
        p.partition_index: (int(p.error_code), int(p.leader_id), p.isr_nodes, p.offline_replicas)
        for p in found.partitions
    }


LED = (0, 1, (1,), ())
OFFLINE = (LEADER_NOT_AVAILABLE, -1, (), (1,))


def shown(
    connection: RawConnection, partitions: list[int]
) -> list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """What the cluster says of them: the controller hears of a failed folder from the broker, and then decides."""
    found = metadata(connection, "spread")
    return [found[partition] for partition in partitions]


def test_a_disk_that_breaks_takes_only_its_partitions_offline(
    two_disks: tuple[Disk, Disk], new_broker: Callable[..., BrokerOnDisks]
) -> None:
    one, two = two_disks
    broker = new_broker(one.path / "data", two.path / "data").start()
    create_topic(broker.bootstrap_servers, "spread", partitions=4)
    good, bad = partitions_on(one.path / "data", "spread"), partitions_on(two.path / "data", "spread")
    assert len(good) == len(bad) == 2, "spread over both"
    with RawConnection(broker.bootstrap_servers) as connection:
        for partition in range(4):
            assert produce(connection, "spread", partition, b"before") == (0, 0)
        two.die()
        assert produce(connection, "spread", bad[0], b"lost") == (STORAGE_ERROR, -1)
        for partition in bad:
            assert produce(connection, "spread", partition, b"lost") == (STORAGE_ERROR, -1)
            assert fetch(connection, "spread", partition, 0) == (STORAGE_ERROR, [])
        for partition in good:
            assert produce(connection, "spread", partition, b"after") == (0, 1)
            assert fetch(connection, "spread", partition, 0) == (0, [b"before", b"after"])
        wait_until(lambda: shown(connection, good + bad) == [LED, LED, OFFLINE, OFFLINE], DECIDED_S)
        assert describe_log_dirs(connection) == {
            str(one.path / "data"): (0, good, 0),
            str(two.path / "data"): (STORAGE_ERROR, [], -1),
        }
        status, health = broker.health()
        assert status == 503
        assert [folder["state"] for folder in health["data_folders"]] == ["ok", "failed"]
        assert health["offline_partitions"] == [f"spread-{partition}" for partition in bad]
        create_topic(broker.bootstrap_servers, "new", partitions=2)
        assert partitions_on(one.path / "data", "new") == [0, 1], "new ones go where there is a disk"
    broker.stop()
    two.unmount()
    two.mount()
    broker.start()
    with RawConnection(broker.bootstrap_servers) as connection:
        assert set(metadata(connection, "spread").values()) == {LED}
        for partition in bad:
            assert fetch(connection, "spread", partition, 0) == (0, [b"before"])
            assert produce(connection, "spread", partition, b"again") == (0, 1)


def test_a_broker_whose_disks_have_all_failed_stops_with_a_clear_sentence(
    two_disks: tuple[Disk, Disk], new_broker: Callable[..., BrokerOnDisks]
) -> None:
    one, two = two_disks
    broker = new_broker(one.path / "data", two.path / "data").start()
    create_topic(broker.bootstrap_servers, "doomed", partitions=2)
    one.die()
    two.die()
    with contextlib.suppress(OSError), RawConnection(broker.bootstrap_servers) as connection:
        for partition in range(2):
            produce(connection, "doomed", partition, b"lost")
    assert broker.wait(20) == 1
    assert "The broker stopped itself: all data folders have failed" in broker.log()
    assert "Traceback" not in broker.log(), broker.log()


def test_partitions_of_a_disk_that_is_not_mounted_are_offline_and_not_begun_anew(
    two_disks: tuple[Disk, Disk], new_broker: Callable[..., BrokerOnDisks]
) -> None:
    one, two = two_disks
    broker = new_broker(one.path / "data", two.path / "data").start()
    create_topic(broker.bootstrap_servers, "spread", partitions=4)
    good, away = partitions_on(one.path / "data", "spread"), partitions_on(two.path / "data", "spread")
    with RawConnection(broker.bootstrap_servers) as connection:
        for partition in range(4):
            assert produce(connection, "spread", partition, b"before") == (0, 0)
    broker.stop()
    two.unmount()
    broker.start()
    assert "has lost what it held. Is its disk mounted?" in broker.log()
    with RawConnection(broker.bootstrap_servers) as connection:
        wait_until(lambda: shown(connection, good + away) == [LED, LED, OFFLINE, OFFLINE], DECIDED_S)
        for partition in good:
            assert fetch(connection, "spread", partition, 0) == (0, [b"before"])
        for partition in away:
            assert produce(connection, "spread", partition, b"lost") == (STORAGE_ERROR, -1)
    assert partitions_on(one.path / "data", "spread") == good
    broker.stop()
    two.mount()
    broker.start()
    with RawConnection(broker.bootstrap_servers) as connection:
        for partition in range(4):
            assert fetch(connection, "spread", partition, 0) == (0, [b"before"])


def test_a_broker_with_no_disk_left_does_not_start_and_says_why(
    two_disks: tuple[Disk, Disk], new_broker: Callable[..., BrokerOnDisks]
) -> None:
    one, two = two_disks
    broker = new_broker(one.path / "data", two.path / "data").start()
    broker.stop()
    one.unmount()
    two.unmount()
    with pytest.raises(StartFailed, match="None of the data folders can be used"):
        broker.start()
    assert "Traceback" not in broker.log(), broker.log()
