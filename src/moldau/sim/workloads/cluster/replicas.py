"""The brokers' own view of a cluster: whether it has come to rest, and whether the replicas agree on every byte.

Logs are read from the simulated disks, past the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.broker.node import Broker
from moldau.log import names
from moldau.metadata.records import PartitionState
from moldau.records.batch import HEADER_BYTES, read_header
from moldau.records.record import Record, read_records
from moldau.replication.partition import Partition
from moldau.sim.node import BrokerNode
from moldau.sim.workloads.cluster.admin import OWN, is_meant_for


class Replica(NamedTuple):
    node: BrokerNode
    partition: Partition


def why_not_settled(nodes: Sequence[BrokerNode]) -> str | None:
    """What keeps the cluster from rest; None where all brokers are up, of one mind, and in all in-sync sets."""
    for node in nodes:
        if not node.is_up:
            return f"{node.name} is not up"
    brokers = [_broker(node) for node in nodes]
    first = brokers[0].image
    for broker in brokers:
        if broker.image.position != first.position:
            return f"broker {broker.node_id} knows of {broker.image.position}, broker 1 of {first.position}"
    for info in first.registered.values():
        if not info.is_active:
            return f"broker {info.id} is fenced or shuts down"
    for topic in first.topics.values():
        for index, state in enumerate(topic.partitions):
            place = TopicPartition(topic.name, index)
            reason = _why_not_in_line(place, state, replicas_of(nodes, place, state))
            if reason is not None:
                return f"{place}: {reason}"
    return None


def _why_not_in_line(place: TopicPartition, state: PartitionState, replicas: Sequence[Replica]) -> str | None:
    if set(state.isr) != set(state.replicas) or state.adding or state.removing:
        return f"{state}"
    if len(replicas) != len(state.replicas):
        return f"held by {[replica.node.name for replica in replicas]} only"
    ends = {(one.partition.log.next_offset, one.partition.high_watermark) for one in replicas}
    if len(ends) > 1 or any(one.partition.leader_epoch != state.leader_epoch for one in replicas):
        rows = [
            f"{one.node.name} ends at {one.partition.log.next_offset}, high watermark "
            f"{one.partition.high_watermark}, epoch {one.partition.leader_epoch}"
            for one in replicas
        ]
        return "; ".join(rows)
    return None


def replicas_of(nodes: Iterable[BrokerNode], place: TopicPartition, state: PartitionState) -> list[Replica]:
    return [
        Replica(node, partition)
        for node in nodes
        if node.node_id in state.replicas
        and node.broker is not None
        and (partition := node.broker.partitions.get(place)) is not None
    ]


class Difference(NamedTuple):
    place: TopicPartition
    expected: str
    found: str


def differences(nodes: Sequence[BrokerNode]) -> Iterator[Difference]:
    """Byte for byte, below the high watermark; of a log that each replica compacts for itself, record for record. For
    a cluster at rest."""
    for topic in _broker(nodes[0]).image.topics.values():
        for index, state in enumerate(topic.partitions):
            place = TopicPartition(topic.name, index)
            replicas = replicas_of(nodes, place, state)
            logs = [_batches(one, replicas[0].partition.high_watermark) for one in replicas]
            is_compacted = replicas[0].partition.log.config.compact
            compare = _compacted_difference if is_compacted else _difference
            for replica, log in zip(replicas[1:], logs[1:], strict=True):
                start = max(one.partition.log.log_start_offset for one in (replicas[0], replica))
                found = compare(start, logs[0], log)
                if found is not None:
                    offset, mine, theirs = found
                    yield Difference(
                        place,
                        f"offset {offset} as on {replicas[0].node.name}: {mine}",
                        f"on {replica.node.name}: {theirs}",
                    )


Log = Mapping[int, bytes]
"""Batches by their base offsets."""


def _difference(start: int, one: Log, other: Log) -> tuple[int, str, str] | None:
    for offset in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(offset), other.get(offset)
        if offset >= start and mine != theirs:
            return offset, _shown(mine), _shown(theirs)
    return None


def _compacted_difference(start: int, one: Log, other: Log) -> tuple[int, str, str] | None:
    """Who lacks a record has a later one of its key; what is aborted, deleted, or a marker may be gone without."""
    mine, theirs = _records(one), _records(other)
    last_of_mine = {record.key: offset for offset, record in sorted(mine.items())}
    last_of_theirs = {record.key: offset for offset, record in sorted(theirs.items())}
    for offset in sorted(mine.keys() | theirs.keys()):
        record, others = mine.get(offset), theirs.get(offset)
        if offset < start or record == others:
            continue
        if record is None or others is None:
            there, lasts = (others, last_of_mine) if record is None else (record, last_of_theirs)
            assert there is not None
            if there.value is None or there.key is None or lasts.get(there.key, -1) > offset:
                continue
        return offset, str(record), str(others)
    return None


def _records(log: Log) -> dict[int, Record]:
    """What compaction keeps or replaces, by offset; without control records and what belongs to transactions."""
    headers = {offset: read_header(batch) for offset, batch in log.items()}
    return {
        record.offset: record
        for offset, batch in log.items()
        if not headers[offset].is_control and not headers[offset].is_transactional
        for record in read_records(batch)
    }


def strays(nodes: Sequence[BrokerNode]) -> Iterator[Difference]:
    """Records of a topic that is gone in one that came after it under the same name, and folders of none."""
    for node in nodes:
        broker = _broker(node)
        for place, partition in broker.partitions.items():
            if place.topic.startswith(OWN):
                log = _batches(Replica(node, partition), partition.log.next_offset)
                for batch in log.values():
                    for record in read_records(batch):
                        if not is_meant_for(partition.topic_id, record):
                            found = f"one for {(record.value or b'').hex()} on {node.name}"
                            yield Difference(place, f"records for topic {partition.topic_id.hex}", found)
        for folder in broker.config.log_dirs:
            for name in sorted(node.host.drive.platter.folder(folder).entries):
                topic, _, index = name.rpartition("-")
                is_partition = topic.startswith(OWN) and index.isdigit()
                if is_partition and TopicPartition(topic, int(index)) not in broker.partitions:
                    place = TopicPartition(topic, int(index))
                    yield Difference(place, "no folder of a topic that is gone", f"{name} on {node.name}")


def _batches(replica: Replica, below_offset: int) -> dict[int, bytes]:
    """What the disk holds, by base offset."""
    platter = replica.node.host.drive.platter
    folder = replica.partition.log.folder
    found: dict[int, bytes] = {}
    for name in sorted(platter.folder(folder).entries):
        if name.endswith(names.LOG):
            content = bytes(platter.file(f"{folder}/{name}").content)
            position = 0
            while position + HEADER_BYTES <= len(content):
                header = read_header(content, position)
                if header.size < HEADER_BYTES:
                    break
                if header.base_offset < below_offset:
                    found[header.base_offset] = content[position : position + header.size]
                position += header.size
    return found


def _shown(batch: bytes | None) -> str:
    if batch is None:
        return "none"
    header = read_header(batch)
    return f"epoch {header.leader_epoch}, up to {header.last_offset}, checksum {header.crc:08x}"


def _broker(node: BrokerNode) -> Broker:
    assert node.broker is not None
    return node.broker
