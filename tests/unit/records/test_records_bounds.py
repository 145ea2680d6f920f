"""Whatever a client sends, a batch is unfolded and walked within bounds; what is beyond them is looked at aside."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.errors import ErrorCode
from moldau.base.limits import (
    PACKED_INLINE_BYTES_MAX,
    RECORD_ERRORS_MAX,
    RECORD_HEADERS_INLINE_MAX,
    RECORDS_INLINE_MAX,
    UNFOLDED_INLINE_BYTES_MAX,
)
from moldau.records import record as record_module
from moldau.records.batch import HEADER_BYTES, BatchHeader, read_header
from moldau.records.bounds import ASIDE, HEAVY, INLINE, TooMuch
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress, unfolded_bytes_max
from moldau.records.record import Record, assemble, build_batch, encode_records
from moldau.records.validate import (
    AppendRules,
    Looked,
    Refused,
    check_batch,
    look_at,
    wants_looking_at,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


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


PLAIN = rules()
COMPACTED = rules(cleanup_policy=("compact",))
RECODED = rules(compression_type="lz4")
UNPACKED = rules(compression_type="uncompressed")
STAMPED = rules(message_timestamp_type="LogAppendTime")


def records(
    count: int, *, key: bytes | None = b"k", value: bytes = b"v", at_ms: int = NOW_MS
) -> list[Record]:
    return [Record(index, at_ms + index % 7, key, value) for index in range(count)]


def claiming(data: bytes, codec: Codec, count: int, at_ms: int = NOW_MS) -> bytes:
    """A batch with whatever packed bytes, under a header that says it has so many records."""
    header = read_header(build_batch([Record(0, at_ms, b"k", b"v")], codec=codec))
    return assemble(header._replace(count=count, last_offset_delta=count - 1), data)


def zeros(codec: Codec, length: int, count: int = 1) -> bytes:
    return claiming(compress(codec, bytes(length)), codec, count)


def check(
    data: bytes, topic: AppendRules = PLAIN, looked: Looked | None = None, **bounds: Any
) -> BatchHeader:
    view = memoryview(bytearray(data))
    return BatchHeader._make(check_batch(view, 0, len(view), topic, NOW_MS, True, looked, **bounds))


def wants(data: bytes, topic: AppendRules) -> bool:
    return wants_looking_at(memoryview(data), 0, len(data), topic, NOW_MS)


def look(data: bytes, topic: AppendRules) -> Looked:
    """As it is done aside: within ordinary bounds, then within those of the largest."""
    for bounds in (ASIDE, HEAVY):
        looked = look_at(data, topic, NOW_MS, True, bounds)
        if isinstance(looked, Looked):
            return looked
    raise AssertionError("too much for the largest bounds")


def refusal_of(data: bytes, topic: AppendRules = PLAIN, looked: Looked | None = None) -> Refused:
    with pytest.raises(Refused) as refused:
        check(data, topic, looked)
    return refused.value


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The limits within which something was unfolded."""
    limits: list[int] = []

    def watched(codec: Codec, data: Any, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Any:
        if codec is not Codec.NONE:
            limits.append(limit_bytes)
        return decompress(codec, data, limit_bytes)

    monkeypatch.setattr(record_module, "decompress", watched)
    yield limits


# What is unfolded where


@pytest.mark.parametrize("codec", PACKED)
def test_a_small_batch_that_unfolds_far_is_taken_unwalked_as_any_large_one(
    codec: Codec, unfolded: list[int]
) -> None:
    bomb = zeros(codec, 60_000)
    assert len(bomb) <= PACKED_INLINE_BYTES_MAX
    assert check(bomb).count == 1
    assert unfolded == [UNFOLDED_INLINE_BYTES_MAX]
    assert not wants(bomb, PLAIN)


@pytest.mark.parametrize("topic", [COMPACTED, RECODED, UNPACKED])
def test_one_that_must_be_walked_is_not_unfolded_beyond_the_inline_bound(
    topic: AppendRules, unfolded: list[int]
) -> None:
    bomb = zeros(Codec.ZSTD, 10_000_000)
    assert wants(bomb, topic)
    with pytest.raises(TooMuch):
        check(bomb, topic)
    assert set(unfolded) == {UNFOLDED_INLINE_BYTES_MAX}


@pytest.mark.parametrize("codec", [Codec.NONE, *PACKED])
def test_many_records_that_must_be_walked_are_looked_at_aside(codec: Codec) -> None:
    large = build_batch(records(RECORDS_INLINE_MAX + 1), codec=codec)
    assert wants(large, COMPACTED) and not wants(large, PLAIN)
    with pytest.raises(TooMuch):
        check(large, COMPACTED)
    assert check(large, COMPACTED, look(large, COMPACTED)).count == RECORDS_INLINE_MAX + 1
    small = build_batch(records(10), codec=codec)
    assert not wants(small, COMPACTED)


def test_what_a_bomb_unfolds_to_is_bounded_and_its_refusal_keeps_nothing_of_it() -> None:
    looked = look_at(zeros(Codec.ZSTD, DECOMPRESSED_BYTES_MAX + 1), COMPACTED, NOW_MS, True, HEAVY)
    assert isinstance(looked, Looked) and looked.refusal is not None
    assert looked.refusal.code is ErrorCode.invalid_record
    assert "limit" in str(looked.refusal)
    assert looked.refusal.__traceback__ is looked.refusal.__context__ is None
    much = look_at(zeros(Codec.ZSTD, 10_000_000), COMPACTED, NOW_MS, True, ASIDE)
    assert isinstance(much, TooMuch) and much.__traceback__ is much.__context__ is None


def test_what_cannot_be_stored_uncompressed_is_not_copied_first() -> None:
    topic = rules(compression_type="uncompressed", max_message_bytes=1_000_000)
    data = build_batch([Record(0, NOW_MS, b"k", bytes(50_000_000))], codec=Codec.ZSTD)
    tracemalloc.start()
    try:
        looked = look_at(data, topic, NOW_MS, True, HEAVY)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(looked, Looked) and looked.refusal is not None
    assert looked.refusal.code is ErrorCode.message_too_large
    assert peak_bytes < 10_000_000


def test_a_record_of_countless_headers_is_not_walked_on_the_loop() -> None:
    headers = tuple(("", b"") for _ in range(RECORD_HEADERS_INLINE_MAX + 1))
    for count in (1, 5):
        many = build_batch([Record(i, NOW_MS, b"k", b"v", headers) for i in range(count)])
        damaged = bytearray(many[HEADER_BYTES:])
        damaged[-1] ^= 2  # the length of the last header's content
        sound = check(assemble(read_header(many), bytes(damaged)))
        assert sound.count == count
    few = build_batch([Record(0, NOW_MS, b"k", b"v", headers[:-1])])
    damaged = bytearray(few[HEADER_BYTES:])
    damaged[-1] ^= 2
    assert refusal_of(assemble(read_header(few), bytes(damaged))).code is ErrorCode.invalid_record


class Shape(NamedTuple):
    """A batch, in few words."""

    count: int
    codec: Codec
    key: bytes | None
    value_bytes: int
    at_ms: int
    step_ms: int

    def batch(self) -> bytes:
        return build_batch(
            [
                Record(i, self.at_ms + self.step_ms * i, self.key if i % 3 else b"k", bytes(self.value_bytes))
                for i in range(self.count)
            ],
            codec=self.codec,
        )


any_shape = st.builds(
    Shape,
    st.sampled_from([1, 3, 5, 40, RECORDS_INLINE_MAX, RECORDS_INLINE_MAX + 1, 1_200]),
    st.sampled_from(Codec),
    st.sampled_from([b"k", None]),
    st.sampled_from([0, 90, 400]),
    st.sampled_from([NOW_MS, NOW_MS - DAY_MS, NOW_MS + HOUR_MS - 5, NOW_MS + DAY_MS]),
    st.sampled_from([0, 1, -1, 4_000]),
)
any_topic = st.sampled_from(
    [PLAIN, COMPACTED, RECODED, UNPACKED, STAMPED, rules(message_timestamp_before_max_ms=HOUR_MS)]
)


@settings(max_examples=150, deadline=None)
@given(any_shape, any_topic)
def test_a_batch_looked_at_aside_is_judged_as_one_that_is_walked_at_once(
    shape: Shape, topic: AppendRules
) -> None:
    data = shape.batch()

    def outcome(looked: Looked | None) -> Any:
        source = data if looked is None or looked.recompressed is None else bytes(looked.recompressed)
        try:
            header = check(source, topic, looked, bounds=HEAVY)
        except Refused as refused:
            return refused.code, refused.message, refused.record_errors
        return header._replace(length=0, crc=0, attributes=header.attributes & ~7)

    assert outcome(look(data, topic)) == outcome(None)


@settings(max_examples=150, deadline=None)
@given(any_shape, any_topic)
def test_who_asks_beforehand_is_told_exactly_what_is_too_much_for_the_loop(
    shape: Shape, topic: AppendRules
) -> None:
    data = shape.batch()
    try:
        check(data, topic)
        too_much = False
    except TooMuch:
        too_much = True
    except Refused:
        too_much = False
    if too_much:
        assert wants(data, topic)
    elif wants(data, topic):  # only to compress it elsewhere
        assert topic.codec is not None and len(data) > PACKED_INLINE_BYTES_MAX


@settings(max_examples=100, deadline=None)
@given(any_shape)
def test_what_is_stored_with_the_brokers_time_may_be_looked_at_first(shape: Shape) -> None:
    data = shape.batch()
    topic = rules(message_timestamp_type="LogAppendTime", compression_type="gzip")
    looked = look(data, topic)
    source = data if looked.recompressed is None else bytes(looked.recompressed)
    header = check(source, topic, looked)
    assert (header.codec_id, header.max_timestamp) == (Codec.GZIP, NOW_MS)


# What is told of refused records


def test_a_refusal_names_a_bounded_number_of_records_and_tells_how_many_there_are() -> None:
    count = 20 * RECORD_ERRORS_MAX
    refusal = look(build_batch(records(count, key=None)), COMPACTED).refusal
    assert refusal is not None and refusal.code is ErrorCode.invalid_record
    assert f"due to {count} record errors in total" in (refusal.message or "")
    assert [error.batch_index for error in refusal.record_errors] == list(range(RECORD_ERRORS_MAX))
    late = look(build_batch(records(count, at_ms=NOW_MS + DAY_MS)), PLAIN).refusal
    assert late is not None and late.code is ErrorCode.invalid_timestamp
    assert len(late.record_errors) == RECORD_ERRORS_MAX


def test_one_wrong_time_behind_many_records_without_keys_decides_the_code() -> None:
    many = records(RECORD_ERRORS_MAX + 50, key=None)
    many.append(Record(len(many), NOW_MS + DAY_MS, b"k", b"v"))
    refusal = look(build_batch(many), COMPACTED).refusal
    assert refusal is not None and refusal.code is ErrorCode.invalid_timestamp
    assert len(refusal.record_errors) == RECORD_ERRORS_MAX


# Counts


@pytest.mark.parametrize("codec", PACKED)
def test_a_compressed_batch_cannot_claim_more_records_than_it_could_hold(codec: Codec) -> None:
    packed = compress(codec, encode_records(records(20), 0, NOW_MS))
    for count in (2**31 - 1, DECOMPRESSED_BYTES_MAX // 7 + 1):
        refusal = refusal_of(claiming(packed, codec, count))
        assert (refusal.code, refusal.before_append) == (ErrorCode.invalid_record, False)
    assert check(build_batch(records(3_000), codec=codec)).count == 3_000


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(70_000)))),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(70_000)))),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x68\x40" + (70_000).to_bytes(8, "little") + bytes(5)),
    ],
    ids=["zstd", "snappy", "lz4"],
)
def test_nor_more_than_the_size_that_it_tells(codec: Codec, packed: bytes) -> None:
    assert unfolded_bytes_max(codec, packed) == 70_000
    wrong = refusal_of(claiming(packed, codec, 10_001))
    assert wrong.code is ErrorCode.invalid_record and "70000 bytes" in str(wrong)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PACKED), st.binary(max_size=300), st.integers(0, 2_000), st.booleans())
def test_nothing_unfolds_to_more_than_it_can(codec: Codec, seed: bytes, times: int, twice: bool) -> None:
    data = seed * times
    packed = compress(codec, data) * (2 if twice and codec in (Codec.GZIP, Codec.ZSTD) else 1)
    assert len(decompress(codec, packed)) <= unfolded_bytes_max(codec, packed)


@given(st.binary(max_size=40))
def test_any_bytes_can_be_asked_what_they_unfold_to(data: bytes) -> None:
    for codec in PACKED:
        for packed in (
            data,
            b"\x28\xb5\x2f\xfd" + data,
            b"\x04\x22\x4d\x18" + data,
            b"\x82SNAPPY\x00" + data,
        ):
            assert 0 <= unfolded_bytes_max(codec, packed) <= DECOMPRESSED_BYTES_MAX


def test_the_bounds_grow() -> None:
    assert all(small <= large for small, large in zip(INLINE, ASIDE, strict=True))
    assert all(small <= large for small, large in zip(ASIDE, HEAVY, strict=True))
