"""Each damage to each kind of file, on each way to meet it: what becomes of the log, and what `verify` says.

The ways: a start after a clean stop, a start after kill -9, and a broker that runs and comes to read the file. Of
every record one of three things holds afterwards: it is read as it was written, its reader is told that it is
damaged, or the log ends before it. None is ever read as anything else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum

import pytest
from damage import HERE, SIZE, Damage, cut, flip, folder, gone, log_file, show, swap_with, verify, zero
from log_world import FOLDER, NOW_MS, PARTITION, World, append, batch, data_of

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.folder import DataFolderError
from moldau.log.inspect.findings import Severity
from moldau.log.log import Log
from moldau.records.record import read_records

COUNT = 50
RETRIES_MAX = 8


class Outcome(Enum):
    WHOLE = "everything is as before: what was damaged is rebuilt, or was of no use"
    TOLD = "who reads the damaged records is told, and all others are read"
    LESS = "the records of a file that is gone are missing, and the log says so"
    ENDS = "the log ends before the damage, and says so"
    STALE = "the producers are as an earlier snapshot has them: only `verify` can tell"
    OTHER = "the log says that it is another topic's: the broker sets it aside, and says so"
    REFUSED = "the broker does not start, and one sentence says why"


WHOLE, TOLD, LESS, ENDS, STALE, OTHER, REFUSED = Outcome

CLOSED, ACTIVE = log_file(20), log_file(40)
META = f"{FOLDER}/meta.properties"
POINTS = f"{FOLDER}/recovery-point-offset-checkpoint"
STARTS = f"{FOLDER}/log-start-offset-checkpoint"
WATERMARKS = f"{FOLDER}/replication-offset-checkpoint"
EPOCHS = f"{HERE}/leader-epoch-checkpoint"
TOPIC_ID = f"{HERE}/partition.metadata"

KINDS = {
    "closed segment": (CLOSED, swap_with(log_file(30))),
    "active segment": (ACTIVE, swap_with(log_file(30))),
    "offset index": (log_file(20, ".index"), swap_with(log_file(20, ".timeindex"))),
    "time index": (log_file(20, ".timeindex"), swap_with(log_file(30, ".timeindex"))),
    "snapshot": (log_file(40, ".snapshot"), swap_with(log_file(30, ".snapshot"))),
    "last snapshot": (log_file(50, ".snapshot"), swap_with(log_file(40, ".snapshot"))),
    "leader epochs": (EPOCHS, swap_with(TOPIC_ID)),
    "topic id": (TOPIC_ID, swap_with(EPOCHS)),
    "recovery points": (POINTS, swap_with(EPOCHS)),
    "log starts": (STARTS, swap_with(EPOCHS)),
    "high watermarks": (WATERMARKS, swap_with(EPOCHS)),
    "meta.properties": (META, swap_with(EPOCHS)),
}
DAMAGES = ("flipped", "cut", "missing", "zeroes", "swapped")


def damage_of(kind: str, how: str) -> tuple[str, Damage]:
    path, swap = KINDS[kind]

    def cut_in_half(world: World, path: str) -> None:
        size = len(world.disk.files[path])
        cut(size // 2 + 1 if path.endswith(".log") else size // 2 - size // 2 % 12 + 1)(world, path)

    def flip_one(world: World, path: str) -> None:
        in_log = 4 * SIZE + 80  # in the records of the fifth batch
        flip(in_log if path.endswith(".log") else len(world.disk.files[path]) // 2)(world, path)

    made: dict[str, Damage] = {
        "flipped": flip_one,
        "cut": cut_in_half,
        "missing": gone,
        "zeroes": zero(),
        "swapped": swap,
    }
    return path, made[how]


CLEAN, CRASH, RUNNING = "after a clean stop", "after kill -9", "while running"
WAYS = (CLEAN, CRASH, RUNNING)
ALL_WHOLE = (WHOLE, WHOLE, WHOLE)
ALL_TOLD = (TOLD, TOLD, TOLD)
NO_START = (REFUSED, REFUSED, WHOLE)

OTHER_THAN_WHOLE: dict[tuple[str, str], tuple[Outcome, Outcome, Outcome]] = {
    ("closed segment", "flipped"): ALL_TOLD,
    ("closed segment", "cut"): ALL_TOLD,
    ("closed segment", "missing"): (LESS, LESS, TOLD),
    ("closed segment", "zeroes"): ALL_TOLD,
    ("closed segment", "swapped"): ALL_TOLD,
    ("active segment", "flipped"): ALL_TOLD,
    ("active segment", "cut"): (TOLD, ENDS, TOLD),
    ("active segment", "missing"): (LESS, ENDS, TOLD),
    ("active segment", "zeroes"): (TOLD, ENDS, TOLD),
    ("active segment", "swapped"): (TOLD, ENDS, TOLD),
    ("last snapshot", "swapped"): (STALE, WHOLE, WHOLE),
    ("topic id", "flipped"): (OTHER, OTHER, WHOLE),
    **{("meta.properties", how): NO_START for how in DAMAGES},
}
"""What becomes of the log by kind and damage, for the three ways to meet it."""
CASES = [
    (kind, how, way, OTHER_THAN_WHOLE.get((kind, how), ALL_WHOLE)[number])
    for kind in KINDS
    for how in DAMAGES
    for number, way in enumerate(WAYS)
    if (kind, way) != ("last snapshot", CRASH)  # a crash leaves none at the end
]


async def met(world: World, way: str, path: str, harm: Damage) -> Log:
    """The log after the damage was met."""
    if way == RUNNING:
        log = (await world.open()).logs[PARTITION]
        harm(world, path)
        log.segments._closed.clear()
        log._reader.forget_positions()
        return log
    harm(world, path)
    world.disk.locks.clear()
    return (await world.open()).logs[PARTITION]


async def retried(log: Log, offset: int, work: Callable[[], Awaitable[str] | str]) -> str:
    for _ in range(RETRIES_MAX):
        try:
            found = work()
            return found if isinstance(found, str) else await found
        except BlockingIOError:
            await log.warm(offset, SIZE)
        except KafkaError as refused:
            assert refused.code is ErrorCode.corrupt_message
            return "told"
        except FileNotFoundError:
            return "told"
    raise AssertionError(f"offset {offset} is neither read nor refused")


async def read_one(log: Log, offset: int) -> str:
    """What a consumer at an offset gets: `right`, `told`, or `missing`. Anything else fails."""

    def read() -> str:
        data = data_of(log.read(offset, SIZE, below_offset=log.next_offset, whole_first_batch=True))
        records = [record for record in read_records(data) if record.offset >= offset] if data else []
        if not records or records[0].offset > offset:
            return "missing"
        (record,) = records
        assert (record.value, record.timestamp) == (b"x" * 100, NOW_MS + offset)
        return "right"

    return await retried(log, offset, read)


async def look_up_one(log: Log, offset: int) -> str:
    async def look_up() -> str:
        found = await log.find_timestamp(NOW_MS + offset)
        if found is None or found.offset > offset:
            return "missing"
        assert (found.offset, found.timestamp) == (offset, NOW_MS + offset)
        return "right"

    return await retried(log, offset, look_up)


PRODUCERS = [(0, 16, 48), (1, 16, 49), (2, 15, 47)]


async def outcome(log: Log, caplog: pytest.LogCaptureFixture) -> Outcome:
    offsets = range(log.next_offset)
    read = {await read_one(log, offset) for offset in offsets}
    looked_up = {await look_up_one(log, offset) for offset in offsets}
    said = " ".join(record.message for record in caplog.records if record.levelno >= logging.ERROR)
    if log.next_offset < COUNT:
        assert f"ends at offset {log.next_offset}, but was on the disk up to {COUNT}" in said
        return ENDS
    if "told" in read:
        return TOLD
    if "missing" in read:
        assert "is missing, with its records" in said
        return LESS
    assert (read, looked_up) == ({"right"}, {"right"})
    assert log.epochs.entries == [(0, 0), (1, 20), (2, 40)]
    if [(p.producer_id, p.last_sequence, p.last_offset) for p in log.producers()] != PRODUCERS:
        return STALE
    return WHOLE if log.topic_id is None or log.topic_id.int == 7 else OTHER


@pytest.mark.parametrize(("kind", "how", "way", "expected"), CASES)
async def test_damage_has_the_outcome_that_is_stated(
    kind: str, how: str, way: str, expected: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    world = await folder(clean=way != CRASH)
    path, harm = damage_of(kind, how)
    if expected is REFUSED:
        with pytest.raises(DataFolderError, match=r"meta\.properties"):
            await met(world, way, path, harm)
        return
    log = await met(world, way, path, harm)
    assert await outcome(log, caplog) is expected


OF_NO_USE = {
    ("snapshot", "missing"),  # of a segment in the middle: only recovery would have been faster with it
    ("last snapshot", "missing"),
    ("log starts", "missing"),  # no log begins behind its first segment
    ("high watermarks", "missing"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", DAMAGES)
async def test_verify_names_the_file_and_what_it_means(kind: str, how: str) -> None:
    world = await folder()
    path, harm = damage_of(kind, how)
    harm(world, path)
    found = verify(world)
    if (kind, how) in OF_NO_USE:
        assert not [f for f in found if f.severity is Severity.DAMAGE], show(found)
        return
    stem = path.removesuffix(".log")  # a segment that is gone is missed by its indexes
    about = [f for f in found if f.path.startswith(stem)]
    assert about and all(f.what for f in about), show(found)
    if how == "flipped" and path.endswith(".log"):
        assert [f.position for f in about if f.path == path] == [4 * SIZE]


@pytest.mark.parametrize(
    "kind", ["leader epochs", "topic id", "recovery points", "log starts", "high watermarks"]
)
@pytest.mark.parametrize("how", ["cut", "zeroes", "swapped"])
@pytest.mark.parametrize("way", [CLEAN, CRASH])
async def test_what_is_rebuilt_is_told(
    kind: str, how: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = await folder(clean=way != CRASH)
    path, harm = damage_of(kind, how)
    await met(world, way, path, harm)
    assert path.rpartition("/")[2] in caplog.text


@pytest.mark.parametrize("how", ["cut", "missing", "zeroes"])
async def test_deleted_records_stay_away_where_the_log_starts_are_lost(how: str) -> None:
    world = await folder()
    log = (await world.open()).logs[PARTITION]
    log.delete_records_before(15)
    await log.flush()
    await world.manager.close()
    path, harm = damage_of("log starts", how)
    harm(world, path)
    assert (await world.open()).logs[PARTITION].log_start_offset == 15


async def test_nothing_is_written_behind_a_segment_that_was_cut_off_after_a_clean_stop() -> None:
    world = await folder()
    cut(5 * SIZE + 10)(world, ACTIVE)
    log = (await world.open()).logs[PARTITION]
    with pytest.raises(OSError, match="does not end before offset 50, as it was left"):
        append(log, batch(b"new"))
    assert len(world.disk.files[ACTIVE]) == 5 * SIZE + 10
    assert world.manager.folders[0].failure is None, "it is one log's damage"
    await world.manager.close()
    log = (await world.open()).logs[PARTITION]
    assert log.next_offset == 45, "the next start has checked it"
    assert append(log, batch(b"new")).base_offset == 45


async def test_a_batch_with_a_changed_offset_is_not_served() -> None:
    """No checksum is of a batch's offset."""
    for position, told in ((4 * SIZE + 7, {23, 24}), (4 * SIZE, {24})):
        world = await folder()
        flip(position, 0x02)(world, CLOSED)
        log = (await world.open()).logs[PARTITION]
        await log.warm(20, 10 * SIZE)
        got = {offset for offset in range(20, 30) if await read_one(log, offset) != "right"}
        assert got & told, (position, got)
