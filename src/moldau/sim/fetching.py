"""Fetching and looking up as clients do it, and unfolding what comes: shared by the readers of all workloads.

`unfold` takes apart what a fetch was answered with and refuses what no broker may hand out: it begins with the batch
that was asked for, its batches are whole and follow each other, and their checksums and records are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.batch import HEADER_BYTES, BatchHeader, crc_of, read_header
from moldau.records.record import BadRecord, Record, read_records
from moldau.sim.client import FETCH, LIST_OFFSETS, Client, Disconnected, Wire
from moldau.sim.model import Ledger
from moldau.sim.routes import NO_EPOCH

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FULL_FETCH_EPOCH = -1
FETCHES_IN_VAIN_MAX = 200
BATCHES_KEPT = 4096
WHOLE_LOG_VERSION = 13
WHOLE_LOG_BYTES = (700, 5_000, 100_000, 1 << 20, 1 << 20)


class Damaged(Exception):
    """Records that no broker may hand out."""


Batch = tuple[BatchHeader, list[Record]]


def unfold(data: bytes, offset: int, *, has_gaps: bool = False) -> Iterator[Batch]:
    """The batches in what a fetch of an offset was answered with, each with its records from that offset on."""
    position, next_offset = 0, None
    while position < len(data):
        left = len(data) - position
        if left < HEADER_BYTES or not HEADER_BYTES <= read_header(data, position).size <= left:
            raise Damaged(f"{left} bytes that are no whole batch")
        header = read_header(data, position)
        batch = data[position : position + header.size]
        records = _records_of(batch)
        if has_gaps:
            is_next = (
                header.last_offset >= offset if next_offset is None else header.base_offset >= next_offset
            )
        else:
            is_next = next_offset == header.base_offset or next_offset is None
            if next_offset is None and not header.base_offset <= offset <= header.last_offset:
                raise Damaged(f"offsets {header.base_offset} to {header.last_offset} first")
            if len(records) != header.next_offset - header.base_offset:
                raise Damaged(f"records with gaps at offset {header.base_offset}")
        if not is_next:
            raise Damaged(f"offset {header.base_offset} where {next_offset or offset} is due")
        yield header, [record for record in records if record.offset >= offset]
        next_offset = header.next_offset
        position += header.size


@lru_cache(maxsize=BATCHES_KEPT)
def _records_of(batch: bytes) -> list[Record]:
    """Every batch is read many times in a run, and looked into once."""
    header = read_header(batch)
    if crc_of(batch, 0, len(batch)) != header.crc:
        raise Damaged(f"a wrong checksum at offset {header.base_offset}")
    try:
        records = read_records(batch)
    except BadRecord as bad:
        raise Damaged(f"records that cannot be read at offset {header.base_offset}: {bad}") from None
    offsets = [record.offset for record in records]
    if offsets != sorted(set(offsets)) or (
        offsets and not header.base_offset <= offsets[0] <= offsets[-1] <= header.last_offset
    ):
        raise Damaged(f"the offsets {offsets} in a batch from {header.base_offset} to {header.last_offset}")
    return records


def wanted_partition(
    index: int, offset: int, max_bytes: int, leader_epoch: int = NO_EPOCH
) -> SimpleNamespace:
    return SimpleNamespace(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


def fetch_request(
    topics: tuple[object, ...], isolation_level: int, rack_id: str = "", **fields: int
) -> SimpleNamespace:
    return SimpleNamespace(
        isolation_level=isolation_level,
        topics=topics,
        forgotten_topics_data=(),
        rack_id=rack_id,
        replica_id=-1,
        **fields,
    )


async def list_offset(
    client: Client,
    wire: Wire,
    version: int,
    partition: TopicPartition,
    timestamp: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> Any:
    wanted = SimpleNamespace(
        partition_index=partition.partition,
        current_leader_epoch=client.leader_epoch(partition),
        timestamp=timestamp,
    )
    topic = client.topic(partition.topic, partitions=(wanted,))
    message = SimpleNamespace(replica_id=-1, isolation_level=isolation_level, topics=(topic,), timeout=1000)
    answer = await wire.ask(LIST_OFFSETS, version, message)
    return answer.topics[0].partitions[0]


async def read_all(client: Client, partition: TopicPartition) -> list[Batch]:
    """The whole log of a partition, committed or not. For a quiet world: nothing may go wrong for long."""
    ledger = client.model[partition]
    log: list[Batch] = []
    next_offset, in_vain = ledger.first_offset, 0
    while in_vain < FETCHES_IN_VAIN_MAX:
        wire = await client.wire(partition)
        before, _ = client.model.relied_on(ledger)
        try:
            answer = await fetch_one(client, wire, partition, next_offset, READ_UNCOMMITTED)
        except Disconnected:
            await client.pause()
            continue
        in_vain += 1
        if answer.error_code is ErrorCode.none:
            ledger.check_visible(before, answer.high_watermark)
            found = _checked(ledger, answer, next_offset)
            if found is None:
                return log
            if found:
                log += found
                next_offset, in_vain = found[-1][0].next_offset, 0
            if next_offset >= answer.high_watermark:
                return log
            if found:
                continue
        else:
            client.mistrust(partition)
        await client.pause()
    ledger.fail("the log to be readable to its end", f"nothing from offset {next_offset} on")
    return log


def _checked(ledger: Ledger, answer: Any, offset: int) -> list[Batch] | None:
    """What was read; None where it is damaged."""
    try:
        found = list(unfold(answer.records or b"", offset, has_gaps=ledger.has_gaps))
    except Damaged as damage:
        ledger.fail(f"a fetch of offset {offset} to give whole batches from there on", str(damage))
        return None
    for header, records in found:
        for record in records:
            ledger.check_epoch(header.leader_epoch, record)
    return found


async def fetch_one(
    client: Client,
    wire: Wire,
    partition: TopicPartition,
    offset: int,
    isolation_level: int,
    max_wait: int = 0,
    rack_id: str = "",
) -> Any:
    """Fetch one partition from an offset on, with a limit of some size."""
    max_bytes = WHOLE_LOG_BYTES[client.random.randrange(len(WHOLE_LOG_BYTES))]
    wanted = wanted_partition(partition.partition, offset, max_bytes, client.leader_epoch(partition))
    message = fetch_request(
        (client.topic(partition.topic, partitions=(wanted,)),),
        isolation_level,
        rack_id,
        max_wait=max_wait,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=FULL_FETCH_EPOCH,
    )
    answer = await wire.ask(FETCH, WHOLE_LOG_VERSION, message)
    return answer.responses[0].partitions[0]
