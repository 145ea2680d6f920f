"""Readers of a simulated run: fetches with and without sessions, long polls, odd limits, seeks, look-ups by time.

Every answer is checked where it arrives: it begins with the batch that was asked for, its batches are whole, follow
each other and lie below the high watermark, and their checksums and records are right. What was read goes to the
model. `read_all` reads one partition from its start to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.batch import HEADER_BYTES, crc_of, read_header
from moldau.records.record import BadRecord, Record, read_records
from moldau.sim.client import FETCH, LIST_OFFSETS, Client, Disconnected, Wire
from moldau.sim.model import Ledger, LookUp, Visible
from moldau.sim.random import SimRandom

VERSIONS = (4, 18)
SESSIONS_SINCE_VERSION = 7
LIST_OFFSETS_VERSIONS = (1, 10)
MAX_TIMESTAMP_SINCE_VERSION = 7
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
WAIT_MS_MAX = 300
FULL_FETCH_EPOCH = -1
FETCHES_IN_VAIN_MAX = 200
BATCHES_KEPT = 4096

TRANSIENT = (
    ErrorCode.kafka_storage_error,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.not_leader_or_follower,
)
SESSION_ERRORS = (ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch)


class Damaged(Exception):
    """Records that no broker may hand out."""


def unfold(data: bytes, offset: int) -> Iterator[tuple[int, Record]]:
    """The records from an offset on in what a fetch of that offset was answered with, with their leader epochs."""
    position, next_offset = 0, None
    while position < len(data):
        left = len(data) - position
        if left < HEADER_BYTES or not HEADER_BYTES <= read_header(data, position).size <= left:
            raise Damaged(f"{left} bytes that are no whole batch")
        header = read_header(data, position)
        batch = data[position : position + header.size]
        if next_offset is None and not header.base_offset <= offset <= header.last_offset:
            raise Damaged(f"offsets {header.base_offset} to {header.last_offset} first")
        if next_offset not in (None, header.base_offset):
            raise Damaged(f"offset {header.base_offset} where {next_offset} is due")
        records = _records_of(batch)
        yield from ((header.leader_epoch, record) for record in records if record.offset >= offset)
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
    if [record.offset for record in records] != list(range(header.base_offset, header.next_offset)):
        raise Damaged(f"records with gaps at offset {header.base_offset}")
    return records


class Position:
    """Where a reader is in one partition."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.offset = 0
        self.life = 0
        """The broker's life that gave the reader reason to be there."""
        self.is_told = False
        """Whether the session knows the offset."""

    def move(self, offset: int, life: int) -> None:
        self.offset, self.life, self.is_told = offset, life, False


class Reader:
    def __init__(self, client: Client, partitions: Sequence[TopicPartition], random: SimRandom) -> None:
        self._client = client
        self._random = client.random
        self._version = VERSIONS[0] + random.randrange(VERSIONS[1] - VERSIONS[0] + 1)
        self._list_version = LIST_OFFSETS_VERSIONS[0] + random.randrange(LIST_OFFSETS_VERSIONS[1])
        self._uses_sessions = self._version >= SESSIONS_SINCE_VERSION and random.chance(0.7)
        self._positions = {partition: Position(partition) for partition in partitions}
        self._session_id = 0
        self._epoch = 0
        self._seek_rate = random.between(0.0, 0.1)
        self._wire: Wire | None = None

    async def run(self) -> None:
        client = self._client
        while not client.is_stopping:
            try:
                await self._turn()
            except Disconnected:
                await client.pause()

    async def _turn(self) -> None:
        wire = await self._client.wire()
        if wire is not self._wire:
            self._wire = wire
            self._forget_session()
        if self._random.chance(self._seek_rate):
            await self._seek(wire)
        await self._fetch(wire)

    def _forget_session(self) -> None:
        self._session_id = self._epoch = 0
        for position in self._positions.values():
            position.is_told = False

    # Fetching

    async def _fetch(self, wire: Wire) -> None:
        client = self._client
        before = {partition: client.model[partition].visible for partition in self._positions}
        answer = await wire.ask(FETCH, self._version, self._request())
        client.count("fetches")
        code = getattr(answer, "error_code", ErrorCode.none)
        if code in SESSION_ERRORS:
            self._forget_session()
            return
        if code is not ErrorCode.none:
            client.model.fail(None, "a fetch to be answered", code.name)
        if self._uses_sessions:
            if answer.session_id not in (0, self._session_id) and self._session_id:
                client.model.fail(None, f"fetch session {self._session_id}", f"session {answer.session_id}")
            self._session_id = answer.session_id
            self._epoch = self._epoch + 1 if self._session_id else 0
        for topic in answer.responses:
            for part in topic.partitions:
                partition = client.partition_of(topic, part.partition_index)
                self._take(wire, client.model[partition], self._positions[partition], part, before[partition])

    def _request(self) -> SimpleNamespace:
        random = self._random
        topics: dict[str, list[object]] = {}
        for position in self._positions.values():
            if self._session_id and position.is_told:
                continue
            position.is_told = True
            parts = topics.setdefault(position.partition.topic, [])
            parts.append(wanted_partition(position.partition.partition, position.offset, _some_bytes(random)))
        return fetch_request(
            tuple(self._client.topic(name, partitions=tuple(parts)) for name, parts in topics.items()),
            max_wait=random.randrange(WAIT_MS_MAX),
            min_bytes=random.randrange(3000) if random.chance(0.3) else 1,
            max_bytes=_some_bytes(random),
            session_id=self._session_id if self._uses_sessions else 0,
            session_epoch=self._epoch if self._uses_sessions else FULL_FETCH_EPOCH,
        )

    def _take(self, wire: Wire, ledger: Ledger, position: Position, part: Any, before: Visible) -> None:
        code = part.error_code
        if code is ErrorCode.offset_out_of_range:
            self._out_of_range(wire, ledger, position)
        elif code is not ErrorCode.none:
            if code not in TRANSIENT:
                ledger.fail(f"offset {position.offset} to be read", code.name)
        else:
            ledger.check_visible(before, part.high_watermark)
            ledger.on_visible(wire.life, part.high_watermark)
            count = take_records(self._client, wire, ledger, part, position.offset)
            if count:
                position.move(position.offset + count, wire.life)

    def _out_of_range(self, wire: Wire, ledger: Ledger, position: Position) -> None:
        """Only a power cut may end a log below an offset at which a reader had reason to be."""
        wanted = ledger.standing(Visible(position.life, position.offset))
        if wanted == position.offset:
            ledger.fail(f"offset {position.offset} to be in the log", "out of range")
        position.move(0 if self._random.chance(0.3) else min(wanted, ledger.visible.next_offset), wire.life)

    # Seeking

    async def _seek(self, wire: Wire) -> None:
        """To the start, the end, somewhere known, or a time."""
        places = list(self._positions.values())
        position = places[self._random.randrange(len(places))]
        ledger = self._client.model[position.partition]
        choice = self._random.randrange(5)
        if choice == 0:
            position.move(0, wire.life)
        elif choice == 1:
            position.move(self._random.randrange(ledger.visible.next_offset + 1), ledger.visible.life)
        else:
            await self._look_up(wire, ledger, position, choice)

    async def _look_up(self, wire: Wire, ledger: Ledger, position: Position, choice: int) -> None:
        before = ledger.visible
        timestamp = LATEST
        if choice == 3:
            timestamp = self._client.runtime.clock.wall_ms() - self._random.randrange(5000)
        elif choice == 4 and self._list_version >= MAX_TIMESTAMP_SINCE_VERSION:
            timestamp = MAX_TIMESTAMP
        found = await list_offset(self._client, wire, self._list_version, position.partition, timestamp)
        self._client.count("look-ups")
        if found.error_code is not ErrorCode.none:
            if found.error_code not in TRANSIENT:
                ledger.fail("an offset to be listed", found.error_code.name)
        elif timestamp == LATEST:
            ledger.check_visible(before, found.offset)
            ledger.on_visible(wire.life, found.offset)
            position.move(found.offset, wire.life)
        else:
            asked = None if timestamp == MAX_TIMESTAMP else timestamp
            visible = ledger.standing(before)
            ledger.look_ups.append(LookUp(wire.life, asked, visible, found.timestamp, found.offset))
            if found.offset >= 0:
                position.move(found.offset, wire.life)


def take_records(client: Client, wire: Wire, ledger: Ledger, part: Any, offset: int) -> int:
    """Check a partition's part of an answer and tell the model; how many records it has."""
    count = 0
    try:
        for leader_epoch, record in unfold(part.records or b"", offset):
            if record.offset >= part.high_watermark:
                ledger.fail(
                    f"records below the high watermark {part.high_watermark}", f"offset {record.offset}"
                )
            ledger.on_read(wire.life, client.name, leader_epoch, record)
            count += 1
    except Damaged as damage:
        ledger.fail(f"a fetch of offset {offset} to give whole batches from there on", str(damage))
    client.count("records read", count)
    return count


def wanted_partition(index: int, offset: int, max_bytes: int) -> SimpleNamespace:
    return SimpleNamespace(
        partition=index,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


def fetch_request(topics: tuple[object, ...], **fields: int) -> SimpleNamespace:
    return SimpleNamespace(
        isolation_level=0, topics=topics, forgotten_topics_data=(), rack_id="", replica_id=-1, **fields
    )


async def list_offset(
    client: Client, wire: Wire, version: int, partition: TopicPartition, timestamp: int
) -> Any:
    wanted = SimpleNamespace(
        partition_index=partition.partition, current_leader_epoch=-1, timestamp=timestamp
    )
    topic = client.topic(partition.topic, partitions=(wanted,))
    message = SimpleNamespace(replica_id=-1, isolation_level=0, topics=(topic,), timeout=1000)
    answer = await wire.ask(LIST_OFFSETS, version, message)
    return answer.topics[0].partitions[0]


async def read_all(client: Client, partition: TopicPartition) -> list[Record]:
    """The whole log of a partition. For a quiet world: nothing may go wrong for long."""
    ledger = client.model[partition]
    log: list[Record] = []
    in_vain = 0
    while in_vain < FETCHES_IN_VAIN_MAX:
        wire = await client.wire()
        before = ledger.visible
        part = wanted_partition(partition.partition, len(log), _some_bytes(client.random))
        message = fetch_request(
            (client.topic(partition.topic, partitions=(part,)),),
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=FULL_FETCH_EPOCH,
        )
        try:
            answer = (await wire.ask(FETCH, 13, message)).responses[0].partitions[0]
        except Disconnected:
            await client.pause()
            continue
        in_vain += 1
        if answer.error_code is ErrorCode.none:
            ledger.check_visible(before, answer.high_watermark)
            try:
                found = list(unfold(answer.records or b"", len(log)))
            except Damaged as damage:
                ledger.fail(f"a fetch of offset {len(log)} to give whole batches from there on", str(damage))
                return log
            for leader_epoch, record in found:
                ledger.check_epoch(leader_epoch, record)
                log.append(record)
            if len(log) >= answer.high_watermark:
                return log
            if found:
                in_vain = 0
                continue
        await client.pause()
    ledger.fail("the log to be readable to its end", f"nothing from offset {len(log)} on")
    return log


def _some_bytes(random: SimRandom) -> int:
    return (1, 700, 5_000, 100_000, 1 << 20)[random.randrange(5)]
