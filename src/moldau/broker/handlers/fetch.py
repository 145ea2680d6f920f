"""Fetch (1): records from an offset on. C1, L3, L4; KIP-74 (limits), KIP-227 (sessions), KIP-516 (topic ids).

- v4: KIP-98, the isolation level and aborted transactions
- v5: KIP-107, where the log starts
- v6: KAFKA_STORAGE_ERROR (KIP-112)
- v7: KIP-227, sessions
- v8: the client waits where it is throttled (KIP-219)
- v9: KIP-320, the leader epoch that the client knows
- v10: KIP-110, zstd
- v11: KIP-392, the consumer's rack, the preferred read replica; before, only the leader serves consumers
- v12: KIP-595, where histories part; flexible encoding (KIP-482)
- v13: KIP-516, topics by id
- v14: OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405), which is never answered here
- v15: KIP-903, the follower's broker epoch
- v16: KIP-951, the current leader with errors
- v17: KIP-853, the follower's data folder, not looked at
- v18: KIP-1166, the follower's high watermark, not looked at

The life of a fetch: its session says which partitions to read; each gives a slice of a segment file, without reading
it; small slices are read into the answer, large ones stay file parts that leave by sendfile. Too little there: the
fetch is parked until its partitions have grown by what is missing or its time is up. Pages that are not cached:
they are brought in by a thread, and the fetch is tried again; the loop never waits for the disk. A fetch of more than
FETCHED_INLINE_MAX partitions is read and answered in slices, with others between (`runtime.line`).

Followers fetch as readers do (R2), but up to the end of the log instead of the high watermark, and with each fetch they
tell how far they are (`Partition.follower_fetched`). What is throttled is left out while the leader's quota is
exceeded, and only for followers that are not in sync (KIP-73).

Consumers may fetch from a follower as well, up to the high watermark that it knows of. A leader with
`replica.selector.class` sends those that name their rack to a follower there (KIP-392).

Limits as Kafka's: at least one whole batch, however large, from the first partition that has one, else what fits.
"""

from __future__ import annotations

from typing import Any

from moldau.base.limits import (
    INLINE_REQUEST_BYTES_MAX,
)
from moldau.broker.connection import Connection
from moldau.broker.dispatch import guarded
from moldau.broker.fetching import FOLLOW, STRANGER, Fetch, Replica
from moldau.broker.guard import may
from moldau.broker.interface import FetchingBroker
from moldau.broker.slot import Answer, Slot
from moldau.replication.fetch_session import (
    NO_REPLICA,
)
from moldau.runtime.line import Slices, whole
from moldau.wire.codec import decode_request, decoding

API_KEY = 1
VERSIONS = (4, 18)

REPLICA_STATE_SINCE_VERSION = 15


def serve(
    broker: FetchingBroker,
    connection: Connection,
    frame: memoryview,
    position: int,
    version: int,
    correlation_id: int,
) -> Answer | None:
    if len(frame) > INLINE_REQUEST_BYTES_MAX:
        frame = connection.lasting(frame)
        slot = connection.park(held_bytes=len(frame))
        serving = _serve_in_line(broker, slot, frame, position, version, correlation_id)
        is_urgent = connection.is_of_a_broker  # replication goes before what clients put in line
        broker.line.put(guarded(broker, slot, "Fetch", serving), is_urgent=is_urgent)
        return None
    request = decode_request(API_KEY, version, frame, position)
    fetch = whole(_open(broker, connection, request, version, correlation_id))
    if fetch.error:
        return fetch.refuse()
    if fetch.is_large:
        fetch.put_in_line(connection.park())
        return None
    try:
        fetch.read()
    except BlockingIOError:
        broker.tasks.spawn(fetch.answer_cold(connection.park()), name="cold fetch")
        return None
    if fetch.is_enough():
        return fetch.answer()
    fetch.park(connection.park())
    return None


def _open(
    broker: FetchingBroker, connection: Connection, request: Any, version: int, correlation_id: int
) -> Slices[Fetch]:
    """The fetch that a request asks for, with the partitions that its session says."""
    replica = _replica_of(request, version)
    if replica.id >= 0 and not may(broker, connection, FOLLOW):
        replica = Replica(STRANGER, -1)
    follower_id = replica.id if replica.id >= 0 else NO_REPLICA
    now_s = broker.clock.monotonic()
    context = yield from broker.fetch_sessions.opening(request, version, now_s, follower_id)
    return Fetch(broker, connection, request, version, correlation_id, context, replica)


def _serve_in_line(
    broker: FetchingBroker, slot: Slot, frame: memoryview, position: int, version: int, correlation_id: int
) -> Slices[None]:
    """A large request, from its first byte to its answer."""
    request = yield from decoding(API_KEY, version, frame, position)
    fetch = yield from _open(broker, slot.connection, request, version, correlation_id)
    del request  # 50 MB, if it is one of the largest
    if fetch.error:
        slot.fill(fetch.refuse())
    else:
        yield from fetch.serving(slot)


def _replica_of(request: Any, version: int) -> Replica:
    """KIP-903 moved the field, and added the broker epoch."""
    if version < REPLICA_STATE_SINCE_VERSION:
        return Replica(request.replica_id, -1)
    state = request.replica_state
    return Replica(state.replica_id, state.replica_epoch)
