"""The rows of the table in issue 12, as they are described there: the figures before and after stand side by side."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Iterator
from functools import partial
from itertools import islice, product
from string import ascii_letters, digits

from moldau.records.compression import Codec

from . import target as content
from .attack import Attack, CarryOut, Outcome, Prepare, in_turn, one, request
from .client import Client
from .records import FUTURE_MS, bomb, long_valid_batch, tiny_records
from .requests import Raw, Values, body, element_of, frame, unknown_tags, whole
from .target import Target, create_topic, produce

LONG_BATCH_TOPIC = "attack-long-batch"
LONG_BATCH_RECORDS = 1_200_000
TAGS = 52_000_000
MB = 1_000_000


def repeated(api: str, version: int, path: str, values: Values, count: int) -> Raw:
    """One element of an array, repeated."""
    return Raw(count, element_of(api, version, path, values) * count)


def produce_frame(topic: str, batch: bytes, partitions: int, version: int = 9) -> bytes:
    """The same batch to many partitions of a topic."""
    data = [{"index": number, "records": batch} for number in range(partitions)]
    values = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}
    return frame("Produce", version, values)


def int32_rows(count: int, *after: int) -> Raw:
    """Elements of an int32 that counts up and some that stay, quickly: there are millions of them."""
    width = 1 + len(after)
    numbers = array("i", bytes(4 * width * count))
    numbers[0::width] = array("i", range(count))
    for place, value in enumerate(after, 1):
        numbers[place::width] = array("i", [value]) * count
    if sys.byteorder == "little":
        numbers.byteswap()
    return Raw(count, numbers.tobytes())


def null_record_sets(_: Target) -> bytes:
    """Index, and -1 for no records: eight bytes each before compact lengths."""
    topics = [{"name": content.TOPIC, "partition_data": int32_rows(13_000_000, -1)}]
    return frame("Produce", 8, {"acks": 1, "timeout": 1000, "topic_data": topics})


def fetch_of_many(_: Target) -> bytes:
    """Partition, offset (an int64) and the most bytes: sixteen bytes each in version 4."""
    partitions = int32_rows(6_400_000, 0, 0, 1)
    return frame("Fetch", 4, {"topics": [{"topic": content.TOPIC, "partitions": partitions}]})


def describe_configs(resource_type: int, name: str, count: int) -> Prepare:
    one_of_them = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    resources = repeated("DescribeConfigs", 1, "resources", one_of_them, count)
    return one("DescribeConfigs", 1, lambda _: {"resources": resources})


def short_names(count: int) -> Raw:
    """Different names of four letters, as non-compact strings."""
    letters = map("".join, product(ascii_letters + digits + "-_", repeat=4))
    return Raw(count, b"".join(b"\0\4" + name.encode() for name in islice(letters, count)))


def names_of(total_bytes: int, after: bytes = b"") -> Raw:
    """Different names of eight digits, as compact strings, each followed by the rest of its element."""
    count = total_bytes // (9 + len(after))
    return Raw(count, b"".join(b"\x09%08d%b" % (number, after) for number in range(count)))


def long_batch(target: Target) -> None:
    """A partition with one valid batch of 1.2 million records."""
    with target.client() as client:
        create_topic(client, LONG_BATCH_TOPIC, 1)
        produce(client, LONG_BATCH_TOPIC, 0, long_valid_batch(LONG_BATCH_RECORDS))


def look_ups(count: int) -> Prepare:
    def steps(target: Target) -> Iterator[tuple[str, int, bytes]]:
        target.ensure(long_batch)
        with target.client() as client:
            latest = _max_timestamp(client)
        wanted = [{"partition_index": 0, "timestamp": latest}]
        values = {"replica_id": -1, "topics": [{"name": LONG_BATCH_TOPIC, "partitions": wanted}]}
        for _ in range(count):
            yield "ListOffsets", 7, frame("ListOffsets", 7, values)

    return in_turn(steps)


def _max_timestamp(client: Client) -> int:
    """When the last record was, by the header of the batch."""
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    answer = client.ask("Fetch", 12, {"topics": [{"topic": LONG_BATCH_TOPIC, "partitions": wanted}]})
    batch = bytes(answer.responses[0].partitions[0].records)
    return int.from_bytes(batch[35:43], "big")


def incremental_fetches(count: int) -> Prepare:
    """A session over all partitions of the wide topic, and then many fetches that say no more than its number."""

    def prepare(target: Target) -> CarryOut:
        target.ensure(content.wide_topic)
        connection = Client(target.address)
        session_id = _open_session(connection)

        def carry_out(deadline_s: float) -> Outcome:
            data = b"".join(
                frame("Fetch", 12, {"session_id": session_id, "session_epoch": epoch + 1})
                for epoch in range(count)
            )
            with connection:
                return _read_all(connection, data, count, deadline_s)

        return carry_out

    return prepare


def _open_session(client: Client) -> int:
    partitions = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1}
        for number in range(content.WIDE_PARTITIONS)
    ]
    values = {"session_epoch": 0, "topics": [{"topic": content.WIDE_TOPIC, "partitions": partitions}]}
    session_id: int = client.ask("Fetch", 12, values).session_id
    return session_id


def _read_all(client: Client, data: bytes, count: int, deadline_s: float) -> Outcome:
    answers = answered_bytes = 0
    try:
        client.send(data)
        for _ in range(count):
            client.timeout(max(0.01, deadline_s - time.monotonic()))
            answered_bytes += len(client.receive())
            answers += 1
    except TimeoutError:
        return Outcome(len(data), f"{answers} answers, cut off", is_late=True)
    except OSError:
        return Outcome(len(data), f"{answers} answers, closed")
    return Outcome(len(data), f"{answers} answers, {answered_bytes:,} B")


def heartbeat_with(expression: str) -> Prepare:
    """A member of a KIP-848 group joins with a regular expression, where there are topics with long names."""

    def values(target: Target) -> Values:
        target.ensure(content.long_topics)
        return {
            "group_id": f"attack-expression-{time.monotonic_ns()}",
            "member_id": "attacker",
            "member_epoch": 0,
            "rebalance_timeout": 30_000,
            "subscribed_topic_regex": expression,
            "topic_partitions": (),
        }

    return one("ConsumerGroupHeartbeat", 1, values)


def describe_heavy_group(count: int) -> Prepare:
    def values(target: Target) -> Values:
        target.ensure(content.heavy_group)
        return {"groups": [content.HEAVY_GROUP] * count}

    return one("DescribeGroups", 5, values)


def all_offsets_again(count: int) -> Prepare:
    def values(target: Target) -> Values:
        target.ensure(content.wide_group)
        return {"groups": [{"group_id": content.WIDE_GROUP, "topics": None}] * count}

    return one("OffsetFetch", 8, values)


def producers_again(count: int) -> Prepare:
    def values(target: Target) -> Values:
        target.ensure(content.many_producers)
        return {"topics": [{"name": content.PRODUCERS_TOPIC, "partition_indexes": [0] * count}]}

    return one("DescribeProducers", 0, values)


def fetch_sessions(sessions: int, partitions: int) -> Prepare:
    """Sessions over partitions that do not exist; then their connections are closed."""

    def prepare(target: Target) -> CarryOut:
        wanted = b"".join(
            element_of("Fetch", 12, "topics.partitions", {"partition": number, "partition_max_bytes": 1})
            for number in range(partitions)
        )
        topics = [{"topic": "attack-unknown", "partitions": Raw(partitions, wanted)}]
        data = frame("Fetch", 12, {"session_epoch": 0, "topics": topics})

        def carry_out(deadline_s: float) -> Outcome:
            done = 0
            for _ in range(sessions):
                with Client(target.address) as client:
                    outcome = _read_all(client, data, 1, deadline_s)
                if outcome.is_late:
                    return Outcome(done * len(data), f"{done} sessions, cut off", is_late=True)
                done += outcome.answer.startswith("1 ")
            return Outcome(sessions * len(data), f"{done} of {sessions} answered, closed by the client")

        return carry_out

    return prepare


def rows() -> Iterator[Attack]:
    """In the order of the issue."""
    bombs = "Produce, 64 partitions x a zstd batch that unfolds to 100 MB"
    yield Attack(
        bombs,
        request("Produce", 9, lambda _: produce_frame(content.MANY_TOPIC, bomb(Codec.ZSTD), 64)),
        is_quick=True,
        spoils=True,
    )
    yield Attack(
        f"{bombs}, compacted",
        request("Produce", 9, lambda _: produce_frame(content.COMPACTED_TOPIC, bomb(Codec.ZSTD), 64)),
        is_quick=True,
        spoils=True,
    )
    yield Attack(
        "Produce, 15 M records in zstd, future timestamp",
        request("Produce", 9, future_records),
        is_quick=True,
    )
    yield Attack("ListOffsets by time into a valid batch of 1.2 M records", look_ups(1), is_quick=True)
    yield Attack("ListOffsets by time into a valid batch of 1.2 M records, 20 times", look_ups(20))
    yield Attack("Produce, 13 M null record sets", request("Produce", 8, null_record_sets))
    yield Attack("Fetch of 6.4 M partitions", request("Fetch", 4, fetch_of_many))
    yield Attack(
        "DescribeConfigs, one topic named 100,000 times", describe_configs(2, "tt", 100_000), is_quick=True
    )
    yield Attack(
        "DescribeConfigs, one broker named 11,111 times", describe_configs(4, "1", 11_111), is_quick=True
    )
    yield Attack("ApiVersions, 52 M tagged fields in the header", request("ApiVersions", 3, tagged_header))
    yield Attack(
        "Metadata, 2.8 M names",
        one("Metadata", 8, lambda _: {"topics": short_names(2_770_000), "allow_auto_topic_creation": False}),
    )
    yield from rows_of_names()
    yield Attack(
        "200 pipelined incremental Fetches over 10,000 partitions", incremental_fetches(200), is_quick=True
    )
    expression = "((.{0,30}){0,30})" * 4
    yield Attack(
        "ConsumerGroupHeartbeat, a regular expression of 800 letters, 20 topics",
        heartbeat_with(expression + "a?" * ((800 - len(expression)) // 2)),
        is_quick=True,
    )
    yield Attack(
        "DescribeGroups, a group of 0.9 MB named 1,000 times", describe_heavy_group(1000), is_quick=True
    )
    yield Attack(
        "OffsetFetch, a group of 10,000 offsets named 200 times", all_offsets_again(200), is_quick=True
    )
    yield Attack(
        "DescribeProducers, a partition of 2,000 producers named 1,500 times",
        producers_again(1500),
        is_quick=True,
    )
    yield Attack(
        "20 fetch sessions over 100,000 unknown partitions, closed",
        fetch_sessions(20, 100_000),
        is_quick=True,
    )


def future_records(_: Target) -> bytes:
    return produce_frame(content.TOPIC, tiny_records(Codec.ZSTD, 14_900_000, later_ms=FUTURE_MS), 1)


def tagged_header(_: Target) -> bytes:
    data = body("ApiVersions", 3, {"client_software_name": "a", "client_software_version": "1"})
    return whole(18, 3, data, tags=unknown_tags(TAGS))


def rows_of_names() -> Iterator[Attack]:
    """2 MB of different names, to each API that takes a list of them."""
    for api, version, field, after in (
        ("FindCoordinator", 4, "coordinator_keys", b""),
        ("DescribeGroups", 5, "groups", b""),
        ("ConsumerGroupDescribe", 0, "group_ids", b""),
        ("DeleteGroups", 2, "groups_names", b""),
        ("OffsetFetch", 8, "groups", b"\0\0"),  # all topics, no tagged fields
        ("DescribeTransactions", 0, "transactional_ids", b""),
    ):
        values = partial(_named, field, after)
        yield Attack(f"{api}, 2 MB of names", one(api, version, values), is_quick=True)


def _named(field: str, after: bytes, _: Target) -> dict[str, Raw]:
    return {field: names_of(2 * MB, after)}
