"""What compaction keeps and what it takes away: Kafka's rules, batch by batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from compaction_world import DAY_MS, NOW_MS, Folder, batch_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.log.cleaner.job import LastRecord
from moldau.log.cleaner.keys import BUCKETS, Keys, Survivors
from moldau.log.index import read_waiting
from moldau.log.scan import DamagedSegment
from moldau.log.segment import Segment
from moldau.log.transactions import Aborted
from moldau.records.batch import DELETE_HORIZON, LOG_APPEND_TIME
from moldau.records.compression import Codec
from moldau.records.record import BadRecord, Record, build_batch, encode_records, read_records
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def marker(offset: int, kind: bytes, producer_id: int, epoch: int = 0) -> bytes:
    record = Record(offset, NOW_MS, kind, b"\0\0\0\0\0\0")
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
    )


def values(folder: Folder) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in folder.records()}


def test_the_last_record_of_each_key_stays_with_its_offset(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path,
        [
            [batch_of(0, (b"a", b"0"), (b"b", b"1")), batch_of(2, (b"a", b"2"), (b"c", b"3"))],
            [batch_of(4, (b"b", b"4"), (b"d", b"5"))],
        ],
    )
    summary = folder.compact()
    assert [(r.offset, r.key, r.value) for r in folder.records()] == [
        (2, b"a", b"2"),
        (3, b"c", b"3"),
        (4, b"b", b"4"),
        (5, b"d", b"5"),
    ]
    assert (summary.records_before, summary.records_after) == (6, 4)
    assert folder.bases == [0]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_lost_records_keeps_its_offsets_headers_codec_and_timestamps(
    tmp_path: Path, codec: Codec
) -> None:
    headers = (("h", b"x"), ("h", None), ("\udcff", b""))
    pairs = [(b"%d" % (i % 40), b"value %d" % i) for i in range(60)]
    before = batch_of(
        100, *pairs, codec=codec, headers=headers, producer_id=7, producer_epoch=1, base_sequence=5
    )
    folder = Folder(tmp_path, [[before]])
    expected = [r for r in folder.records() if r.offset >= 120]
    folder.compact()
    ((header, _),) = folder.batches()
    assert folder.records() == expected
    assert (header.base_offset, header.last_offset, header.count) == (100, 159, 40)
    assert (header.base_sequence, header.last_sequence, header.producer_id) == (5, 64, 7)
    assert header.codec_id == codec
    assert header.max_timestamp == NOW_MS + 59


def test_the_largest_timestamp_is_that_of_a_record_that_stays(tmp_path: Path) -> None:
    records = [
        Record(0, NOW_MS + 9, b"a", b""),
        Record(1, NOW_MS, b"b", b""),
        Record(2, NOW_MS + 5, b"a", b""),
    ]
    folder = Folder(tmp_path, [[build_batch(records)]])
    folder.compact()
    ((header, _),) = folder.batches()
    assert header.max_timestamp == NOW_MS + 5


def test_log_append_time_stays_the_time_of_all_records(tmp_path: Path) -> None:
    records = [Record(i, NOW_MS, b"%d" % (i % 2), None) for i in range(4)]
    folder = Folder(tmp_path, [[build_batch(records, log_append_time=NOW_MS + 77)]])
    folder.compact()
    ((header, data),) = folder.batches()
    assert header.attributes == LOG_APPEND_TIME | DELETE_HORIZON
    assert [(r.offset, r.timestamp) for r in read_records(data)] == [(2, NOW_MS + 77), (3, NOW_MS + 77)]


def test_a_tombstone_gets_its_horizon_first_and_goes_when_that_is_over(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path,
        [[batch_of(0, (b"a", b"0")), batch_of(1, (b"a", None), (b"b", b"2"))], [batch_of(3, (b"z", b""))]],
    )
    folder.compact()
    tombstones, _ = folder.batches()
    assert tombstones[0].attributes & DELETE_HORIZON
    assert tombstones[0].base_timestamp == NOW_MS + DAY_MS
    assert [(r.offset, r.timestamp) for r in read_records(tombstones[1])] == [(1, NOW_MS), (2, NOW_MS + 1)]
    assert tombstones[0].max_timestamp == NOW_MS + 1

    folder.compact(now_ms=NOW_MS + DAY_MS - 1)
    assert folder.batches()[0] == tombstones
    folder.compact(now_ms=NOW_MS + DAY_MS)
    header, data = folder.batches()[0]
    assert [(r.offset, r.timestamp) for r in read_records(data)] == [(2, NOW_MS + 1)]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + DAY_MS


def test_tombstones_and_markers_that_are_to_wait_for_ever_get_no_horizon_and_stay(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path,
        [
            [
                batch_of(0, (b"a", b"0")),
                batch_of(1, (b"a", None)),
                marker(2, COMMIT, 5),
                batch_of(3, (b"z", b"")),
            ]
        ],
    )
    for _ in range(3):
        folder.compact(delete_retention_ms=2**63 - 1)
    assert folder.offsets() == [1, 2, 3]
    assert not any(header.attributes & DELETE_HORIZON for header, _ in folder.batches())


def test_a_record_after_its_tombstone_takes_the_tombstone_away_at_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [[batch_of(0, (b"a", b"0"), (b"a", None), (b"a", b"2"))]])
    folder.compact()
    assert folder.offsets() == [2]
    assert not folder.batches()[0][0].attributes & DELETE_HORIZON


def test_a_batch_without_records_goes_but_for_an_active_producers_last(tmp_path: Path) -> None:
    def one(offset: int, producer_id: int, sequence: int) -> bytes:
        return batch_of(
            offset,
            (b"k", b""),
            (b"k", b""),
            producer_id=producer_id,
            producer_epoch=3,
            base_sequence=sequence,
        )

    folder = Folder(tmp_path, [[one(0, 1, 0), one(2, 1, 2), one(4, 2, 9), one(6, 3, 0), one(8, 4, 0)]])
    folder.compact(last_records={1: LastRecord(3, 3), 2: LastRecord(5, 3), 4: LastRecord(9, 3)})
    headers = [header for header, _ in folder.batches()]
    assert [(h.base_offset, h.last_offset, h.count) for h in headers] == [(2, 3, 0), (4, 5, 0), (8, 9, 1)]
    assert [(h.producer_id, h.producer_epoch, h.last_sequence) for h in headers] == [
        (1, 3, 3),
        (2, 3, 10),
        (4, 3, 1),
    ]
    assert headers[0].size == 61
    assert headers[0].base_timestamp == -1
    assert headers[0].max_timestamp == NOW_MS + 1
    again = folder.batches()
    folder.compact(last_records={1: LastRecord(3, 3), 2: LastRecord(7, 3), 4: LastRecord(9, 3)})
    assert folder.batches() == [again[0], again[2]]


def test_the_last_offset_of_what_was_compacted_is_not_lost(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [[batch_of(0, (b"a", b"0")), batch_of(1, (b"a", None), codec=Codec.ZSTD)]])
    folder.compact()
    folder.compact(now_ms=NOW_MS + 2 * DAY_MS)
    ((header, data),) = folder.batches()
    assert (header.base_offset, header.next_offset, header.count) == (1, 2, 0)
    assert header.attributes == 0
    assert len(data) == 61


def test_records_without_a_key_go(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [[batch_of(0, (None, b"0"), (b"", b"1"), (None, None), (b"a", b"3"))]])
    folder.compact()
    assert folder.offsets() == [1, 3]


def test_what_does_not_change_is_not_written(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path,
        [[batch_of(0, (b"a", b"0"))], [batch_of(1, (b"b", b"1"))], [batch_of(2, (b"b", b"2"), (b"c", b""))]],
    )
    summary = folder.compact(alone=True)
    assert [(report.old, report.new) for report in folder.reports] == [((1,), (1,))]
    assert folder.bases == [0, 1, 2]
    assert folder.disk.size(f"{folder.path}/{1:020d}.log") == 0
    assert summary.bytes_written == 0
    assert folder.offsets() == [0, 2, 3]


def test_segments_of_which_nothing_is_left_become_a_part_of_the_next(tmp_path: Path) -> None:
    segments = [[batch_of(n, (b"k", b"%d" % n))] for n in range(200)]
    folder = Folder(tmp_path, [*segments, [batch_of(200, (b"k", b""), (b"k", b"last"))]])
    folder.compact(alone=True)
    assert folder.bases == [0, 64, 128, 192]
    assert [len(report.old) for report in folder.reports] == [64, 64, 64, 9]
    assert folder.offsets() == [201]


def test_a_segment_that_changes_late_is_copied_whole(tmp_path: Path) -> None:
    batches = [batch_of(i, (b"%d" % i, b"x" * 500)) for i in range(50)]
    folder = Folder(tmp_path, [[*batches, batch_of(50, (b"last", b""), (b"last", b""))]])
    folder.compact()
    assert folder.offsets() == [*range(50), 51]
    segment = Segment(
        folder.disk, folder.path, 0, size=folder.disk.size(f"{folder.path}/{0:020d}.log"), indexed=True
    )
    assert segment.offsets.count > 3
    found = segment.find(40, read_waiting)
    assert found is not None
    assert found.header.base_offset == 40
    assert segment.times.last(read_waiting) == (NOW_MS + 1, 51)


def test_small_segments_become_one_within_the_limit(tmp_path: Path) -> None:
    segments = [[batch_of(i, (b"%d" % i, b"x" * 100))] for i in range(10)]
    size = len(segments[0][0])
    folder = Folder(tmp_path, segments)
    folder.compact(segment_bytes=3 * size)
    assert folder.bases == [0, 3, 6, 9]
    assert folder.offsets() == list(range(10))


@pytest.mark.parametrize("first", [2**31 - 2, 2**31 - 1, 3 * 2**31])
def test_a_segment_of_which_nothing_is_left_is_not_stretched_beyond_what_its_indexes_can_say(
    tmp_path: Path, first: int
) -> None:
    folder = Folder(tmp_path, [[batch_of(0, (b"a", b"0"))], [batch_of(first, (b"a", b"1"), (b"a", b"2"))]])
    folder.compact(alone=True)
    assert folder.offsets() == [first + 1]
    assert folder.bases == ([0] if first + 1 < 2**31 else [0, first])
    assert folder.compact(alone=True).bytes_written == 0


def test_a_new_segment_holds_no_offset_farther_from_its_base_than_its_index_can(tmp_path: Path) -> None:
    far = 2**31 + 5
    folder = Folder(tmp_path, [[batch_of(0, (b"a", b""))], [batch_of(far, (b"b", b""))]])
    folder.compact(groups=((folder.job(alone=True).sources[0], folder.job(alone=True).sources[1]),))
    assert folder.bases == [0, far]
    assert folder.offsets() == [0, far]


def test_damaged_data_is_not_compacted(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [[batch_of(0, (b"a", b"0")), batch_of(1, (b"a", b"1"))]])
    log = Path(f"{folder.path}/{0:020d}.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(DamagedSegment, match="checksum"):
        folder.compact()
    assert log.read_bytes() == data


def test_records_that_lie_about_their_structure_are_not_compacted(tmp_path: Path) -> None:
    keys = Keys(RealDisk(Features.detect()), str(tmp_path / "spill"), 1 << 20)
    body = encode_records([Record(0, NOW_MS, b"key", b"value")], 0, NOW_MS)
    for broken in (body[:-1], body + b"x", b"\x02" + body[1:], b"\xff" * 20, body[:4] + b"\x7e" + body[5:]):
        with pytest.raises(BadRecord):
            keys.add(broken, 1)


def test_leftovers_of_a_stopped_compaction_are_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [[batch_of(0, (b"a", b"0"))]])
    (tmp_path / f"{0:020d}.log.cleaned").write_bytes(b"half")
    (tmp_path / f"{0:020d}.keys.cleaned").write_bytes(b"half")
    folder.compact()
    assert not [name for name in folder.names if name.endswith(".cleaned")]
    assert folder.offsets() == [0]


def test_the_rate_is_kept_to_by_sleeping(tmp_path: Path) -> None:
    batches = [batch_of(i, (b"%d" % (i // 2), b"x" * 1000)) for i in range(200)]
    folder = Folder(tmp_path, [batches])
    summary = folder.compact(bytes_per_second=100_000.0)
    moved = summary.bytes_read + summary.bytes_written
    assert moved > 400_000
    assert sum(folder.slept_s) > 0.8 * moved / 100_000


# Transactions


def data(offset: int, key: bytes, producer_id: int) -> bytes:
    return batch_of(
        offset,
        (key, b"v"),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        transactional=True,
    )


def test_records_of_an_aborted_transaction_go_and_supersede_nothing(tmp_path: Path) -> None:
    folder = Folder(
        tmp_path,
        [
            [batch_of(0, (b"a", b"committed")), data(1, b"a", 5), data(2, b"b", 6), marker(3, ABORT, 5)],
            [marker(4, COMMIT, 6)],
        ],
    )
    aborted = (Aborted(5, 1, 3, 4),)
    folder.compact(aborted=aborted)
    assert folder.offsets() == [0, 2, 3, 4]
    index = (tmp_path / f"{0:020d}.txnindex").read_bytes()
    assert index == bytes.fromhex("0000") + b"".join(n.to_bytes(8, "big") for n in (5, 1, 3, 4))


def test_a_marker_waits_like_a_tombstone_once_its_transaction_is_gone(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [[data(0, b"a", 5), marker(1, ABORT, 5), batch_of(2, (b"z", b""))]])
    aborted = (Aborted(5, 0, 1, 2),)
    folder.compact(aborted=aborted)
    assert folder.offsets() == [1, 2]  # its records were still there
    assert not folder.batches()[0][0].attributes & DELETE_HORIZON
    folder.compact(aborted=aborted, now_ms=NOW_MS + 1)
    header, _ = folder.batches()[0]
    assert header.is_control
    assert (header.attributes & DELETE_HORIZON, header.base_timestamp) == (
        DELETE_HORIZON,
        NOW_MS + 1 + DAY_MS,
    )
    folder.compact(now_ms=NOW_MS + DAY_MS)
    assert folder.offsets() == [1, 2]
    folder.compact(now_ms=NOW_MS + 1 + DAY_MS)
    assert folder.offsets() == [2]


def test_the_marker_with_an_active_producers_epoch_stays_without_its_record(tmp_path: Path) -> None:
    folder = Folder(tmp_path, [[marker(0, COMMIT, 5), marker(1, COMMIT, 6), batch_of(2, (b"z", b""))]])
    last = {5: LastRecord(None, 0)}
    folder.compact(last_records=last)
    folder.compact(last_records=last, now_ms=NOW_MS + 2 * DAY_MS)
    headers = [header for header, _ in folder.batches()]
    assert [(h.base_offset, h.is_control, h.count) for h in headers] == [(0, True, 0), (2, False, 1)]
    folder.compact(now_ms=NOW_MS + 3 * DAY_MS)
    assert [header.base_offset for header, _ in folder.batches()] == [2]


# Memory


@pytest.mark.parametrize("memory_bytes", [40_000, 400_000, 100_000_000])
def test_survivors_are_the_same_whatever_memory_there_is(tmp_path: Path, memory_bytes: int) -> None:
    """With little memory entries go to a file, buckets are looked at in turns, and bits in windows."""
    disk = RealDisk(Features.detect())
    keys = Keys(disk, str(tmp_path / "spill"), memory_bytes)
    count, last = 60_000, {}
    for start in range(0, count, 100):
        pairs = [
            (b"%d" % ((start + i) * 7919 % 25_000) * (1 + i % 5), None if i % 9 == 0 else b"v")
            for i in range(100)
        ]
        records = [Record(i, NOW_MS, key, value) for i, (key, value) in enumerate(pairs)]
        keys.add(encode_records(records, 0, NOW_MS), 100)
        last.update({key: (start + i, value is None) for i, (key, value) in enumerate(pairs)})
    survivors = Survivors(keys, memory_bytes)
    kept: list[tuple[int, bool]] = []
    for start in range(0, count, 100):
        bits, null_bits = survivors.of_batch(start, 100)
        kept += [(start + i, bool(null_bits >> i & 1)) for i in range(100) if bits >> i & 1]
    assert kept == sorted(last.values())
    assert (tmp_path / "spill").exists() == (memory_bytes < 10_000_000)
    keys.close()
    assert not (tmp_path / "spill").exists()
    assert BUCKETS == 256


KEYS = st.sampled_from(
    [b"", b"a", b"b", b"a\0", b"long key " * 4, b"long key " * 5, b"15 bytes long k", b"16 bytes long ke"]
)
RECORDS = st.lists(st.tuples(KEYS | st.none(), st.none() | st.binary(max_size=20)), min_size=1, max_size=6)
BATCHES = st.lists(st.tuples(RECORDS, st.sampled_from(list(Codec))), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BATCHES, min_size=1, max_size=4), st.lists(st.integers(0, DAY_MS), max_size=3), st.booleans())
def test_any_log_comes_down_to_the_last_record_of_each_key(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[list[tuple[list[tuple[bytes | None, bytes | None]], Codec]]],
    waits_ms: list[int],
    alone: bool,
) -> None:
    offset, segments, model = 0, [], {}
    for shape in shapes:
        batches = []
        for pairs, codec in shape:
            batches.append(batch_of(offset, *pairs, codec=codec))
            for record in read_records(batches[-1]):
                if record.key is not None:
                    model[record.key] = record
            offset += len(pairs)
        segments.append(batches)
    folder = Folder(tmp_path_factory.mktemp("log"), segments)
    expected = sorted(model.values(), key=lambda record: record.offset)
    now_ms = NOW_MS
    folder.compact(alone=alone)
    assert folder.records() == expected
    for wait_ms in waits_ms:
        now_ms += wait_ms
        folder.compact(alone=alone, now_ms=now_ms)
        if now_ms >= NOW_MS + DAY_MS:
            expected = [record for record in expected if record.value is not None]
        assert folder.records() == expected
    assert folder.batches()[-1][0].next_offset == offset
