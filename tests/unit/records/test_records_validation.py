"""A leader's checks. The expected codes were seen in answers of Apache Kafka 4.3.1 to the same batches."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest

from moldau.base.errors import ErrorCode
from moldau.records.batch import (
    CONTROL,
    CRC,
    CRC_POSITION,
    HEADER,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    crc_of,
    read_header,
)
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, assemble, build_batch, encode_records, read_records
from moldau.records.validate import AppendRules, Refused, check_batch, recompress

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def rules(**changes: Any) -> AppendRules:
    settings = {
        "max_message_bytes": 1_048_588,
        "cleanup_policy": ("delete",),
        "compression_type": "producer",
        "compression_gzip_level": -1,
        "compression_lz4_level": 9,
        "compression_zstd_level": 3,
        "message_timestamp_type": "CreateTime",
        "message_timestamp_before_max_ms": 2**63 - 1,
        "message_timestamp_after_max_ms": HOUR_MS,
    }
    return AppendRules.of("t-0", SimpleNamespace(**{**settings, **changes}))


def records(count: int = 3, timestamp: int = NOW_MS, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, timestamp + i, key, b"v" * 10) for i in range(count)]


def check(data: bytes, topic: AppendRules | None = None, zstd_allowed: bool = True) -> BatchHeader:
    buffer = bytearray(b"before" + data + b"after")
    view = memoryview(buffer)
    header = check_batch(view, 6, 6 + len(data), topic or rules(), NOW_MS, zstd_allowed)
    batch = buffer[6 : 6 + len(data)]
    stored = read_header(batch)
    assert stored == header
    assert stored.crc == crc_of(batch, 0, stored.size)
    return stored


def refusal(data: bytes, topic: AppendRules | None = None, zstd_allowed: bool = True) -> Refused:
    with pytest.raises(Refused) as refused:
        check(data, topic, zstd_allowed)
    return refused.value


def with_header(batch: bytes, **changes: Any) -> bytes:
    """The batch with other header fields and a right checksum."""
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *read_header(batch)._replace(**changes))
    CRC.pack_into(changed, CRC_POSITION, crc_of(changed, 0, len(changed)))
    return bytes(changed)


GOOD = build_batch(records())
MANY = build_batch(records(50))


@pytest.mark.parametrize("batch", [GOOD, MANY])
def test_a_good_batch_is_not_changed(batch: bytes) -> None:
    assert check(batch) == read_header(batch)


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_taken(codec: Codec) -> None:
    for count in (1, 3, 50):
        check(build_batch(records(count), codec=codec))


def test_a_raw_snappy_block_is_taken() -> None:
    raw = bytes(cramjam.snappy.compress_raw(encode_records(records(), 0, NOW_MS)))
    check(assemble(read_header(GOOD)._replace(attributes=int(Codec.SNAPPY)), raw))


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"", ErrorCode.invalid_record, None),
        (GOOD[:10], ErrorCode.invalid_record, None),
        (GOOD[:14], ErrorCode.invalid_record, None),
        (GOOD[:30], ErrorCode.invalid_record, None),
        (GOOD[:-1], ErrorCode.invalid_record, None),
        (GOOD[:16] + b"\x00" + GOOD[17:], ErrorCode.invalid_record, None),
        (GOOD[:16] + b"\x01" + GOOD[17:], ErrorCode.invalid_record, None),
        (GOOD[:16] + b"\x03" + GOOD[17:], ErrorCode.corrupt_message, "Invalid magic found in record: 3"),
        (GOOD[:16] + b"\xff" + GOOD[17:], ErrorCode.corrupt_message, "Invalid magic found in record: -1"),
        (
            GOOD[:8] + struct.pack(">i", 5) + GOOD[12:],
            ErrorCode.corrupt_message,
            "Record size 5 is less than the minimum record overhead (14)",
        ),
        (
            GOOD[:8] + struct.pack(">i", -5) + GOOD[12:],
            ErrorCode.corrupt_message,
            "Record size -5 is less than the minimum record overhead (14)",
        ),
        (GOOD[:8] + struct.pack(">i", 48) + GOOD[12:60], ErrorCode.corrupt_message, None),
        (GOOD[:8] + struct.pack(">i", 10_000) + GOOD[12:], ErrorCode.invalid_record, None),
        (GOOD + GOOD, ErrorCode.invalid_record, None),
        (GOOD + bytes(40), ErrorCode.corrupt_message, None),
        (GOOD[:-1] + b"!", ErrorCode.corrupt_message, None),
    ],
)
def test_framing_is_refused_before_the_log_is_looked_at(
    data: bytes, code: ErrorCode, message: str | None
) -> None:
    refused = refusal(data)
    assert (refused.code, refused.message, refused.before_append) == (code, message, True)


@pytest.mark.parametrize("rest", [b"abcde", GOOD[:16], GOOD[:40]])
def test_a_batch_that_is_cut_off_behind_a_good_one_is_dropped(rest: bytes) -> None:
    assert check(GOOD + rest).size == len(GOOD)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 5},
        {"count": 2},
        {"count": 0},
        {"count": -1},
        {"count": 4, "last_offset_delta": 3},
        {"count": 2, "last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"last_offset_delta": 5},
        {"attributes": CONTROL},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
    ],
)
def test_a_header_that_contradicts_itself_is_an_invalid_record(changes: dict[str, int]) -> None:
    refused = refusal(with_header(GOOD, **changes))
    assert (refused.code, refused.message, refused.before_append) == (ErrorCode.invalid_record, None, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"producer_id": -1, "producer_epoch": 0, "base_sequence": 3},
        {"producer_id": 50, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -5, "producer_epoch": 0, "base_sequence": 0},
        {"attributes": 0x7F00},
        {"attributes": 0x40},
    ],
)
def test_what_kafka_lets_pass_is_let_pass(changes: dict[str, int]) -> None:
    check(with_header(GOOD, **changes))


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    topic = rules(max_message_bytes=len(GOOD) - 1)
    assert refusal(GOOD, topic).code is ErrorCode.message_too_large
    check(GOOD, rules(max_message_bytes=len(GOOD)))


def test_unknown_codecs_and_old_zstd_are_unsupported_compression_types() -> None:
    for codec in (5, 6, 7):
        refused = refusal(with_header(GOOD, attributes=codec))
        assert refused.code is ErrorCode.unsupported_compression_type
    zstd = build_batch(records(), codec=Codec.ZSTD)
    assert refusal(zstd, zstd_allowed=False).code is ErrorCode.unsupported_compression_type


@pytest.mark.parametrize("index", [61, 65, 67, 78])
def test_few_records_are_walked_to_the_end(index: int) -> None:
    damaged = bytearray(GOOD)
    damaged[index] = 0x7E
    assert refusal(with_header(bytes(damaged))).code is ErrorCode.invalid_record


def test_bytes_behind_the_last_record_are_an_invalid_record() -> None:
    assert refusal(assemble(read_header(GOOD), GOOD[61:] + b"xx")).code is ErrorCode.invalid_record


def test_the_first_of_many_records_is_walked_and_the_count_must_fit() -> None:
    damaged = bytearray(MANY)
    damaged[61] = 0xFF
    assert refusal(with_header(bytes(damaged))).code is ErrorCode.invalid_record
    claims = with_header(MANY, count=10_000, last_offset_delta=9_999)
    assert refusal(claims).code is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_small_compressed_batches_are_unfolded_and_walked(codec: Codec) -> None:
    header = read_header(GOOD)._replace(attributes=int(codec))
    assert refusal(assemble(header, b"garbage" * 3)).code is ErrorCode.invalid_record
    body = encode_records(records(), 0, NOW_MS)
    assert refusal(assemble(header, compress(codec, body[:-1]))).code is ErrorCode.invalid_record
    gaps = encode_records(
        [Record(0, 1, None, None), Record(5, 1, None, None), Record(9, 1, None, None)], 0, 1
    )
    assert refusal(assemble(header, compress(codec, gaps))).code is ErrorCode.invalid_record


def test_lz4_blocks_that_depend_on_each_other_are_refused() -> None:
    linked = bytes(cramjam.lz4.compress(encode_records(records(50), 0, NOW_MS)))
    header = read_header(MANY)._replace(attributes=int(Codec.LZ4))
    assert refusal(assemble(header, linked)).code is ErrorCode.invalid_record


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_compacted_topic_names_each_record_without_a_key(codec: Codec) -> None:
    rows = [Record(0, NOW_MS, b"a", b""), Record(1, NOW_MS, None, b""), Record(2, NOW_MS, None, b"")]
    refused = refusal(build_batch(rows, codec=codec), rules(cleanup_policy=("compact",)))
    text = "Compacted topic cannot accept message without key in topic partition t-0"
    assert refused.code is ErrorCode.invalid_record
    assert [(e.batch_index, e.message) for e in refused.record_errors] == [(1, text), (2, text)]
    assert refused.message == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first "
        f"three errors at most: [RecordError(batchIndex=1, message='{text}'), "
        f"RecordError(batchIndex=2, message='{text}')]"
    )


def test_only_three_record_errors_are_shown_but_all_are_given() -> None:
    refused = refusal(build_batch(records(40, key=None)), rules(cleanup_policy=("compact", "delete")))
    assert len(refused.record_errors) == 40
    assert refused.message is not None
    assert refused.message.count("RecordError") == 3


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_timestamps_in_the_future_are_refused_one_by_one(count: int, codec: Codec) -> None:
    rows = records(count)
    late = NOW_MS + HOUR_MS + 1
    rows[1] = Record(1, late, b"k", b"v")
    refused = refusal(build_batch(rows, codec=codec))
    assert refused.code is ErrorCode.invalid_timestamp
    assert refused.message == "One or more records have been rejected due to invalid timestamp"
    assert [(e.batch_index, e.message) for e in refused.record_errors] == [
        (
            1,
            f"Timestamp {late} of message with offset 1 is out of range. The timestamp should be within "
            f"[{NOW_MS - (2**63 - 1)}, {NOW_MS + HOUR_MS}]",
        )
    ]


def test_timestamps_of_the_past_are_refused_where_the_topic_says_so() -> None:
    topic = rules(message_timestamp_before_max_ms=60_000)
    assert refusal(build_batch(records(30, NOW_MS - 120_000)), topic).code is ErrorCode.invalid_timestamp
    check(build_batch(records(30, NOW_MS - 50_000)), topic)
    check(build_batch([Record(0, -1, b"k", b"no timestamp")]), topic)


def test_a_null_key_and_a_wrong_timestamp_together_are_an_invalid_timestamp() -> None:
    rows = [Record(0, NOW_MS, None, b""), Record(1, NOW_MS + 2 * HOUR_MS, b"a", b"")]
    refused = refusal(build_batch(rows), rules(cleanup_policy=("compact",)))
    assert refused.code is ErrorCode.invalid_timestamp
    assert [error.batch_index for error in refused.record_errors] == [0, 1]


@pytest.mark.parametrize("claimed", [NOW_MS + 10 * HOUR_MS, -1, NOW_MS - 5])
def test_a_max_timestamp_that_is_not_the_records_is_put_right(claimed: int) -> None:
    assert check(with_header(GOOD, max_timestamp=claimed)).max_timestamp == NOW_MS + 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 3, 50])
def test_no_max_timestamp_is_below_that_of_records_without_one(codec: Codec, count: int) -> None:
    batch = build_batch([Record(i, -1000, None, b"v") for i in range(count)], codec=codec)
    assert check(batch).max_timestamp == NO_TIMESTAMP


def test_log_append_time_replaces_the_timestamps_whatever_they_are() -> None:
    topic = rules(message_timestamp_type="LogAppendTime")
    for batch in (
        GOOD,
        MANY,
        build_batch(records(3, NOW_MS + 9 * HOUR_MS)),
        build_batch(records(), codec=Codec.GZIP),
    ):
        header = check(batch, topic)
        assert header.max_timestamp == NOW_MS
        assert header.attributes & LOG_APPEND_TIME


def test_a_create_time_topic_takes_the_log_append_time_bit_away() -> None:
    header = check(with_header(GOOD, attributes=LOG_APPEND_TIME))
    assert not header.attributes & LOG_APPEND_TIME


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_recompression_changes_nothing_but_the_codec(source: Codec, target: str) -> None:
    topic = rules(compression_type=target)
    batch = build_batch(records(30), codec=source, producer_id=4, producer_epoch=1, base_sequence=8)
    check(batch, topic)
    recoded = recompress(memoryview(batch), topic)
    assert read_records(recoded) == records(30)
    before, after = read_header(batch), read_header(recoded)
    assert after.codec_id == topic.codec
    assert after._replace(length=0, crc=0, attributes=0) == before._replace(length=0, crc=0, attributes=0)
    assert after.crc == crc_of(recoded, 0, len(recoded))


def test_a_batch_that_recompression_makes_too_large_is_refused() -> None:
    topic = rules(compression_type="uncompressed", max_message_bytes=300)
    batch = build_batch([Record(0, NOW_MS, b"k", bytes(5000))], codec=Codec.GZIP)
    check(batch, topic)
    with pytest.raises(Refused) as refused:
        recompress(memoryview(batch), topic)
    assert refused.value.code is ErrorCode.message_too_large
