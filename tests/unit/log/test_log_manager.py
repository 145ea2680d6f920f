"""The data folder: its lock, its owner, its logs, its checkpoints."""

from __future__ import annotations

import errno
import uuid

import pytest
from log_world import FOLDER, PARTITION, World, append, batch, config, settle

from moldau.base.ids import TopicPartition
from moldau.log.checkpoints import read_offsets, read_properties
from moldau.log.folder import DataFolderError

OTHER = TopicPartition("other-topic", 3)


async def test_a_new_folder_says_whose_it_is() -> None:
    world = World()
    await world.open(cluster_id="abc", node_id=7)
    properties = read_properties(bytes(world.disk.files[f"{FOLDER}/meta.properties"]))
    assert properties["version"] == "1"
    assert (properties["cluster.id"], properties["node.id"]) == ("abc", "7")
    assert len(properties["directory.id"]) == 22


async def test_the_directory_id_stays() -> None:
    world = World()
    manager = await world.open()
    first = manager.folders[0].directory_id
    await manager.close()
    assert (await world.open()).folders[0].directory_id == first


async def test_a_folder_in_use_names_the_process_that_has_it() -> None:
    world = World()
    await world.open()
    with pytest.raises(DataFolderError, match=r"/data is in use by another broker \(pid 42\)"):
        await world.open()


@pytest.mark.parametrize("other", [{"cluster_id": "another"}, {"node_id": 2}])
async def test_a_folder_of_another_broker_is_refused_and_left_unlocked(other: dict[str, object]) -> None:
    world = World()
    await (await world.open()).close()
    with pytest.raises(
        DataFolderError, match=r"belongs to (cluster\.id=cluster|node\.id=1), this broker has"
    ):
        await world.open(**other)
    await world.open()


async def test_a_folder_that_cannot_be_written_is_one_clear_sentence() -> None:
    world = World()
    world.disk.failing["lock", ".lock"] = errno.EROFS
    with pytest.raises(DataFolderError, match="data folder /data cannot be used: injected"):
        await world.open()


async def test_logs_are_made_with_their_topic_id_and_found_again() -> None:
    world = World()
    manager = await world.open()
    topic_id = uuid.UUID(int=99)
    log = manager.create(OTHER, topic_id)
    assert manager.create(OTHER, topic_id) is log
    assert manager.get(OTHER) is log
    await settle()
    assert bytes(world.disk.files[f"{FOLDER}/other-topic-3/partition.metadata"]) == (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAYw"
    )
    await manager.close()
    assert (await world.open()).logs[OTHER].topic_id == topic_id


async def test_logs_go_to_the_folder_with_the_fewest() -> None:
    world = World()
    manager = await world.open(folders=["/one", "/two"])
    for i in range(6):
        manager.create(TopicPartition("t", i), None)
    assert (
        sorted(log.folder.rsplit("/", 1)[0] for log in manager.logs.values()) == ["/one"] * 3 + ["/two"] * 3
    )
    await manager.close()
    assert len((await world.open(folders=["/one", "/two"])).logs) == 6


async def test_a_deleted_log_is_gone_at_once_and_its_files_later() -> None:
    world = World(config(file_delete_delay_ms="20000"))
    manager = await world.open()
    log = manager.create(PARTITION, None)
    append(log, batch(b"a"))
    manager.delete(PARTITION)
    assert manager.get(PARTITION) is None
    await manager.vacated(PARTITION)
    assert [name for name in world.disk.list(FOLDER) if name.endswith("-delete")]
    with pytest.raises(FileNotFoundError):
        append(log, batch(b"b"))
    new = manager.create(PARTITION, None)
    assert new.next_offset == 0
    await world.tasks.advance(20)
    assert not [name for name in world.disk.list(FOLDER) if name.endswith("-delete")]
    assert append(new, batch(b"c")).base_offset == 0
    assert world.failures == []


async def test_what_a_deletion_left_behind_is_removed_at_the_start() -> None:
    world = World()
    manager = await world.open()
    manager.create(PARTITION, None)
    manager.delete(PARTITION)
    await manager.vacated(PARTITION)
    world.disk.locks.clear()
    manager = await world.open()
    assert manager.logs == {}
    assert not [name for name in world.disk.list(FOLDER) if name.endswith("-delete")]


async def test_a_deleted_log_keeps_its_folder_while_it_is_written_to() -> None:
    world = World()
    manager = await world.open()
    manager.create(PARTITION, uuid.UUID(int=1))  # writes its id in the background
    manager.delete(PARTITION)
    assert world.disk.exists(f"{FOLDER}/{PARTITION}")
    await manager.vacated(PARTITION)
    assert not world.disk.exists(f"{FOLDER}/{PARTITION}")
    assert world.failures == []


async def test_a_clean_stop_leaves_kafkas_mark_and_a_start_takes_it_away() -> None:
    world = World()
    manager = await world.open()
    append(manager.create(PARTITION, None), batch(b"a", b"b"))
    await manager.close(broker_epoch=5)
    assert bytes(world.disk.files[f"{FOLDER}/.kafka_cleanshutdown"]) == b'{"version":0,"brokerEpoch":5}'
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert read_offsets(bytes(world.disk.files[f"{FOLDER}/{name}"])) == {PARTITION: 2}
    await world.open()
    assert not world.disk.exists(f"{FOLDER}/.kafka_cleanshutdown")


async def test_checkpoints_are_written_regularly_and_only_when_they_changed() -> None:
    world = World()
    manager = await world.open(checkpoint_interval_s=60)
    log = manager.create(PARTITION, None)
    append(log, batch(b"a"))
    await log.flush()
    await world.tasks.advance(60)
    path = f"{FOLDER}/recovery-point-offset-checkpoint"
    assert read_offsets(bytes(world.disk.files[path])) == {PARTITION: 1}
    written = world.disk.calls["write_atomic", "recovery-point-offset-checkpoint"]
    await world.tasks.advance(120)
    assert world.disk.calls["write_atomic", "recovery-point-offset-checkpoint"] == written
    await manager.close()


async def test_the_high_watermark_that_is_kept_is_the_replications() -> None:
    world = World()
    manager = await world.open(high_watermark_of=lambda log: log.next_offset - 1)
    append(manager.create(PARTITION, None), batch(b"a", b"b"))
    await manager.close()
    assert (await world.open()).checkpointed_high_watermarks == {PARTITION: 1}


async def test_a_failing_folder_takes_only_its_own_logs_offline() -> None:
    world = World()
    manager = await world.open(folders=["/one", "/two"])
    logs = [manager.create(TopicPartition("t", i), None) for i in range(4)]
    for log in logs:
        append(log, batch(b"a"))
        await log.flush()
    bad = [log for log in logs if log.folder.startswith("/one")]
    good = [log for log in logs if log.folder.startswith("/two")]
    append(bad[0], batch(b"b"))
    world.disk.failing["sync", f"{bad[0].topic_partition}/{0:020d}.log"] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        await bad[0].flush()
    for log in bad:
        with pytest.raises(OSError, match="injected"):
            append(log, batch(b"c"))
    for log in good:
        assert append(log, batch(b"c")).base_offset == 1
    assert manager.create(TopicPartition("t", 9), None).folder.startswith("/two")
    await manager.close()
    assert world.disk.exists("/two/.kafka_cleanshutdown")
    assert not world.disk.exists("/one/.kafka_cleanshutdown")


async def test_many_logs_open_without_reading_data() -> None:
    world = World()
    manager = await world.open()
    for i in range(200):
        append(manager.create(TopicPartition("t", i), None), batch(b"a"))
    await manager.close()
    world.disk.calls.clear()
    manager = await world.open()
    assert [log.next_offset for log in manager.logs.values()] == [1] * 200
    assert world.disk.reads_of(".log") == 0


async def test_silent_producers_are_forgotten() -> None:
    world = World()
    manager = await world.open()
    log = manager.create(PARTITION, None)
    append(log, batch(b"a", timestamp=1000, producer_id=4, producer_epoch=0, base_sequence=0))
    assert log.expire_producers(1000, 86_400_000) == 0
    assert log.expire_producers(1000 + 86_400_000, 86_400_000) == 1
    assert log.producers() == []
