"""Produce (0): append record batches to partitions. L5, L7, P1-P4.

- v3: KIP-98, batches of format v2 and transactions
- v4: KAFKA_STORAGE_ERROR (KIP-112)
- v5: where the log starts, in the answer
- v6: the client waits where it is throttled (KIP-219)
- v7: KIP-110, zstd
- v8: KIP-467, which records are at fault, and a text
- v9: flexible encoding (KIP-482)
- v10: KIP-951, the current leader with errors
- v11: TRANSACTION_ABORTABLE (KIP-890)
- v12: KIP-890, the broker adds partitions to transactions
- v13: KIP-516, topics by id

The life of a produce: the request is parsed where it was received; each batch is checked, gets its offset written in
place and is appended to the page cache through the partition's one door (`replication.partition`); the answer leaves at
once, or when the batch is as safe as acks and the topic's flush policy ask for: on the disk, on the in-sync replicas.
Long polls on the partition are woken after the answer.
A batch that would hold the loop (to unfold it, to walk its records, to give it its topic's own compression) is looked
at in a thread first (`log.aside`), and for the first batch of a transaction its coordinator is asked
(`broker.verification`); the request, and those that its connection sends to the same partition after it, wait for their
turn (`replication.turns`).

A request that names many partitions, or is large, is served in slices, with others between (`runtime.line`). What its
connection sends after it waits for its end; it is carried out even if the client goes away.

Kafka advertises version 0 for the sake of an old librdkafka and serves 3 and up; so does Moldau. With acks=0 there is
no answer; a refused batch then ends the connection, which is the only way to tell the client.
"""

from __future__ import annotations

from functools import partial

from moldau.base.errors import ErrorCode
from moldau.base.limits import FIRST_SLICE_S, PRODUCED_INLINE_BYTES_MAX, PRODUCED_INLINE_MAX
from moldau.broker.connection import Connection
from moldau.broker.dispatch import guarded
from moldau.broker.interface import ProducingBroker
from moldau.broker.producing import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    WRITE_TOPIC,
    ZSTD_SINCE_VERSION,
    Produce,
    packed_refusals,
    refusal_as_a_whole,
    refused,
    throttle_ms_of,
)
from moldau.broker.slot import Answer, Slot
from moldau.records.batch import ATTRIBUTES_POSITION as FLAGS
from moldau.records.batch import HEADER_BYTES, TRANSACTIONAL
from moldau.runtime.line import Slices, at_once, whole
from moldau.wire.produce import (
    PartitionRecords,
    TopicRecords,
    pack_lone_produced,
    parse_lone_batch,
    parsing_produce,
)

API_KEY = 0
VERSIONS = (3, 13)
ADVERTISED_MIN_VERSION = 0

DECIDED_BY_THE_LOG = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.kafka_storage_error,
    }
)
"""Refusals of a batch that was found to be good, and may have its time of append in it already."""


class _NotAppended:
    """The general way finds out why, and says so."""


_NOT_APPENDED = _NotAppended()


def serve(
    broker: ProducingBroker,
    connection: Connection,
    frame: memoryview,
    position: int,
    version: int,
    correlation_id: int,
) -> Answer | None:
    lone = parse_lone_batch(frame, position, version)
    if lone is not None:
        acks, timeout_ms, topic, index, start, stop = lone
        if stop - start >= HEADER_BYTES and frame[start + FLAGS] & TRANSACTIONAL:
            lone = None  # without a transactional id: refused as a whole
        else:
            answer = _append_lone(
                broker,
                connection,
                frame,
                version,
                correlation_id,
                acks,
                timeout_ms,
                topic,
                index,
                start,
                stop,
            )
            if not isinstance(answer, _NotAppended):
                return answer
    parsed = at_once(broker.clock, parsing_produce(frame, position, version), FIRST_SLICE_S)
    if parsed is None or _is_large(frame, parsed[3]):
        frame = connection.lasting(frame)
        slot = connection.park(held_bytes=len(frame))
        serving = _serve_in_line(broker, slot, frame, position, version, correlation_id)
        broker.line.put(guarded(broker, slot, "Produce", serving, is_kept=True))
        return None
    transactional_id, acks, timeout_ms, topics = parsed
    produce = Produce(broker, connection, frame, version, correlation_id, acks, timeout_ms, transactional_id)
    guard = broker.guard
    if lone is None or guard is not None:
        produce.refusal = whole(refusal_as_a_whole(frame, topics, transactional_id))
        topics = _last_of_each(topics)
    if guard is not None:
        topics = whole(produce.asking(guard, topics))
    if produce.refusal is None and (partitions := whole(produce.must_wait_for(topics))):
        produce.answer_in_turn(topics, partitions)
        return None
    return whole(produce.answering(topics))


def _is_large(frame: memoryview, topics: list[TopicRecords]) -> bool:
    """Whether a request has so much for so many partitions that others are to be served between."""
    count = sum(len(wanteds) for _, wanteds in topics)
    return count > PRODUCED_INLINE_MAX or (count > 1 and len(frame) > PRODUCED_INLINE_BYTES_MAX)


def _serve_in_line(
    broker: ProducingBroker, slot: Slot, frame: memoryview, position: int, version: int, correlation_id: int
) -> Slices[None]:
    """A request with many partitions, from its first byte to its answer. What its connection sends meanwhile waits."""
    transactional_id, acks, timeout_ms, topics = yield from parsing_produce(frame, position, version)
    connection = slot.connection
    produce = Produce(broker, connection, frame, version, correlation_id, acks, timeout_ms, transactional_id)
    produce.slot = slot
    produce.refusal = yield from refusal_as_a_whole(frame, topics, transactional_id)
    topics = _last_of_each(topics)
    if broker.guard is not None:
        topics = yield from produce.asking(broker.guard, topics)
    if produce.refusal is None and (partitions := (yield from produce.must_wait_for(topics))):
        produce.answer_in_turn(topics, partitions)
        return
    answer = yield from produce.answering(topics)
    if answer is not None or acks == ACKS_NONE:
        slot.fill(answer)


def _append_lone(
    broker: ProducingBroker,
    connection: Connection,
    frame: memoryview,
    version: int,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    topic: str | bytes,
    index: int,
    start: int,
    stop: int,
) -> bytes | _NotAppended | None:
    """One batch for a partition where nothing stands in its way: nearly all requests, straight through.

    None where its answer waits for the in-sync replicas.
    """
    partitions = broker.partitions_of.get(topic)
    if partitions is None or (partition := partitions.get(index)) is None:
        return _NOT_APPENDED
    if (acks != ACKS_ALL and acks != ACKS_LEADER) or not partition.is_open:
        return _NOT_APPENDED
    if not partition.log.is_straight or partition.turns:
        return _NOT_APPENDED
    if (guard := broker.guard) is not None and not guard.allows_quietly(
        connection, WRITE_TOPIC, partition.topic_partition.topic
    ):
        return _NOT_APPENDED
    try:
        error, base_offset, last_offset, append_time_ms, log_start_offset, message, _, is_duplicate, _ = (
            partition.append(frame, start, stop, broker.clock.wall_ms(), version >= ZSTD_SINCE_VERSION)
        )
    except OSError:  # not to be tried again: the batch may have its offset, and its time of append, already
        why_not = refused(broker, index, ErrorCode.kafka_storage_error)
        throttle_ms = throttle_ms_of(broker, connection, len(frame))
        return packed_refusals(broker, connection, correlation_id, version, [(topic, [why_not])], throttle_ms)
    if error:
        if error not in DECIDED_BY_THE_LOG:
            return _NOT_APPENDED
        why_not = refused(broker, index, error, message, log_start_offset)
        throttle_ms = throttle_ms_of(broker, connection, len(frame))
        return packed_refusals(broker, connection, correlation_id, version, [(topic, [why_not])], throttle_ms)
    if not is_duplicate:
        traffic = partition.traffic
        traffic.batches_in += 1
        traffic.bytes_in += stop - start
        traffic.messages_in += last_offset - base_offset + 1
    if acks == ACKS_ALL and partition.high_watermark <= last_offset:
        slot = connection.park(is_produce=True)
        produced = correlation_id, version, topic, index, base_offset, append_time_ms, log_start_offset
        deadline_s = broker.clock.monotonic() + timeout_ms / 1000
        on_committed = partial(_answer_lone, broker, connection, slot, len(frame), produced)
        partition.when_committed(last_offset + 1, deadline_s, on_committed)
        return None
    throttle_ms = 0
    if broker.throttling is not None:
        throttle_ms = broker.throttling.produced(connection, len(frame), now_s=connection.began_s)
    return pack_lone_produced(
        correlation_id, version, topic, index, base_offset, append_time_ms, log_start_offset, throttle_ms
    )


def _answer_lone(
    broker: ProducingBroker,
    connection: Connection,
    slot: Slot,
    size: int,
    produced: tuple[int, int, str | bytes, int, int, int, int],
    error: ErrorCode,
) -> None:
    """The in-sync replicas have the batch, or why that is not known."""
    throttle_ms = throttle_ms_of(broker, connection, size)
    if not error:
        slot.fill(pack_lone_produced(*produced, throttle_ms))
        return
    correlation_id, version, topic, index, *_ = produced
    answers = [(topic, [refused(broker, index, error)])]
    slot.fill(packed_refusals(broker, connection, correlation_id, version, answers, throttle_ms))


def _last_of_each(topics: list[TopicRecords]) -> list[TopicRecords]:
    """As Kafka: of a partition that is named twice the last batch counts, a topic without partitions is left out."""
    merged: dict[str | bytes, dict[int, PartitionRecords]] = {}
    for topic, wanteds in topics:
        for index, start, stop in wanteds:
            merged.setdefault(topic, {})[index] = index, start, stop
    return [(topic, list(wanteds.values())) for topic, wanteds in merged.items()]
