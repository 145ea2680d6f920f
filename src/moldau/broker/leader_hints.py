"""Who leads a partition, for a client that asked the wrong broker (KIP-951): it need not ask for metadata first.

Produce and Fetch name the leader and its epoch beside NOT_LEADER_OR_FOLLOWER (Fetch also beside FENCED_LEADER_EPOCH),
and, to clients, where the leaders are in the answer's node endpoints. Kafka's `KafkaApis.getCurrentLeader`; unlike it,
the image is asked also for partitions that this broker holds: it is never older than what they have been told.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from moldau.broker.advertised import endpoint_of
from moldau.broker.connection import Connection
from moldau.broker.dispatch import Context
from moldau.broker.interface import ClusterView
from moldau.replication.fetch_session import TopicRef
from moldau.wire.primitives import NodeEndpoint

UNKNOWN_LEADER = (-1, -1)


def current_leader(broker: ClusterView, topic: TopicRef, index: int) -> tuple[int, int]:
    """The leader's id and epoch, as far as this broker knows."""
    image = broker.image
    found = image.topic_by_id.get(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topics.get(topic)
    if found is None or not 0 <= index < len(found.partitions):
        return UNKNOWN_LEADER
    state = found.partitions[index]
    return state.leader, state.leader_epoch


def endpoints_of(
    broker: ClusterView, connection: Connection, leaders: Iterable[tuple[int, int] | None]
) -> list[NodeEndpoint]:
    """Where a client finds these leaders: those that are alive, each once."""
    context = Context(0, None, connection)
    endpoints: list[NodeEndpoint] = []
    for node_id in sorted({leader[0] for leader in leaders if leader is not None}):
        info = broker.image.brokers.get(node_id)
        if info is not None and (address := endpoint_of(broker, context, info)) is not None:
            endpoints.append((node_id, *address, info.rack))
    return endpoints
