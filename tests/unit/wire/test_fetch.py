"""The Fetch response by hand says what kio says, with records in memory or by reference."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from moldau.wire.codec import encode_response_frame
from moldau.wire.fetch import FETCH, FetchedPartition, FetchedTopic, Piece, pack_fetch_response
from moldau.wire.schema import message_class

VERSIONS = range(4, 19)


@dataclass
class InFile:
    """Records in a file, as far as the wire can tell."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece.data if isinstance(piece, InFile) else bytes(piece) for piece in pieces)  # type: ignore[arg-type]


def kio_frame(
    version: int, topics: list[FetchedTopic], session: tuple[int, int], endpoints: list[Any]
) -> bytes:
    response = message_class("response", FETCH, version)
    topic_struct = response.__annotations__["responses"].__args__[0]
    partition_struct = topic_struct.__annotations__["partitions"].__args__[0]

    def partition(p: Any) -> Any:
        aborted_struct = partition_struct.__annotations__["aborted_transactions"].__args__[0].__args__[0]
        records = p.records.data if isinstance(p.records, InFile) else p.records
        aborted = p.aborted and tuple(aborted_struct(producer_id=i, first_offset=o) for i, o in p.aborted)
        values: dict[str, Any] = {
            "partition_index": p.partition,
            "error_code": p.error_code,
            "high_watermark": p.high_watermark,
            "last_stable_offset": p.last_stable_offset,
            "aborted_transactions": aborted if p.aborted is None else tuple(aborted),
            "records": records,
        }
        if version >= 5:
            values["log_start_offset"] = p.log_start_offset
        if version >= 11:
            values["preferred_read_replica"] = p.preferred_read_replica
        if version >= 12 and p.diverging_epoch:
            struct = partition_struct.__annotations__["diverging_epoch"]
            values["diverging_epoch"] = struct(epoch=p.diverging_epoch[0], end_offset=p.diverging_epoch[1])
        if version >= 12 and p.current_leader:
            struct = partition_struct.__annotations__["current_leader"]
            values["current_leader"] = struct(leader_id=p.current_leader[0], leader_epoch=p.current_leader[1])
        return partition_struct(**values)

    def topic(name: str | bytes, partitions: Any) -> Any:
        key: dict[str, Any] = {"topic_id": UUID(bytes=name)} if isinstance(name, bytes) else {"topic": name}
        return topic_struct(**key, partitions=tuple(partition(p) for p in partitions))

    extra: dict[str, Any] = {}
    if version >= 7:
        extra |= {"error_code": session[0], "session_id": session[1]}
    if version >= 16:
        struct = response.__annotations__["node_endpoints"].__args__[0]
        extra["node_endpoints"] = tuple(struct(node_id=n, host=h, port=p, rack=r) for n, h, p, r in endpoints)
    message = response(
        throttle_time=timedelta(milliseconds=31),
        responses=tuple(topic(name, partitions) for name, partitions in topics),
        **extra,
    )
    return encode_response_frame(FETCH, version, 55, message)


def fetched(partition: int = 0, error_code: int = 0, **values: Any) -> FetchedPartition:
    return FetchedPartition(partition, error_code, 1000, 990, 10, **values)


PARTITIONS: dict[str, FetchedPartition] = {
    "nothing new": fetched(),
    "nothing new in a file": fetched(records=InFile(b"")),
    "null records": fetched(records=None),
    "short": fetched(records=b"x" * 126),
    "short in a file": fetched(records=InFile(b"x" * 127)),
    "long": fetched(3, records=b"y" * 5000),
    "a view": fetched(3, records=memoryview(b"y" * 5000)),
    "long in a file": fetched(3, records=InFile(b"y" * 300_000)),
    "huge in a file": fetched(3, records=InFile(b"y" * 2_200_000)),
    "error": FetchedPartition(1, 1),
    "no transaction was aborted": fetched(aborted=[], records=b"abc"),
    "aborted transactions": fetched(aborted=[(7, 100), (9, 300)], records=InFile(b"abc")),
    "read from a follower": fetched(preferred_read_replica=3),
    "diverging": fetched(diverging_epoch=(4, 900)),
    "moved": fetched(2, 6, current_leader=(5, 8)),
    "moved and diverging": fetched(2, 6, current_leader=(5, 8), diverging_epoch=(4, 900)),
    "moved, nobody knows where": fetched(2, 6, current_leader=(-1, -1), diverging_epoch=(-1, -1)),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("name", ["orders", "n" * 126, "n" * 249])
def test_the_answer_for_one_partition_is_kios(version: int, partition: str, name: str) -> None:
    topics: list[FetchedTopic] = [(UUID(int=99).bytes if version >= 13 else name, [PARTITIONS[partition]])]
    pieces = pack_fetch_response(55, version, 31, 0, 123, topics)
    assert joined(pieces) == kio_frame(version, topics, (0, 123), [])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_for_many_partitions_is_kios(version: int) -> None:
    names = [UUID(int=99).bytes, UUID(int=98).bytes] if version >= 13 else ["a", "b" * 200]
    topics: list[FetchedTopic] = [
        (names[0], list(PARTITIONS.values())),
        (names[1], [fetched(records=b"z" * 9000)]),
    ]
    endpoints = [(4, "broker-4.example", 9092, "rack-a"), (5, "broker-5.example", 9093, None)]
    pieces = pack_fetch_response(55, version, 31, 0, 123, topics, endpoints)
    assert joined(pieces) == kio_frame(version, topics, (0, 123), endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_without_partitions_carries_the_sessions_error(version: int) -> None:
    assert joined(pack_fetch_response(55, version, 31, 71, 0, [])) == kio_frame(version, [], (71, 0), [])


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_payloads_are_passed_through_and_the_bytes_between_them_joined(version: int) -> None:
    topic = UUID(int=1).bytes if version >= 13 else "t"
    payloads = [InFile(b"a" * 10), InFile(b"b" * 20)]
    partitions = [fetched(0, records=payloads[0]), fetched(1), fetched(2, records=payloads[1])]
    pieces = pack_fetch_response(55, version, 31, 0, 123, [(topic, partitions)])
    assert [type(piece) for piece in pieces][:4] == [bytes, InFile, bytes, InFile]
    assert pieces[1] is payloads[0]
    assert pieces[3] is payloads[1]
    assert int.from_bytes(joined(pieces)[:4], "big") == len(joined(pieces)) - 4
