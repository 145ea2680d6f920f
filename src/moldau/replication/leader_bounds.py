"""Where a leader's log begins and ends, for a follower whose own place the leader does not have (ListOffsets)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.peers.peer import Peer
from moldau.replication.partition import Partition

LIST_OFFSETS = 2
LATEST, EARLIEST = -1, -2


async def leader_bounds(peer: Peer, partition: Partition, node_id: int) -> tuple[int, int]:
    """The first and the next offset of the leader's log. KafkaError where it does not lead; Disconnected, Busy."""
    start_offset = await _ask(peer, partition, node_id, EARLIEST)
    return start_offset, await _ask(peer, partition, node_id, LATEST)


async def _ask(peer: Peer, partition: Partition, node_id: int, timestamp: int) -> int:
    topic, index = partition.topic_partition
    wanted = SimpleNamespace(
        partition_index=index, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
    )
    request = SimpleNamespace(
        replica_id=node_id,
        isolation_level=0,
        topics=(SimpleNamespace(name=topic, partitions=(wanted,)),),
        timeout=0,
    )
    answer: Any = await peer.ask(LIST_OFFSETS, request)
    (found,) = answer.topics[0].partitions
    if found.error_code:
        raise KafkaError(ErrorCode(found.error_code))
    offset: int = found.offset
    return offset
