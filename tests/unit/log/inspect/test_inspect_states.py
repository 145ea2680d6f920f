"""What verifying makes of crashes, running brokers, compaction, failing disks and lengths that lie."""

from __future__ import annotations

import asyncio
import errno
import uuid

import pytest
from damage import FOLDER, HERE, SEGMENT, SIZE, become, cut, flip, folder, log_file, more, put, show, verify
from log_world import NOW_MS, PARTITION, MemoryDisk, MemoryFile, World, append, batch, config

from moldau.base.ids import TopicPartition
from moldau.log.inspect.batches import WINDOW_BYTES, BadStretch, batches_and_damage
from moldau.log.inspect.files import Standing, in_use
from moldau.log.inspect.findings import Finding, Kind, Seen, Severity
from moldau.log.inspect.folder import verify_folder
from moldau.log.inspect.partition import verify_partition
from moldau.records.batch import read_header
from moldau.records.record import Record, assemble, build_batch

LAST = log_file(40)


def by_severity(found: list[Finding], severity: Severity) -> list[tuple[Kind, str, int | None]]:
    return [(f.kind, f.path, f.position) for f in found if f.severity is severity]


# After a crash


@pytest.mark.parametrize(
    ("tail", "kind"),
    [(b"\0" * 300, Kind.ZEROES), (batch(b"later")[:70], Kind.TORN_TAIL), (b"rubbish", Kind.TORN_TAIL)],
)
def test_what_a_crash_leaves_behind_the_recovery_point_will_be_repaired(tail: bytes, kind: Kind) -> None:
    world = asyncio.run(folder(clean=False))
    more(tail)(world, LAST)
    found = verify(world)
    assert by_severity(found, Severity.DAMAGE) == []
    assert (kind, LAST, SEGMENT) in by_severity(found, Severity.REPAIR), show(found)


def test_a_crash_alone_costs_only_indexes_that_are_built_anew() -> None:
    found = verify(asyncio.run(folder(clean=False)))
    assert {f.kind for f in found} <= {Kind.INDEX_MISSING, Kind.INDEX_ENTRY}
    assert by_severity(found, Severity.DAMAGE) == []


def test_flushed_records_that_a_crash_took_are_damage() -> None:
    world = asyncio.run(folder(clean=False))
    cut(9 * SIZE)(world, LAST)
    found = verify(world)
    points = f"{FOLDER}/recovery-point-offset-checkpoint"
    assert by_severity(found, Severity.DAMAGE) == [(Kind.CHECKPOINT, points, None)], show(found)


def test_damage_before_good_batches_is_damage_although_the_next_start_would_cut_it_off() -> None:
    world = asyncio.run(folder(clean=False))
    become(b"0\n1\ntopic 0 40\n")(world, f"{FOLDER}/recovery-point-offset-checkpoint")
    flip(2 * SIZE + 90)(world, LAST)
    (finding,) = [f for f in verify(world) if f.severity is Severity.DAMAGE]
    assert (finding.kind, finding.position) == (Kind.CHECKSUM, 2 * SIZE)
    assert "would cut off" in finding.advice


# Beside a running broker


async def running() -> World:
    world = World(config(segment_bytes=str(SEGMENT), index_interval_bytes="300"))
    log = await world.new_log()
    for i in range(45):
        append(log, batch(b"x" * 100, timestamp=NOW_MS + i))
    await log.flush()
    return world


def test_a_running_broker_is_noted_and_its_unfinished_write_is_normal() -> None:
    world = asyncio.run(running())
    assert in_use(world.disk, FOLDER)  # type: ignore[arg-type]
    for tail in (b"", batch(b"x")[:50], batch(b"x")[:65], bytes(500)):
        put(5 * (SIZE), None, tail)(world, LAST)
        assert [(f.severity, f.kind) for f in verify(world)] == [(Severity.NOTE, Kind.RUNNING)], tail


def test_damage_in_a_closed_segment_is_found_beside_a_running_broker() -> None:
    world = asyncio.run(running())
    flip(90)(world, log_file(20))
    assert by_severity(verify(world), Severity.DAMAGE) == [(Kind.CHECKSUM, log_file(20), 0)]


class Flickering(MemoryDisk):
    """Its first reads of a file give something that is gone at the second look."""

    path = log_file(20)
    opened = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        if path == self.path:
            self.opened += 1
            if self.opened == 1:
                return _Flipped(self, path)
        return file


class _Flipped(MemoryFile):
    def pread(self, length: int, position: int) -> bytes:
        data = bytearray(super().pread(length, position))
        data[90] ^= 1
        return bytes(data)


def test_damage_that_is_gone_at_the_second_look_is_a_running_brokers_work() -> None:
    world = asyncio.run(running())
    disk = Flickering()
    disk.files, disk.folders, disk.locks = world.disk.files, world.disk.folders, world.disk.locks
    found = list(verify_folder(disk, FOLDER, Seen()))  # type: ignore[arg-type]
    assert disk.opened == 2
    assert by_severity(found, Severity.DAMAGE) == [], show(found)
    disk.opened, disk.locks = 0, set()
    found = list(verify_folder(disk, FOLDER, Seen()))  # type: ignore[arg-type]
    assert (Kind.CHECKSUM, log_file(20), 0) in by_severity(found, Severity.DAMAGE)


# Compaction


def without_a_batch() -> World:
    world = asyncio.run(folder())
    put(3 * SIZE, 4 * SIZE, b"")(world, log_file(20))
    for suffix in (".index", ".timeindex"):
        del world.disk.files[log_file(20, suffix)]
    return world


def test_a_gap_that_compaction_made_is_no_damage() -> None:
    world = without_a_batch()
    assert by_severity(verify(world), Severity.DAMAGE) == [(Kind.GAP, log_file(20), 3 * SIZE)]
    become(b"0\n1\ntopic 0 30\n")(world, f"{FOLDER}/cleaner-offset-checkpoint")
    assert by_severity(verify(world), Severity.DAMAGE) == []


def test_a_batch_that_lost_records_shows_that_gaps_are_compactions() -> None:
    world = without_a_batch()
    content = world.disk.files[log_file(0)]
    header = read_header(content)
    assemble_with_gap = assemble(header._replace(count=0), b"")
    content[:SIZE] = assemble_with_gap
    for suffix in (".index", ".timeindex"):
        del world.disk.files[log_file(0, suffix)]
    assert by_severity(verify(world), Severity.DAMAGE) == []


def test_brokers_own_topics_are_compacted() -> None:
    world = without_a_batch()
    world.disk.rename(HERE, f"{FOLDER}/__consumer_offsets-0")
    found = list(verify_folder(world.disk, FOLDER, Seen()))  # type: ignore[arg-type]
    assert by_severity(found, Severity.DAMAGE) == [], show(found)


# The rest


def test_topic_ids_are_compared_without_a_store_too() -> None:
    world = asyncio.run(folder())
    for number in (1, 2):
        path = f"{FOLDER}/topic-{number}"
        world.disk.make_folder(path)
        become(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACA")(world, f"{path}/partition.metadata")
    found = list(verify_folder(world.disk, FOLDER, Seen()))  # type: ignore[arg-type]
    assert by_severity(found, Severity.DAMAGE) == [(Kind.METADATA, f"{HERE}/partition.metadata", None)]


def test_a_file_that_the_disk_cannot_read_is_named() -> None:
    for path in (log_file(20), log_file(20, ".index")):
        world = asyncio.run(folder())
        world.disk.failing["pread", path] = errno.EIO
        found = verify(world)
        assert [f.kind for f in found] == [Kind.UNREADABLE], show(found)
        assert found[0].path == path


def test_one_segment_is_verified_alone() -> None:
    world = asyncio.run(folder())
    seen = Seen()
    standing = Standing(clean=True, recovery_point=50)
    for path, position in ((log_file(10), 6), (log_file(10), 9 * SIZE + 7), (log_file(30), 90)):
        flip(position)(world, path)

    def look(base_offset: int) -> list[tuple[Kind, str, int | None]]:
        found = verify_partition(world.disk, HERE, standing, seen, only_segment=base_offset)  # type: ignore[arg-type]
        return by_severity(list(found), Severity.DAMAGE)

    assert look(0) == look(20) == look(40) == []
    assert look(10) == [(Kind.OFFSETS, log_file(10), 0), (Kind.OFFSETS, log_file(10), 9 * SIZE)]
    assert look(30) == [(Kind.CHECKSUM, log_file(30), 0)]
    assert seen.segments == 5 and seen.partitions == 0


def test_records_that_are_malformed_under_a_right_checksum_are_found_when_asked_for() -> None:
    world = asyncio.run(folder())
    header = read_header(world.disk.files[LAST], 9 * SIZE)
    put(9 * SIZE, None, assemble(header, b"\x02" * (SIZE - 61)))(world, LAST)
    assert verify(world) == []
    assert by_severity(verify(world, records=True), Severity.DAMAGE) == [(Kind.RECORDS, LAST, 9 * SIZE)]


class Measuring(MemoryDisk):
    longest = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        disk = self

        class File(MemoryFile):
            def pread(self, length: int, position: int) -> bytes:
                disk.longest = max(disk.longest, length)
                return super().pread(length, position)

        super().open(path, create=create)
        return File(self, path)


def test_a_length_that_lies_does_not_make_us_read_the_segment_at_once() -> None:
    big = build_batch([Record(1, NOW_MS, None, b"y" * (3 * WINDOW_BYTES))])
    content = bytearray(batch(b"a") + big + build_batch([Record(2, NOW_MS, None, b"z")]))
    content[8:12] = (len(content) - 100).to_bytes(4, "big")  # the first batch claims nearly all of the file
    disk = Measuring()
    disk.files["/x"] = content
    found = list(batches_and_damage(disk.open("/x"), len(content)))
    assert isinstance(found[0], BadStretch) and found[0].next_offset == 1
    assert [b.header.base_offset for b in found[1:] if not isinstance(b, BadStretch)] == [1, 2]
    assert disk.longest <= WINDOW_BYTES


def test_a_partition_without_a_data_folder_around_it_is_verified_too() -> None:
    world = asyncio.run(folder())
    found = list(verify_partition(world.disk, HERE, Standing(), Seen()))  # type: ignore[arg-type]
    assert by_severity(found, Severity.DAMAGE) == [], show(found)
    flip(90)(world, log_file(20))
    found = list(verify_partition(world.disk, HERE, Standing(), Seen()))  # type: ignore[arg-type]
    assert by_severity(found, Severity.DAMAGE) == [(Kind.CHECKSUM, log_file(20), 0)]


def test_an_idle_partition_and_timestamps_of_1970_are_sound() -> None:
    async def make(timestamp: int) -> World:
        world = World()
        log = await world.new_log()
        world.manager.create(TopicPartition(PARTITION.topic, 1), uuid.UUID(int=7))
        append(log, batch(b"a", timestamp=timestamp))
        await world.manager.close()
        return world

    for timestamp in (0, -1, NOW_MS):
        found = verify(asyncio.run(make(timestamp)))
        assert found == [], show(found)
