"""Giant requests that are valid: what they ask for exists or could be made, so they are carried out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from . import target as content
from .attack import Attack, CarryOut, Outcome, in_turn, one, request
from .client import Client, first_error
from .requests import Raw, element_of, frame
from .target import Target

COUNT = 100_000
LONG_NAME = "l" * 249
STEP = 10_000
SPOILING = (
    "CreateTopics",
    "CreatePartitions",
    "IncrementalAlterConfigs",
    "WriteTxnMarkers",
    "AddPartitionsToTxn",
)


def many(api: str, version: int, path: str, make: Callable[[int], Any], count: int = COUNT) -> Raw:
    return Raw(count, b"".join(element_of(api, version, path, make(number)) for number in range(count)))


def in_wide(number: int) -> int:
    """A partition of the wide topic; each is named several times where there are more numbers."""
    return number % content.WIDE_PARTITIONS


def all_giants() -> Iterator[Attack]:
    yield from _topics()
    yield from _partitions()
    yield from _groups()
    yield from _transactions()
    yield from _others()


def _attack(
    name: str, api: str, version: int, values: Callable[[Target], dict[str, Any]], *, is_quick: bool = True
) -> Attack:
    prepare = one(api, version, values)
    return Attack(f"{api}, {name}", prepare, is_quick=is_quick, spoils=api in SPOILING)


def _topics() -> Iterator[Attack]:
    def new(count: int, partitions: int, validate: bool, _: Target) -> dict[str, Any]:
        def topic(number: int) -> dict[str, Any]:
            name = f"new-{number:06d}" if count > 1 else LONG_NAME
            return {"name": name, "num_partitions": partitions, "replication_factor": 1}

        topics = many("CreateTopics", 7, "topics", topic, count)
        return {"topics": topics, "timeout": 60_000, "validate_only": validate}

    yield _attack("100,000 topics to validate", "CreateTopics", 7, partial(new, COUNT, 1, True))
    yield _attack("9,000 topics", "CreateTopics", 7, partial(new, 9_000, 1, False), is_quick=False)
    yield _attack("100,000 topics", "CreateTopics", 7, partial(new, COUNT, 1, False), is_quick=False)
    yield _attack(
        "a topic of 100,001 partitions, name of 249 letters",
        "CreateTopics",
        7,
        partial(new, 1, COUNT + 1, False),
    )

    def grown(_: Target) -> dict[str, Any]:
        return {"topics": [{"name": content.TOPIC, "count": COUNT, "assignments": None}], "timeout": 60_000}

    yield _attack("a topic to 100,000 partitions", "CreatePartitions", 3, grown)

    def assigned(_: Target) -> dict[str, Any]:
        brokers = Raw(
            COUNT, element_of("CreatePartitions", 3, "topics.assignments", {"broker_ids": [1]}) * COUNT
        )
        topic = {"name": content.TOPIC, "count": COUNT + 1, "assignments": brokers}
        return {"topics": [topic], "timeout": 60_000, "validate_only": True}

    yield _attack("100,000 assignments to validate", "CreatePartitions", 3, assigned)

    yield Attack("CreatePartitions, a name of 249 letters past 100,000", _grown_past_names, spoils=True)

    def altered(_: Target) -> dict[str, Any]:
        configs = many(
            "IncrementalAlterConfigs",
            1,
            "resources.configs",
            lambda number: {"name": "retention.ms", "config_operation": 0, "value": str(number)},
        )
        return {"resources": [{"resource_type": 2, "resource_name": content.TOPIC, "configs": configs}]}

    yield _attack("one config 100,000 times", "IncrementalAlterConfigs", 1, altered)


def _grown_past_names(target: Target) -> CarryOut:
    """Grow a topic until `<topic>-100000` is too long for a folder, and see whether the broker outlives it."""
    grow = in_turn(_growing)(target)

    def carry_out(deadline_s: float) -> Outcome:
        outcome = grow(deadline_s)
        wanted = [{"partition_index": COUNT, "timestamp": -1}]
        values = {"replica_id": -1, "topics": [{"name": LONG_NAME, "partitions": wanted}]}
        while target.is_alive() and time.monotonic() < deadline_s:
            with suppress(OSError), target.client(5) as client:
                error = first_error(client.ask("ListOffsets", 7, values))
                if error in (None, "kafka_storage_error"):
                    break
            time.sleep(0.2)
        return outcome

    return carry_out


def _growing(_: Target) -> Iterator[tuple[str, int, bytes]]:
    """As many partitions at a time as one request may make; the last ones have folders with names too long."""
    topic = {"name": LONG_NAME, "num_partitions": STEP, "replication_factor": 1}
    yield "CreateTopics", 7, frame("CreateTopics", 7, {"topics": [topic], "timeout": 60_000})
    for count in range(2 * STEP, COUNT + 2 * STEP, STEP):
        wanted = {"name": LONG_NAME, "count": count, "assignments": None}
        yield "CreatePartitions", 3, frame("CreatePartitions", 3, {"topics": [wanted], "timeout": 60_000})


def _partitions() -> Iterator[Attack]:
    """100,000 times a partition of the wide topic, which has 10,000 of them."""
    for api, version, array, one_of_them in (
        (
            "AlterPartitionReassignments",
            0,
            "topics.partitions",
            lambda n: {"partition_index": in_wide(n), "replicas": [1]},
        ),
        ("ElectLeaders", 2, "topic_partitions.partitions", in_wide),
        ("ListPartitionReassignments", 0, "topics.partition_indexes", in_wide),
        ("DeleteRecords", 2, "topics.partitions", lambda n: {"partition_index": in_wide(n), "offset": 0}),
        ("OffsetForLeaderEpoch", 4, "topics.partitions", lambda n: {"partition": in_wide(n)}),
        ("DescribeProducers", 0, "topics.partition_indexes", in_wide),
        ("DescribeLogDirs", 4, "topics.partitions", in_wide),
        ("ListOffsets", 8, "topics.partitions", lambda n: {"partition_index": in_wide(n), "timestamp": -1}),
        ("Fetch", 12, "topics.partitions", lambda n: {"partition": in_wide(n), "partition_max_bytes": 1}),
        (
            "OffsetCommit",
            8,
            "topics.partitions",
            lambda n: {"partition_index": in_wide(n), "committed_offset": 1},
        ),
        ("OffsetDelete", 0, "topics.partitions", lambda n: {"partition_index": in_wide(n)}),
        ("WriteTxnMarkers", 1, "markers.topics.partition_indexes", in_wide),
    ):
        yield _attack(
            "100,000 of 10,000 partitions",
            api,
            version,
            partial(_in_wide_topic, api, version, array, one_of_them),
        )

    def moved(target: Target) -> dict[str, Any]:
        target.ensure(content.wide_topic)
        partitions = many("AlterReplicaLogDirs", 2, "dirs.topics.partitions", in_wide)
        topics = [{"name": content.WIDE_TOPIC, "partitions": partitions}]
        return {"dirs": [{"path": target.names.log_dir, "topics": topics}]}

    yield _attack("100,000 of 10,000 partitions", "AlterReplicaLogDirs", 2, moved)


def _in_wide_topic(
    api: str, version: int, array: str, one_of_them: Callable[[int], Any], target: Target
) -> dict[str, Any]:
    target.ensure(content.wide_topic)
    *_, outer, inner = array.split(".")
    topic = {
        "name": content.WIDE_TOPIC,
        "topic": content.WIDE_TOPIC,
        inner: many(api, version, array, one_of_them),
    }
    if api == "WriteTxnMarkers":
        marker = {"producer_id": 5, "producer_epoch": 0, "transaction_result": True, "topics": [topic]}
        return {"markers": [marker]}
    return {outer: [topic], "group_id": content.GROUP, "timeout": 10_000, "replica_id": -1}


def _groups() -> Iterator[Attack]:
    def joins(protocols: int, target: Target) -> bytes:
        values: dict[str, Any] = {
            "group_id": "attack-joins",
            "session_timeout": 60_000,
            "rebalance_timeout": 60_000,
            "protocol_type": "consumer",
            "protocols": many("JoinGroup", 5, "protocols", lambda n: {"name": f"p{n:06d}"}, protocols),
        }
        with target.client() as client:
            member_id = client.ask("JoinGroup", 5, values | {"protocols": [{"name": "p000000"}]}).member_id
        return frame("JoinGroup", 5, values | {"member_id": member_id})

    make = partial(joins, 50_000)
    yield Attack("JoinGroup, 50,000 protocols", request("JoinGroup", 5, make), is_quick=True, spoils=True)

    def syncs(target: Target) -> bytes:
        with target.client() as client:
            member_id, generation_id = _join(client, "attack-syncs")
        assignments = many("SyncGroup", 3, "assignments", lambda n: {"member_id": f"{n:06d}"}, 50_000)
        values = {"group_id": "attack-syncs", "generation_id": generation_id, "member_id": member_id}
        return frame("SyncGroup", 3, values | {"assignments": assignments})

    yield Attack("SyncGroup, 50,000 assignments", request("SyncGroup", 3, syncs), is_quick=True, spoils=True)

    def beats(target: Target) -> dict[str, Any]:
        names = many("ConsumerGroupHeartbeat", 1, "subscribed_topic_names", lambda n: f"t{n:07d}")
        return {
            "group_id": "attack-beats",
            "member_id": "attacker",
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": names,
            "topic_partitions": (),
        }

    yield _attack("100,000 topics", "ConsumerGroupHeartbeat", 1, beats)

    def subscribes(target: Target) -> dict[str, Any]:
        target.ensure(content.wide_topic)
        return beats(target) | {"subscribed_topic_names": [content.WIDE_TOPIC]}

    yield _attack("a topic of 10,000 partitions", "ConsumerGroupHeartbeat", 1, subscribes)


def _join(client: Client, group: str) -> tuple[str, int]:
    values: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    first = client.ask("JoinGroup", 5, values)
    joined = client.ask("JoinGroup", 5, values | {"member_id": first.member_id})
    return joined.member_id, joined.generation_id


def _transactions() -> Iterator[Attack]:
    def of_transaction(topics: str, prefix: str, target: Target) -> dict[str, Any]:
        names = target.names
        values = {
            "transactional_id": names.transactional_id,
            "producer_id": names.producer_id,
            "producer_epoch": 0,
        }
        return {prefix + key: value for key, value in values.items()} | {topics: ()}

    def adds(target: Target) -> dict[str, Any]:
        target.ensure(content.wide_topic)
        prefix = "v3_and_below_"
        partitions = many("AddPartitionsToTxn", 3, prefix + "topics.partitions", in_wide)
        topics = [{"name": content.WIDE_TOPIC, "partitions": partitions}]
        return of_transaction(prefix + "topics", prefix, target) | {prefix + "topics": topics}

    yield _attack("100,000 of 10,000 partitions", "AddPartitionsToTxn", 3, adds)

    def commits(target: Target) -> dict[str, Any]:
        target.ensure(content.wide_topic)
        partitions = many(
            "TxnOffsetCommit",
            3,
            "topics.partitions",
            lambda n: {"partition_index": in_wide(n), "committed_offset": 1},
        )
        topics = [{"name": content.WIDE_TOPIC, "partitions": partitions}]
        return of_transaction("topics", "", target) | {"group_id": content.GROUP, "topics": topics}

    yield _attack("100,000 of 10,000 partitions", "TxnOffsetCommit", 3, commits)

    def marks(_: Target) -> dict[str, Any]:
        one_partition = element_of("WriteTxnMarkers", 1, "markers.topics.partition_indexes", 0)
        topics = [{"name": content.TOPIC, "partition_indexes": Raw(COUNT, one_partition * COUNT)}]
        marker = {"producer_id": 5, "producer_epoch": 0, "transaction_result": True, "topics": topics}
        return {"markers": [marker]}

    yield _attack("one partition 100,000 times", "WriteTxnMarkers", 1, marks)


def _others() -> Iterator[Attack]:
    def topics(cursor: dict[str, Any] | None, target: Target) -> dict[str, Any]:
        target.ensure(content.wide_topic)
        names = many("DescribeTopicPartitions", 0, "topics", lambda n: {"name": f"b{n:07d}"}, COUNT - 1)
        wide = element_of("DescribeTopicPartitions", 0, "topics", {"name": content.WIDE_TOPIC})
        return {"topics": Raw(COUNT, names.data + wide), "cursor": cursor}

    cursors = {"": None, ", from the middle": {"topic_name": content.WIDE_TOPIC, "partition_index": 5000}}
    for where, cursor in cursors.items():
        yield _attack(f"100,000 names{where}", "DescribeTopicPartitions", 0, partial(topics, cursor))

    def inner(size: int, _: Target) -> dict[str, Any]:
        names = many("Metadata", 8, "topics", lambda n: {"name": f"b{n:07d}"}, size // 10)
        request_data = frame("Metadata", 8, {"topics": names})[4:]
        return {"request_data": request_data, "request_principal": b"", "client_host_address": bytes(4)}

    for size in (1_000_000, 15_000_000):
        yield _attack(
            f"a Metadata request of {size // 1_000_000} MB",
            "Envelope",
            0,
            partial(inner, size),
            is_quick=size < 2_000_000,
        )
