"""The brokers' own view of a cluster: whether it has come to rest, and whether the replicas agree on every byte.

Logs are read from the simulated disks, past the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.broker.node import Broker
from moldau.log import names
from moldau.metadata.records import PartitionState
from moldau.records.batch import HEADER_BYTES, read_header
from moldau.replication.partition import Partition
from moldau.sim.model import Model
from moldau.sim.node import BrokerNode


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


def check_replicas(model: Model, nodes: Sequence[BrokerNode]) -> None:
    """Byte for byte, below the high watermark. For a cluster at rest, whose logs nobody compacts."""
    for topic in _broker(nodes[0]).image.topics.values():
        for index, state in enumerate(topic.partitions):
            place = TopicPartition(topic.name, index)
            replicas = replicas_of(nodes, place, state)
            logs = [_batches(one, replicas[0].partition.high_watermark) for one in replicas]
            for replica, log in zip(replicas[1:], logs[1:], strict=True):
                start = max(
                    replicas[0].partition.log.log_start_offset, replica.partition.log.log_start_offset
                )
                _compare(model, place, start, replicas[0], logs[0], replica, log)


def _compare(
    model: Model,
    place: TopicPartition,
    start: int,
    one: Replica,
    one_log: dict[int, bytes],
    other: Replica,
    other_log: dict[int, bytes],
) -> None:
    for offset in sorted(one_log.keys() | other_log.keys()):
        if offset >= start and one_log.get(offset) != other_log.get(offset):
            mine, theirs = one_log.get(offset), other_log.get(offset)
            model.fail(
                place,
                f"the batch at {offset} as on {one.node.name}: {_shown(mine)}",
                f"on {other.node.name}: {_shown(theirs)}",
            )
            return


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
