"""The records of __consumer_offsets, byte by byte as Apache Kafka writes them."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.group.records import (
    GroupForgotten,
    GroupRecord,
    GroupRecorded,
    MemberRecorded,
    OffsetCommitted,
    OffsetForgotten,
    decode,
    encode,
)

TOPIC_ID = UUID("1ff8f591-7c8f-4eb3-96de-f5fc891d610d")
KAFKAS: list[tuple[GroupRecord, bytes, bytes | None]] = [
    (
        OffsetCommitted("g1", "t", 0, 1, 0, "", 0x1A1E24A4274, topic_id=TOPIC_ID),
        b"\x00\x01\x00\x02g1\x00\x01t\x00\x00\x00\x00",
        b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x01\x00\x00\x01\xa1\xe2JBt"
        b"\x01\x00\x10" + TOPIC_ID.bytes,
    ),
    (
        OffsetCommitted("g1", "t", 2, 5, -1, "hi", 0x1A1E24A42BD, topic_id=None),
        b"\x00\x01\x00\x02g1\x00\x01t\x00\x00\x00\x02",
        b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\xff\xff\xff\xff\x03hi\x00\x00\x01\xa1\xe2JB\xbd\x00",
    ),
    (OffsetForgotten("g1", "t", 0), b"\x00\x01\x00\x02g1\x00\x01t\x00\x00\x00\x00", None),
    (
        GroupRecorded("g1", "", 0, None, None, 0x1A1E24A41D4, ()),
        b"\x00\x02\x00\x02g1",
        b"\x00\x03\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x01\xa1\xe2JA\xd4\x00\x00\x00\x00",
    ),
    (
        GroupRecorded(
            "g1",
            "consumer",
            1,
            "range",
            "m",
            0x1A1E24A41E6,
            (MemberRecorded("m", None, "gcid", "/127.0.0.1", 300_000, 45_000, b"sub", b"part"),),
        ),
        b"\x00\x02\x00\x02g1",
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\x00\x05range\x00\x01m\x00\x00\x01\xa1\xe2JA\xe6"
        b"\x00\x00\x00\x01\x00\x01m\xff\xff\x00\x04gcid\x00\n/127.0.0.1\x00\x04\x93\xe0\x00\x00\xaf\xc8"
        b"\x00\x00\x00\x03sub\x00\x00\x00\x04part",
    ),
    (GroupForgotten("g1"), b"\x00\x02\x00\x02g1", None),
]


@pytest.mark.parametrize(("record", "key", "value"), KAFKAS)
def test_records_are_written_and_read_as_kafkas(record: GroupRecord, key: bytes, value: bytes | None) -> None:
    assert encode(record) == (key, value)
    assert decode(key, value) == record


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            b"\x00\x00" + bytes(7) + b"\x05\x00\x02hi" + bytes(7) + b"\x09",
            OffsetCommitted("g", "t", 1, 5, -1, "hi", 9),
        ),
        (
            b"\x00\x01" + bytes(7) + b"\x05\x00\x02hi" + bytes(7) + b"\x09" + bytes(7) + b"\x0a",
            OffsetCommitted("g", "t", 1, 5, -1, "hi", 9, 10),
        ),
        (
            b"\x00\x02" + bytes(7) + b"\x05\x00\x02hi" + bytes(7) + b"\x09",
            OffsetCommitted("g", "t", 1, 5, -1, "hi", 9),
        ),
        (
            b"\x00\x03" + bytes(7) + b"\x05\x00\x00\x00\x04\x00\x02hi" + bytes(7) + b"\x09",
            OffsetCommitted("g", "t", 1, 5, 4, "hi", 9),
        ),
    ],
    ids=["version 0", "version 1", "version 2", "version 3"],
)
@pytest.mark.parametrize("kind", [0, 1])
def test_older_offsets_are_read(kind: int, value: bytes, expected: OffsetCommitted) -> None:
    assert decode(b"\x00" + bytes((kind,)) + b"\x00\x01g\x00\x01t\x00\x00\x00\x01", value) == expected


def test_an_older_group_is_read() -> None:
    value = b"\x00\x00\x00\x01c\x00\x00\x00\x02\x00\x01p\x00\x01m\x00\x00\x00\x01"
    value += b"\x00\x01m\x00\x01i\x00\x01h\x00\x00\x00\x09\x00\x00\x00\x01s\x00\x00\x00\x01a"

    member = MemberRecorded("m", None, "i", "h", 9, 9, b"s", b"a")
    assert decode(b"\x00\x02\x00\x01g", value) == GroupRecorded("g", "c", 2, "p", "m", -1, (member,))


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x03\x00\x01g", b"\x00\x01\x00\x05g", b"\x7f\xff"])
def test_a_key_of_an_unknown_kind_is_no_record(key: bytes) -> None:
    assert decode(key, b"\x00\x00") is None


@given(st.sampled_from(KAFKAS), st.data())
def test_a_value_that_ends_too_early_is_no_record(
    row: tuple[GroupRecord, bytes, bytes | None], data: st.DataObject
) -> None:
    _, key, value = row
    if value:
        size = data.draw(st.integers(0, len(value) - 1))
        assert decode(key, value[:size]) is None


texts = st.text(max_size=20)


@given(
    st.builds(
        GroupRecorded,
        texts,
        texts,
        st.integers(0, 2**31 - 1),
        st.none() | texts,
        st.none() | texts,
        st.integers(-1, 2**60),
        st.lists(
            st.builds(
                MemberRecorded,
                texts,
                st.none() | texts,
                texts,
                texts,
                st.integers(0, 2**31 - 1),
                st.integers(0, 2**31 - 1),
                st.binary(max_size=20),
                st.binary(max_size=20),
            ),
            max_size=3,
        ).map(tuple),
    )
)
def test_groups_survive_a_round_trip(record: GroupRecorded) -> None:
    assert decode(*encode(record)) == record
