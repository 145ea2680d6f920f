"""Which replica a consumer should read from (KIP-392): the nearest one, by racks. Pure.

Kafka's `RackAwareReplicaSelector` with the candidates of `ReplicaManager.findPreferredReadReplica`: the leader, where
it is in the consumer's rack or nobody is who is in sync and has the offset; else the one of them that is furthest.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.replication.leader import PartitionLeader


def nearest_replica(
    leader: PartitionLeader,
    node_id: int,
    rack: str,
    fetch_offset: int,
    rack_of: Callable[[int], str | None],
) -> int | None:
    """The follower to read from; None where it is the leader. `rack_of`: None also where a broker is not to be had."""
    if rack_of(node_id) == rack:
        return None
    isr = leader.state.isr
    near = [
        (follower.next_offset, follower.caught_up_s, replica)
        for replica, follower in leader.followers.items()
        if replica in isr
        and follower.log_start_offset <= fetch_offset <= follower.next_offset
        and rack_of(replica) == rack
    ]
    return max(near)[-1] if near else None
