"""Every kind of damage to every kind of file is found, in its place, and with the right severity."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from damage import (
    FOLDER,
    HERE,
    SEGMENT,
    SIZE,
    Damage,
    become,
    copy_of,
    cut,
    flip,
    folder,
    gone,
    log_file,
    make_folder,
    more,
    offset_entry,
    put,
    show,
    swap_with,
    time_entry,
    transaction,
    verify,
    zero,
)
from log_world import NOW_MS, World

from moldau.log.checkpoints import write_epochs
from moldau.log.inspect.findings import Kind, Severity

DAMAGE, REPAIR, NOTE = Severity.DAMAGE, Severity.REPAIR, Severity.NOTE
FIRST, LOG, MIDDLE, LAST = log_file(0), log_file(10), log_file(20), log_file(40)
INDEX, TIMES, TRANSACTIONS = log_file(10, ".index"), log_file(10, ".timeindex"), log_file(10, ".txnindex")
SNAPSHOT = log_file(30, ".snapshot")
POINTS = f"{FOLDER}/recovery-point-offset-checkpoint"
STARTS = f"{FOLDER}/log-start-offset-checkpoint"
WATERMARKS = f"{FOLDER}/replication-offset-checkpoint"
META = f"{FOLDER}/meta.properties"
EPOCHS = f"{HERE}/leader-epoch-checkpoint"
METADATA = f"{HERE}/partition.metadata"
AT_3 = 3 * SIZE
AT_9 = 9 * SIZE


class Case(NamedTuple):
    name: str
    path: str
    damage: Damage
    severity: Severity
    kind: Kind
    position: int | None = None


def batch_twice(world: World, path: str) -> None:
    content = world.disk.files[path]
    content[AT_3:AT_3] = content[2 * SIZE : AT_3]


LOGS = [
    Case("a bit of a record", LOG, flip(AT_3 + 90), DAMAGE, Kind.CHECKSUM, AT_3),
    Case("the checksum itself", LOG, flip(AT_3 + 18), DAMAGE, Kind.CHECKSUM, AT_3),
    Case("the first batch", FIRST, flip(80), DAMAGE, Kind.CHECKSUM, 0),
    Case("the last batch", LAST, flip(AT_9 + 80), DAMAGE, Kind.CHECKSUM, AT_9),
    Case("a length", LOG, flip(AT_3 + 11), DAMAGE, Kind.NOT_A_BATCH, AT_3),
    Case("a length of a quarter of a gigabyte", LOG, flip(AT_3 + 8), DAMAGE, Kind.NOT_A_BATCH, AT_3),
    Case("a magic byte", LOG, flip(AT_3 + 16), DAMAGE, Kind.NOT_A_BATCH, AT_3),
    Case("a base offset, far up", LOG, flip(AT_3 + 6), DAMAGE, Kind.OFFSETS, AT_3),
    Case("a base offset, to the next", LOG, flip(2 * SIZE + 7, 1), DAMAGE, Kind.OFFSETS, 2 * SIZE),
    Case("a base offset, downwards", LOG, flip(AT_9 + 7, 0x11), DAMAGE, Kind.OFFSETS, AT_9),
    Case("the last base offset", LAST, flip(AT_9 + 7, 0x40), DAMAGE, Kind.OFFSETS, AT_9),
    Case("a leader epoch, upwards", LOG, flip(AT_3 + 14), DAMAGE, Kind.LEADER_EPOCH, AT_3),
    Case("a leader epoch, downwards", log_file(30), flip(AT_3 + 15, 1), DAMAGE, Kind.LEADER_EPOCH, AT_3),
    Case("the last leader epoch", LAST, flip(AT_9 + 15), DAMAGE, Kind.LEADER_EPOCH, AT_9),
    Case("a torn tail", LAST, cut(AT_9 + 100), DAMAGE, Kind.TORN_TAIL, AT_9),
    Case("a tail torn within a header", LAST, cut(AT_9 + 20), DAMAGE, Kind.TORN_TAIL, AT_9),
    Case("the tail of a closed segment", MIDDLE, cut(AT_9 + 100), DAMAGE, Kind.TORN_TAIL, AT_9),
    Case("zeroes at the end", LAST, zero(8 * SIZE), DAMAGE, Kind.ZEROES, 8 * SIZE),
    Case("zeroes in the middle", MIDDLE, zero(AT_3, 5 * SIZE), DAMAGE, Kind.NOT_A_BATCH, AT_3),
    Case("nothing but zeroes", MIDDLE, zero(), DAMAGE, Kind.ZEROES, 0),
    Case("bytes missing", MIDDLE, put(300, 310, b""), DAMAGE, Kind.NOT_A_BATCH, SIZE),
    Case("bytes too many", MIDDLE, put(300, 300, b"12345"), DAMAGE, Kind.NOT_A_BATCH, SIZE),
    Case("garbage at the end", LAST, more(b"garbage" * 20), DAMAGE, Kind.NOT_A_BATCH, SEGMENT),
    Case("a batch that is gone", MIDDLE, put(AT_3, 4 * SIZE, b""), DAMAGE, Kind.GAP, AT_3),
    Case("a batch twice", MIDDLE, batch_twice, DAMAGE, Kind.OFFSETS, AT_3),
    Case("a swapped segment", LOG, swap_with(log_file(30)), DAMAGE, Kind.MISPLACED, 0),
    Case("a segment swapped with an older one", LOG, swap_with(FIRST), DAMAGE, Kind.MISPLACED, 0),
    Case("a copied segment", MIDDLE, copy_of(LOG), DAMAGE, Kind.MISPLACED, 0),
]
INDEXES = [
    Case("an offset index missing", INDEX, gone, REPAIR, Kind.INDEX_MISSING),
    Case("a time index missing", TIMES, gone, REPAIR, Kind.INDEX_MISSING),
    Case("an offset index cut within an entry", INDEX, cut(11), REPAIR, Kind.INDEX_CUT, 8),
    Case("a time index cut within an entry", TIMES, cut(18), REPAIR, Kind.INDEX_CUT, 12),
    Case("a time index cut between entries", TIMES, cut(24), DAMAGE, Kind.INDEX_SHORT),
    Case("a time index emptied", TIMES, cut(0), DAMAGE, Kind.INDEX_SHORT),
    Case("an entry into a batch", INDEX, offset_entry(1, 4, 4 * SIZE + 5), DAMAGE, Kind.INDEX_ENTRY, 8),
    Case("an entry before its offset", INDEX, offset_entry(1, 3, 4 * SIZE), DAMAGE, Kind.INDEX_ENTRY, 8),
    Case("an entry out of order", INDEX, offset_entry(2, 1, SIZE), DAMAGE, Kind.INDEX_ENTRY, 16),
    Case("an entry far ahead", INDEX, offset_entry(1, 4, 1 << 20), DAMAGE, Kind.INDEX_ENTRY, 8),
    Case("an entry past the end", INDEX, offset_entry(4, 20, SEGMENT), DAMAGE, Kind.INDEX_ENTRY, 32),
    Case("an entry of zeroes", INDEX, offset_entry(2, 0, 0), DAMAGE, Kind.INDEX_ENTRY, 16),
    Case("preallocated zeroes", INDEX, more(bytes(80)), DAMAGE, Kind.INDEX_ZEROES, 32),
    Case("preallocated zeroes of times", TIMES, more(bytes(120)), DAMAGE, Kind.INDEX_ZEROES, 60),
    Case("nothing but zeroes", TIMES, zero(), DAMAGE, Kind.INDEX_ZEROES, 0),
    Case("a wrong time", TIMES, time_entry(1, NOW_MS + 13, 4), DAMAGE, Kind.INDEX_ENTRY, 12),
    Case("a time out of order", TIMES, time_entry(2, NOW_MS, 6), DAMAGE, Kind.INDEX_ENTRY, 24),
    Case("a time of another offset", TIMES, time_entry(1, NOW_MS + 14, 3), DAMAGE, Kind.INDEX_ENTRY, 12),
    Case("a time past the end", TIMES, time_entry(5, NOW_MS + 99, 40), DAMAGE, Kind.INDEX_ENTRY, 60),
    Case("a transaction cut off", TRANSACTIONS, become(bytes(20)), REPAIR, Kind.INDEX_CUT, 0),
    Case("a late transaction", TRANSACTIONS, become(transaction(12, 25)), REPAIR, Kind.INDEX_ENTRY, 0),
    Case("a transaction of zeroes", TRANSACTIONS, become(bytes(34)), REPAIR, Kind.INDEX_ZEROES, 0),
    Case("no such transaction", TRANSACTIONS, become(transaction(12, 15)), DAMAGE, Kind.INDEX_ENTRY, 0),
    Case("one twice", TRANSACTIONS, become(2 * transaction(12, 15)), REPAIR, Kind.INDEX_ENTRY, 34),
    Case("swapped kinds of index", INDEX, swap_with(TIMES), REPAIR, Kind.INDEX_ENTRY, 0),
    Case("swapped time indexes", TIMES, swap_with(log_file(30, ".timeindex")), DAMAGE, Kind.INDEX_ENTRY, 0),
]
LOG_FILES = [
    Case("a snapshot's bit", SNAPSHOT, flip(20), REPAIR, Kind.SNAPSHOT),
    Case("a snapshot cut", SNAPSHOT, cut(30), REPAIR, Kind.SNAPSHOT),
    Case("a snapshot zeroed", SNAPSHOT, zero(), REPAIR, Kind.SNAPSHOT),
    Case("a newer snapshot", SNAPSHOT, swap_with(log_file(40, ".snapshot")), DAMAGE, Kind.SNAPSHOT),
    Case("an older snapshot", SNAPSHOT, swap_with(log_file(10, ".snapshot")), DAMAGE, Kind.SNAPSHOT),
    Case("epochs missing", EPOCHS, gone, REPAIR, Kind.EPOCHS),
    Case("epochs malformed", EPOCHS, become(b"0\n3\n0 0\n"), REPAIR, Kind.EPOCHS),
    Case("epochs going back", EPOCHS, become(write_epochs([(0, 0), (2, 20), (1, 40)])), DAMAGE, Kind.EPOCHS),
    Case("their offsets", EPOCHS, become(write_epochs([(0, 0), (1, 40), (2, 20)])), DAMAGE, Kind.EPOCHS),
    Case("a shifted epoch", EPOCHS, become(write_epochs([(0, 0), (1, 25), (2, 40)])), DAMAGE, Kind.EPOCHS),
    Case("epochs of another log", EPOCHS, become(write_epochs([(7, 0)])), DAMAGE, Kind.EPOCHS),
    Case(
        "a late epoch", EPOCHS, become(write_epochs([(0, 0), (1, 20), (2, 40), (3, 60)])), DAMAGE, Kind.EPOCHS
    ),
    Case("a late beginning", EPOCHS, become(write_epochs([(1, 20), (2, 40)])), DAMAGE, Kind.EPOCHS),
    Case("no metadata", METADATA, gone, REPAIR, Kind.METADATA),
    Case("malformed metadata", METADATA, become(b"version: 0\n"), REPAIR, Kind.METADATA),
    Case("metadata with a letter that no id has", METADATA, flip(30, 1), REPAIR, Kind.METADATA),
    Case("metadata of another topic", METADATA, flip(30, 2), DAMAGE, Kind.METADATA),
    Case("a foreign file", f"{HERE}/notes.txt", become(b""), NOTE, Kind.FOREIGN),
    Case("a short name", f"{HERE}/20.log", become(b""), NOTE, Kind.FOREIGN),
    Case("an interrupted removal", log_file(0, ".log.deleted"), become(b""), REPAIR, Kind.LEFTOVER),
    Case("an interrupted write", EPOCHS + ".tmp", become(b""), REPAIR, Kind.LEFTOVER),
    Case("an interrupted compaction", log_file(0, ".log.cleaned"), become(b""), REPAIR, Kind.LEFTOVER),
    Case("a finished compaction", log_file(0, ".log.swap"), become(b""), REPAIR, Kind.LEFTOVER),
]
FOLDER_FILES = [
    Case("a late recovery point", POINTS, become(b"0\n1\ntopic 0 60\n"), DAMAGE, Kind.CHECKPOINT),
    Case("an early recovery point", POINTS, become(b"0\n1\ntopic 0 45\n"), DAMAGE, Kind.CHECKPOINT),
    Case("malformed recovery points", POINTS, become(b"0\n2\ntopic 0 50\n"), REPAIR, Kind.CHECKPOINT),
    Case("zeroed recovery points", POINTS, zero(), REPAIR, Kind.CHECKPOINT),
    Case("no recovery points", POINTS, gone, REPAIR, Kind.CHECKPOINT),
    Case("one of nobody", POINTS, become(b"0\n2\ntopic 0 50\nno 0 5\n"), NOTE, Kind.CHECKPOINT),
    Case("a late log start", STARTS, become(b"0\n1\ntopic 0 60\n"), DAMAGE, Kind.CHECKPOINT),
    Case("a negative log start", STARTS, become(b"0\n1\ntopic 0 -6\n"), DAMAGE, Kind.CHECKPOINT),
    Case("malformed log starts", STARTS, become(b"0\n1\ntopic\n"), REPAIR, Kind.CHECKPOINT),
    Case("a late high watermark", WATERMARKS, become(b"0\n1\ntopic 0 60\n"), DAMAGE, Kind.CHECKPOINT),
    Case("malformed high watermarks", WATERMARKS, become(b"\xff"), REPAIR, Kind.CHECKPOINT),
    Case("no identity", META, gone, REPAIR, Kind.IDENTITY),
    Case("half an identity", META, become(b"version=1\ncluster.id=c\nnode.id=1\n"), DAMAGE, Kind.IDENTITY),
    Case("a zeroed identity", META, zero(), DAMAGE, Kind.IDENTITY),
    Case("a foreign file", f"{FOLDER}/notes.txt", become(b""), NOTE, Kind.FOREIGN),
    Case("a deleted topic", f"{FOLDER}/gone-0.f00-delete", make_folder, REPAIR, Kind.LEFTOVER),
    Case("a moved partition", f"{FOLDER}/gone-0.f00-stray", make_folder, NOTE, Kind.LEFTOVER),
    Case("Kafka's metadata", f"{FOLDER}/__cluster_metadata-0", make_folder, NOTE, Kind.SKIPPED),
    Case("an unknown topic", f"{FOLDER}/other-0", make_folder, NOTE, Kind.FOREIGN),
]
EVERY = [*LOGS, *INDEXES, *LOG_FILES, *FOLDER_FILES]


def test_a_sound_folder_gives_nothing() -> None:
    world = asyncio.run(folder())
    assert verify(world) == []
    assert verify(world, records=True) == []


@pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{case.path.rpartition('/')[2]}: {case.name}")
def test_damage_is_found_in_its_place_and_nothing_is_changed(case: Case) -> None:
    world = asyncio.run(folder())
    case.damage(world, case.path)
    before = {path: bytes(content) for path, content in world.disk.files.items()}
    found = verify(world)
    expected = (case.severity, case.kind, case.path, case.position)
    assert any((f.severity, f.kind, f.path, f.position) == expected for f in found), show(found)
    assert all(f.what and f.advice for f in found)
    if case.severity is not DAMAGE:
        assert not [f for f in found if f.severity is DAMAGE], show(found)
    assert {path: bytes(content) for path, content in world.disk.files.items()} == before


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case.name)
def test_a_damaged_batch_is_no_reason_to_doubt_the_rest(case: Case) -> None:
    world = asyncio.run(folder())
    case.damage(world, case.path)
    found = [f for f in verify(world) if f.severity is DAMAGE]
    others = {f.path.rpartition(".")[0] for f in found} - {case.path.removesuffix(".log")}
    assert not others or "swapped" in case.name, show(found)
    assert len(found) <= 3, show(found)


@pytest.mark.parametrize(
    ("suffixes", "base_offset", "expected"),
    [
        ((".log", ".index", ".timeindex", ".snapshot"), 20, (Kind.GAP, log_file(30), 0)),
        ((".log",), 20, (Kind.LEFTOVER, log_file(20, ".index"), None)),
        ((".log",), 40, (Kind.LEFTOVER, log_file(40, ".index"), None)),
        ((".log", ".index", ".timeindex"), 40, (Kind.CHECKPOINT, POINTS, None)),
    ],
)
def test_files_of_a_segment_that_are_gone_are_missed(
    suffixes: tuple[str, ...], base_offset: int, expected: tuple[Kind, str, int | None]
) -> None:
    world = asyncio.run(folder())
    for suffix in suffixes:
        gone(world, log_file(base_offset, suffix))
    found = [f for f in verify(world) if f.severity is DAMAGE]
    assert expected in [(f.kind, f.path, f.position) for f in found], show(found)


def test_an_emptied_segment_is_a_gap() -> None:
    world = asyncio.run(folder())
    cut(0)(world, MIDDLE)
    found = verify(world)
    assert (Kind.GAP, log_file(30), 0) in [(f.kind, f.path, f.position) for f in found], show(found)


def test_all_logs_gone_are_missed() -> None:
    world = asyncio.run(folder())
    for path in [path for path in world.disk.files if path.startswith(f"{HERE}/0")]:
        gone(world, path)
    found = [f for f in verify(world) if f.severity is DAMAGE]
    assert (Kind.CHECKPOINT, POINTS) in [(f.kind, f.path) for f in found], show(found)


def test_what_does_not_belong_into_a_folder_is_told_once() -> None:
    world = asyncio.run(folder())
    for name in ("a.txt", "b.txt", "c.txt"):
        become(b"")(world, f"{FOLDER}/{name}")
    (found,) = verify(world)
    assert (found.path, found.what) == (
        f"{FOLDER}/a.txt",
        "does not belong into a data folder, nor do 2 more",
    )
