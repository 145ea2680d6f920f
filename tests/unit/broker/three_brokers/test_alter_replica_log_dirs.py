"""AlterReplicaLogDirs (KIP-113): a replica moves to another data folder of its broker, and its answers."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.record import read_records
from moldau.sim.world import World

from .trio import TOPIC, Trio

PLACE = TopicPartition(TOPIC, 0)
A, B, C = "/data/a", "/data/b", "/data/c"
FOLDERS = {"log.dirs": f"{A},{B},{C}"}


async def alter(
    trio: Trio, node_id: int, path: str, *indexes: int, topic: str = TOPIC, version: int = 2
) -> Any:
    asked = [{"path": path, "topics": [{"name": topic, "partitions": list(indexes or (0,))}]}]
    answer = await trio.ask(node_id, "AlterReplicaLogDirs", version, dirs=asked)
    assert [result.topic_name for result in answer.results] == [topic]
    return [partition.error_code for partition in answer.results[0].partitions]


async def described(trio: Trio, node_id: int) -> dict[str, list[tuple[int, int, bool]]]:
    """Partition, lag and whether it is on its way there, by folder."""
    answer = await trio.ask(node_id, "DescribeLogDirs", 4, topics=None)
    return {
        result.log_dir: [
            (p.partition_index, p.offset_lag, p.is_future_key)
            for topic in result.topics
            for p in topic.partitions
        ]
        for result in answer.results
        if result.topics
    }


def folder(trio: Trio, node_id: int) -> str:
    return str(trio.partition(node_id).log.folder.rpartition("/")[0])


def other(path: str) -> str:
    return next(one for one in (A, B, C) if one != path)


def on_trio(scene: Callable[[Trio], Coroutine[Any, Any, None]], seed: int = 1, **settings: str) -> None:
    with World(seed) as world:
        own = FOLDERS | {name.replace("_", "."): value for name, value in settings.items()}
        world.run(scene(Trio(world, lambda _: own)))
        assert not world.failures


async def values(trio: Trio, node_id: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < trio.partition(node_id).high_watermark:
        answer = await trio.fetch(node_id, len(found))
        (fetched,) = answer.responses[0].partitions
        assert fetched.error_code == ErrorCode.none
        data = bytes(fetched.records)
        while data:
            size = int.from_bytes(data[8:12], "big") + 12
            found += [record.value for record in read_records(data[:size])]
            data = data[size:]
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_a_leader_and_its_followers_move_while_they_serve(version: int) -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2, 3))
        written = [b"%d" % number for number in range(200)]
        for value in written[:100]:
            assert not (await trio.produce(1, value)).error_code
        targets = {node_id: other(folder(trio, node_id)) for node_id in (1, 2, 3)}
        for node_id, path in targets.items():
            assert await alter(trio, node_id, path, version=version) == [ErrorCode.none]
        for value in written[100:]:
            assert not (await trio.produce(1, value)).error_code
        await trio.until(
            lambda: all(folder(trio, n) == path for n, path in targets.items()), "they have moved"
        )
        assert await values(trio, 1) == written
        for node_id, path in targets.items():
            assert (await described(trio, node_id))[path] == [(0, 0, False)]
        assert trio.state().isr == (1, 2, 3)

    on_trio(scene)


def test_a_move_is_told_with_its_lag_until_it_is_done_and_survives_a_kill() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,))
        for number in range(20):
            assert not (await trio.produce(1, b"%d" % number)).error_code
        source = folder(trio, 1)
        target = other(source)
        trio.brokers[1].log_manager.moves._pace._bytes_per_s = lambda: 0
        assert await alter(trio, 1, target) == [ErrorCode.none]
        assert await described(trio, 1) == {source: [(0, 0, False)], target: [(0, 20, True)]}
        assert await alter(trio, 1, target) == [ErrorCode.none]
        trio.kill(1)
        await trio.start(1)
        await trio.until(lambda: folder(trio, 1) == target, "the move goes on")
        await trio.until(lambda: trio.partition(1).leader is not None, "it leads")
        assert await values(trio, 1) == [b"%d" % number for number in range(20)]
        assert await described(trio, 1) == {target: [(0, 0, False)]}

    on_trio(scene)


def test_the_folder_where_it_lies_ends_a_move() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,))
        await trio.produce(1)
        source = folder(trio, 1)
        trio.brokers[1].log_manager.moves._pace._bytes_per_s = lambda: 0
        for path in (one for one in (A, B, C) if one != source):
            assert await alter(trio, 1, path) == [ErrorCode.none]
            assert (await described(trio, 1)) == {source: [(0, 0, False)], path: [(0, 1, True)]}
        assert await alter(trio, 1, source) == [ErrorCode.none]
        assert await described(trio, 1) == {source: [(0, 0, False)]}

    on_trio(scene)


def test_what_cannot_be_moved_is_answered_as_kafka_does() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,), (2,))
        assert await alter(trio, 1, "/elsewhere") == [ErrorCode.log_dir_not_found]
        assert await alter(trio, 1, A, 1) == [ErrorCode.replica_not_available]
        assert await alter(trio, 1, A, 7) == [ErrorCode.unknown_topic_or_partition]
        assert await alter(trio, 1, A, topic="unknown") == [ErrorCode.unknown_topic_or_partition]
        long_name = "x" * 249
        assert await alter(trio, 1, A, topic=long_name) == [ErrorCode.invalid_topic_exception]
        manager = trio.brokers[1].log_manager
        source = folder(trio, 1)
        failed = next(one for one in manager.folders if one.path != source)
        manager.fail_folder(failed, OSError(errno.EIO, "gone"))
        assert await alter(trio, 1, failed.path) == [ErrorCode.kafka_storage_error]
        third = next(path for path in (A, B, C) if path not in (source, failed.path))
        assert await alter(trio, 1, third) == [ErrorCode.kafka_storage_error]
        assert await alter(trio, 1, source) == [ErrorCode.none]
        trio.brokers[1].replicas.take_offline(trio.partition(1))
        assert await alter(trio, 1, third) == [ErrorCode.kafka_storage_error]

    on_trio(scene)


@pytest.mark.parametrize("path", [A, B, C])
def test_a_replica_that_comes_later_is_created_where_it_was_asked_for(path: str) -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,))
        await trio.produce(1)
        assert await alter(trio, 2, path) == [ErrorCode.replica_not_available]
        wanted = [{"partition_index": 0, "replicas": [1, 2]}]
        topics = [{"name": TOPIC, "partitions": wanted}]
        await trio.ask(1, "AlterPartitionReassignments", 0, timeout=30_000, topics=topics)
        await trio.until(lambda: PLACE in trio.brokers[2].partitions, "it is there")
        assert folder(trio, 2) == path
        assert await alter(trio, 2, path) == [ErrorCode.none]

    on_trio(scene)


def test_a_source_that_fails_in_a_move_fails_over_and_one_that_is_the_target_does_not() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2, 3))
        await trio.produce(1)
        broker = trio.brokers[1]
        broker.log_manager.moves._pace._bytes_per_s = lambda: 0
        source = folder(trio, 1)
        target = other(source)
        assert await alter(trio, 1, target) == [ErrorCode.none]
        folders = {one.path: one for one in broker.log_manager.folders}
        broker.log_manager.fail_folder(folders[target], OSError(errno.EIO, "gone"))
        assert not broker.log_manager.moves.under_way
        assert not (await trio.produce(1)).error_code
        folders[target].failure = None
        assert await alter(trio, 1, next(path for path in (A, B, C) if path not in (source, target))) == [
            ErrorCode.none
        ]
        broker.log_manager.fail_folder(folders[source], OSError(errno.EIO, "gone"))
        assert not broker.log_manager.moves.under_way
        await trio.until(lambda: trio.state().leader in (2, 3), "another one leads")
        assert not (await trio.produce(trio.state().leader)).error_code

    on_trio(scene)


def test_a_deleted_topic_ends_its_moves() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,))
        await trio.produce(1)
        broker = trio.brokers[1]
        broker.log_manager.moves._pace._bytes_per_s = lambda: 0
        assert await alter(trio, 1, other(folder(trio, 1))) == [ErrorCode.none]
        names = [{"name": TOPIC, "topic_id": None}]
        await trio.ask(1, "DeleteTopics", 6, topics=names, timeout=30_000)
        await trio.until(lambda: not broker.log_manager.moves.under_way, "the move is given up")
        await trio.create((1,))
        assert not (await trio.produce(1)).error_code
        assert len(await described(trio, 1)) == 1

    on_trio(scene)


def test_the_pace_is_the_brokers_setting() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1,))
        for _ in range(10):
            assert not (await trio.produce(1, b"x" * 50_000)).error_code
        target = other(folder(trio, 1))
        assert await alter(trio, 1, target) == [ErrorCode.none]
        await trio.world.sleep(4)
        assert folder(trio, 1) != target
        await trio.until(lambda: folder(trio, 1) == target, "the move is done")

    on_trio(scene, **{"replica.alter.log.dirs.io.max.bytes.per.second": "50000"})
