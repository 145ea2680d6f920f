"""Batches and records: what is built is read back, byte for byte as Kafka's format has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records import varint
from moldau.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    crc_of,
    read_header,
    sequence_after,
    set_timestamps,
)
from moldau.records.compression import Codec, compress
from moldau.records.record import BadRecord, Record, assemble, build_batch, encode_records, read_records
from moldau.records.walk import plain_record_end, walk

NOW_MS = 1_700_000_000_000
optional_bytes = st.none() | st.binary(max_size=300)
any_records = st.lists(
    st.tuples(
        st.integers(-1, 2**50),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3),
    ),
    min_size=1,
    max_size=20,
).map(lambda rows: [Record(i, ts, key, value, tuple(hs)) for i, (ts, key, value, hs) in enumerate(rows)])


@given(any_records, st.sampled_from(Codec))
def test_records_survive_a_batch_of_any_codec(records: list[Record], codec: Codec) -> None:
    assert read_records(build_batch(records, codec=codec)) == records


@given(any_records)
def test_walking_agrees_with_reading(records: list[Record]) -> None:
    body = encode_records(records, 0, records[0].timestamp)
    position, oldest, newest, keyless, dense = walk(body, 0, len(body), len(records))
    deltas = [record.timestamp - records[0].timestamp for record in records]
    assert (position, oldest, newest) == (len(body), min(deltas), max(deltas))
    assert keyless == sum(record.key is None for record in records)
    assert dense


@given(any_records, st.data())
def test_a_changed_byte_is_found_or_read_the_same_by_both_readers(
    records: list[Record], data: st.DataObject
) -> None:
    body = bytearray(encode_records(records, 0, records[0].timestamp))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    batch = assemble(read_header(build_batch(records)), body)
    try:
        walked = walk(body, 0, len(body), len(records))
        whole = walked[0] == len(body)
    except BadRecord:
        whole = False
    if whole:
        assert len(read_records(batch)) == len(records)
    else:
        with pytest.raises(BadRecord):
            read_records(batch)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(number: int) -> None:
    encoded = varint.encode(number)
    assert varint.decode(encoded, 0, 10) == (number, len(encoded))


def test_the_header_is_kafkas() -> None:
    batch = build_batch(
        [Record(7, 1000, b"k", b"v", (("h", b"1"),))],
        leader_epoch=3,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
    )
    head = bytes.fromhex(
        "0000000000000007"
        "0000003e"
        "00000003"
        "02" + batch[17:21].hex() + "0000"
        "00000000"
        "00000000000003e8"
        "00000000000003e8"
        "0000000000000009"
        "0002"
        "00000005"
        "00000001"
    )
    assert batch[:HEADER_BYTES] == head
    assert batch[HEADER_BYTES:] == bytes.fromhex("18000000026b02760202680231")
    assert read_header(batch).crc == crc_of(batch, 0, len(batch))


def test_the_checksum_is_castagnolis_over_attributes_and_all_that_follows() -> None:
    assert crc_of(b"\0" * 21 + b"123456789", 0, 30) == 0xE3069283


def test_sequences_wrap_to_zero() -> None:
    assert sequence_after(2**31 - 1, 1) == 0
    header = BatchHeader(0, 0, 0, 2, 0, 0, 3, 0, 0, 1, 0, 2**31 - 2, 4)
    assert header.last_sequence == 1


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = memoryview(bytearray(build_batch([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")])))
    set_timestamps(batch, 0, len(batch), LOG_APPEND_TIME, 77)
    assert [record.timestamp for record in read_records(batch)] == [77, 77]
    assert crc_of(batch, 0, len(batch)) == read_header(batch).crc


def test_header_keys_that_are_no_utf8_survive() -> None:
    record = Record(0, 1, None, None, ((b"\xff\xfe".decode("utf-8", "surrogateescape"), None),))
    assert b"\xff\xfe" in build_batch([record])
    assert read_records(build_batch([record])) == [record]


def test_a_compressed_body_that_is_damaged_is_a_bad_record() -> None:
    header = read_header(build_batch([Record(0, 1, None, b"v")]))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        with pytest.raises(BadRecord):
            read_records(assemble(header._replace(attributes=int(codec)), b"not a stream at all"))
    with pytest.raises(BadRecord, match="unknown codec 6"):
        read_records(assemble(header._replace(attributes=6), b""))


def test_bytes_after_the_last_record_are_refused() -> None:
    header = read_header(build_batch([Record(0, 1, None, b"v")]))
    body = encode_records([Record(0, 1, None, b"v")], 0, 1)
    with pytest.raises(BadRecord, match="2 bytes are left"):
        read_records(
            assemble(header._replace(attributes=int(Codec.ZSTD)), compress(Codec.ZSTD, body + b"xx"))
        )


@given(any_records, st.binary(max_size=8), st.data())
def test_the_quick_look_at_a_record_never_contradicts_the_walk(
    records: list[Record], junk: bytes, data: st.DataObject
) -> None:
    body = bytearray(encode_records(records, 0, records[0].timestamp))
    if data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for cut in (body, body[: data.draw(st.integers(0, len(body)))], junk):
        end = plain_record_end(cut, 0, len(cut))
        if end:
            assert walk(cut, 0, len(cut), 1)[:3] == (end, 0, 0)
