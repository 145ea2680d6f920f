"""A log moves from one data folder to another while it serves (KIP-113): whole, the same, and unnoticed."""

from __future__ import annotations

import uuid

from log_world import NOW_MS, PARTITION, append, batch, batches_in, data_of
from move_stage import TOPIC_ID, A, B, Stage, fill, on_stage, read_all

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import read_offsets
from moldau.log.cleaner.cleaner import CleanerSettings, LogCleaner
from moldau.log.inspect.findings import Seen, Severity
from moldau.log.inspect.folder import verify_folder
from moldau.log.inspect.sizes import measure_folder
from moldau.log.transactions import Marker
from moldau.records.record import Record, build_batch, read_records


def test_a_moved_log_is_the_same_byte_by_byte_and_its_old_folder_goes() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log)
        before, content = read_all(log), stage.content(log.folder)
        assert len(content) > 2
        await stage.begin(log, B)
        (future,) = stage.futures
        assert names.future_of(future.rpartition("/")[2]) == PARTITION and future.startswith(B)
        await stage.until_moved(log, B)
        assert log.folder == f"{B}/{PARTITION}"
        assert stage.content(log.folder) == content
        assert read_all(log) == before
        fill(log, first=60)
        await stage.sleep(log.config.file_delete_delay_ms / 1000 + 1)
        assert stage.places == [log.folder]
        await stage.close()
        again = await stage.open()
        assert again.folder == log.folder and len(read_all(again)) == 240
        await stage.close()

    on_stage(main)


def test_a_log_moves_there_and_back() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log)
        for number, path in enumerate((B, A, B, A)):
            await stage.begin(log, path)
            await stage.until_moved(log, path)
            fill(log, 10, first=60 + 10 * number)
        assert [record.offset for record in read_all(log)] == list(range(200))
        await stage.close()
        assert len(read_all(await stage.open())) == 200
        await stage.close()

    on_stage(main)


def test_what_is_appended_meanwhile_moves_too_and_a_retry_is_known_afterwards() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 200)
        stage.bytes_per_s = 20_000
        await stage.begin(log, B)
        move = stage.manager.moves.under_way[PARTITION]
        assert move.offset_lag == 400
        number = 200
        while log.folder.startswith(A):
            fill(log, 1, first=number)
            number += 1
            await stage.sleep(0.1)
        stage.bytes_per_s = None
        await stage.until_moved(log, B)
        assert [record.offset for record in read_all(log)] == list(range(2 * number))
        fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 2 * (number - 1)}
        retried = append(
            log, build_batch([Record(i, NOW_MS + number - 1, b"k", b"x") for i in range(2)], **fields)
        )
        assert retried.duplicate and retried.last_offset == 2 * number - 1
        await stage.close()

    on_stage(main)


def test_the_pace_is_kept() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        for _ in range(20):
            append(log, batch(b"x" * 100_000))
        stage.bytes_per_s = 100_000
        clock = stage.host.runtime.clock
        began = clock.monotonic()
        await stage.begin(log, B)
        await stage.until_moved(log, B)
        assert 15 < clock.monotonic() - began < 25
        await stage.close()

    on_stage(main, segment_bytes="10000000")


def test_an_open_transaction_a_guard_and_what_was_aborted_move_along() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()

        def write(producer_id: int, sequence: int) -> None:
            guard = log.producing.begin_verification(producer_id, 0, sequence, False)
            record = Record(0, NOW_MS, b"k", b"v")
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            data = memoryview(bytearray(build_batch([record], transactional=True, **fields)))
            assert not log.append(data, 0, len(data), 0, NOW_MS, True, guard).error

        write(1, 0)
        log.producing.append_marker(Marker(False, 0), 1, 0, 0, NOW_MS)
        fill(log)
        write(2, 0)
        guard = log.producing.begin_verification(3, 0, 0, False)
        await stage.begin(log, B)
        await stage.until_moved(log, B)
        assert guard is not None and log.producing.state.is_verified(3, 0, guard)
        assert log.producing.state.open.first_unstable_offset(log.next_offset) == log.next_offset - 1
        log.producing.append_marker(Marker(False, 0), 2, 0, 0, NOW_MS)
        assert [one.producer_id for one in log.producing.aborted.below(log.next_offset)] == [1, 2]
        await stage.close()
        log = await stage.open()
        assert log.producing.aborted.bases
        await stage.close()

    on_stage(main)


def test_who_reads_while_the_log_changes_its_folder_reads_on() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log)
        found = log.read(0, 1 << 20, below_offset=log.next_offset, whole_first_batch=True)
        await stage.begin(log, B)
        await stage.until_moved(log, B)
        assert [r.offset for one in batches_in(data_of(found)) for r in read_records(one)][:3] == [0, 1, 2]
        await stage.close()

    on_stage(main)


def test_the_copy_follows_a_truncation_and_another_leader() -> None:
    for seed in range(12):

        async def main(stage: Stage, seed: int = seed) -> None:
            log = await stage.open()
            fill(log, 100)
            stage.bytes_per_s = 15_000
            await stage.begin(log, B)
            await stage.sleep(0.1 + 0.05 * seed)
            await log.truncate_to(150 - 10 * seed, stage.manager.write_checkpoints_of)
            fill(log, 30, first=log.next_offset // 2, epoch=3)
            await stage.sleep(0.2)
            if seed % 3 == 0:
                await log.truncate_fully_and_start_at(40 * seed, stage.manager.write_checkpoints_of)
                fill(log, 30, first=0, epoch=4)
            stage.bytes_per_s = None
            before, epochs = read_all(log), log.epochs.entries
            await stage.until_moved(log, B)
            assert read_all(log) == before
            assert log.epochs.entries == epochs
            await stage.close()
            again = await stage.open()
            assert read_all(again) == before and again.epochs.entries == epochs
            await stage.close()

        on_stage(main, seed)


def test_the_copy_follows_deleted_records_and_retention() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 100)
        stage.bytes_per_s = 15_000
        await stage.begin(log, B)
        await stage.sleep(0.2)
        log.delete_records_before(130)
        await stage.manager.write_checkpoints()
        await log.remove_old_segments()
        stage.bytes_per_s = None
        await stage.until_moved(log, B)
        assert [record.offset for record in read_all(log)] == list(range(130, 200))
        await stage.close()
        assert (await stage.open()).log_start_offset == 130
        await stage.close()

    on_stage(main)


def test_a_log_that_is_compacted_to_nothing_in_front_keeps_its_offsets() -> None:
    """Its first segment is empty, and the last one begins behind a gap."""

    async def main(stage: Stage) -> None:
        log = await stage.open()
        await log.truncate_fully_and_start_at(1000, stage.manager.write_checkpoints_of)
        await stage.begin(log, B)
        await stage.until_moved(log, B)
        assert (log.log_start_offset, log.next_offset) == (1000, 1000)
        append(log, batch(b"v"))
        await stage.close()
        again = await stage.open()
        assert (again.log_start_offset, again.next_offset) == (1000, 1001)
        await stage.close()

    on_stage(main)


def test_the_checkpoints_go_with_the_log() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log)
        log.reshaping.cleaned_to = 40
        log.delete_records_before(10)
        await stage.begin(log, B)
        await stage.until_moved(log, B)
        await stage.close()
        disk = stage.host.runtime.disk
        expected = {
            names.RECOVERY_POINTS: 120,
            names.LOG_STARTS: 10,
            names.HIGH_WATERMARKS: 120,
            names.CLEANER_OFFSETS: 40,
        }
        for name, offset in expected.items():
            assert read_offsets(disk.read(f"{B}/{name}")) == {PARTITION: offset}
            assert read_offsets(disk.read(f"{A}/{name}")) == {}

    on_stage(main)


def test_another_folder_ends_the_move_and_so_does_the_one_where_it_is() -> None:
    async def main(stage: Stage) -> None:
        stage.folders = [A, B, "/c"]
        log = await stage.open()
        fill(log, 200)
        stage.bytes_per_s = 1000
        await stage.begin(log, B)
        await stage.sleep(0.5)
        await stage.begin(log, "/c")
        assert [path.rpartition("/")[0] for path in stage.futures] == ["/c"]
        await stage.begin(log, A)
        await stage.sleep(1)
        assert stage.places == [log.folder]
        assert not log.reshaping.is_moving
        await stage.close()

    on_stage(main)


def test_of_two_who_ask_at_once_the_last_is_heard_and_nothing_of_the_first_is_left() -> None:
    async def main(stage: Stage) -> None:
        stage.folders = [A, B, "/c"]
        log = await stage.open()
        fill(log, 200)
        for path in (B, "/c"):
            (folder,) = [one for one in stage.manager.folders if one.path == path]
            folder.stale.add(PARTITION)  # so that both wait
        tasks = [stage.host.runtime.tasks.spawn(stage.begin(log, path), name=path) for path in (B, "/c")]
        for task in tasks:
            await task
        await stage.until_moved(log, "/c")
        await stage.sleep(log.config.file_delete_delay_ms / 1000 + 1)
        assert stage.places == [log.folder]
        await stage.close()

    on_stage(main)


def test_a_deleted_log_takes_its_copy_with_it() -> None:
    for seed in range(10):

        async def main(stage: Stage, seed: int = seed) -> None:
            log = await stage.open()
            fill(log, 100)
            await stage.begin(log, B)
            await stage.sleep(0.002 * seed)
            stage.manager.delete(PARTITION)
            await stage.manager.vacated(PARTITION)
            other = stage.manager.create(PARTITION, uuid.UUID(int=8))
            fill(other, 3)
            await stage.sleep(other.config.file_delete_delay_ms / 1000 + 1)
            assert stage.places == [other.folder]
            assert len(read_all(other)) == 6
            await stage.close()

        on_stage(main, seed)


def test_a_log_that_is_moved_is_not_compacted_meanwhile() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        for number in range(200):
            append(log, build_batch([Record(0, NOW_MS, b"%d" % (number % 3), b"x" * 50)]))
        stage.bytes_per_s = 1000
        await stage.begin(log, B)
        cleaner = LogCleaner(
            stage.host.runtime,
            stage.manager,
            lambda: CleanerSettings(backoff_ms=100),
            stable_offset_of=lambda log: log.next_offset,
        )
        cleaner.start()
        await stage.sleep(5)
        assert cleaner.counts.compactions == 0
        stage.bytes_per_s = None
        await stage.until_moved(log, B)
        await stage.sleep(5)
        assert cleaner.counts.compactions == 1
        await cleaner.stop()
        await stage.close()

    on_stage(main, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")


def test_a_stop_leaves_a_move_to_the_next_start() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 200)
        content = stage.content(log.folder)
        stage.bytes_per_s = 10_000
        await stage.begin(log, B)
        await stage.sleep(1)
        copied = stage.manager.moves.under_way[PARTITION].copy.next_offset
        assert 0 < copied < 400
        await stage.close()
        assert len(stage.futures) == 1
        log = await stage.open()
        assert stage.manager.moves.under_way[PARTITION].copy.next_offset >= copied
        stage.bytes_per_s = None
        await stage.until_moved(log, B)
        assert stage.content(log.folder) == content
        await stage.close()

    on_stage(main)


def test_a_copy_that_is_left_behind_is_looked_into_from_outside() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 200)
        stage.bytes_per_s = 10_000
        await stage.begin(log, B)
        await stage.sleep(1)
        await stage.close()
        disk = stage.host.runtime.disk
        (future,) = stage.futures
        (found,) = verify_folder(disk, B, Seen())
        assert (found.severity, found.path) == (Severity.NOTE, future)
        assert not list(verify_folder(disk, A, Seen()))
        (size,) = measure_folder(disk, B)
        assert size.is_future and size.partition == PARTITION and 0 < size.next_offset < 400
        disk.open(f"{future}/{0:020d}.log").pwrite(b"\xff", 300)
        assert Severity.DAMAGE in [one.severity for one in verify_folder(disk, B, Seen())]

    on_stage(main)


def test_a_copy_from_before_a_compaction_is_begun_anew() -> None:
    """It may hold what a tombstone has deleted that is gone by now."""

    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 200)
        stage.bytes_per_s = 10_000
        await stage.begin(log, B)
        await stage.sleep(1)
        await stage.close()
        disk = stage.host.runtime.disk
        disk.write_atomic(f"{A}/{names.CLEANER_OFFSETS}", f"0\n1\n{PARTITION.topic} 0 50\n".encode())
        stage.bytes_per_s = 0
        await stage.open()
        await stage.sleep(0.5)
        assert stage.manager.moves.under_way[PARTITION].copy.next_offset == 0
        await stage.close()

    on_stage(main)


def test_a_partition_is_created_in_the_folder_that_was_asked_for() -> None:
    async def main(stage: Stage) -> None:
        await stage.open()
        for number, path in enumerate((A, B, B, A)):
            place = TopicPartition("other", number)
            stage.manager.moves.prefer(place, path)
            assert stage.manager.create(place, TOPIC_ID).folder == f"{path}/{place}"
        assert not stage.manager.moves.preferred
        await stage.close()

    on_stage(main)


def test_names_of_future_folders_are_kafkas() -> None:
    place = TopicPartition("a-b.c", 12)
    name = names.future_folder(place, uuid.UUID(int=255))
    assert name == "a-b.c-12.000000000000000000000000000000ff-future"
    assert names.future_of(name) == place
    assert names.partition_of(name) is None
    assert names.future_of("a-b.c-12") is None
