"""Readers of a simulated run: fetches with and without sessions, long polls, odd limits, seeks, look-ups by time.

Every answer is checked where it arrives: its batches are whole (`sim.fetching`) and lie below the high watermark, which
never moves back. What was read goes to the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.record import Record
from moldau.sim.client import FETCH, Client, Disconnected, Wire
from moldau.sim.fetching import (
    FULL_FETCH_EPOCH,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Damaged,
    fetch_request,
    list_offset,
    unfold,
    wanted_partition,
)
from moldau.sim.model import NOTHING, Ledger, LookUp, Visible
from moldau.sim.random import SimRandom
from moldau.sim.routes import NO_EPOCH

VERSIONS = (4, 18)
TELLS_THE_EPOCH_SINCE_VERSION = 9
LIST_TELLS_THE_EPOCH_SINCE_VERSION = 4
SESSIONS_SINCE_VERSION = 7
LIST_OFFSETS_VERSIONS = (1, 10)
MAX_TIMESTAMP_SINCE_VERSION = 7
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
WAIT_MS_MAX = 300
NEXT_BROKER_RATE = 0.3

TRANSIENT = (
    ErrorCode.kafka_storage_error,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.not_leader_or_follower,
)
TRANSIENT_IN_A_CLUSTER = (
    *TRANSIENT,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_not_available,
    ErrorCode.leader_not_available,
)
SESSION_ERRORS = (ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch)


class Position:
    """Where a reader is in one partition."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.offset = 0
        self.life = 0
        """The broker's life that gave the reader reason to be there."""
        self.is_told = False
        """Whether the session knows the offset."""
        self.told_epoch = NO_EPOCH
        """The leader epoch that the session knows."""
        self.visible = NOTHING
        """Up to where this reader has read, or was told that there is something to read."""

    def reach(self, next_offset: int) -> None:
        self.visible = Visible(0, max(next_offset, self.visible.next_offset))

    def move(self, offset: int, life: int) -> None:
        self.offset, self.life, self.is_told = offset, life, False


def is_transient(client: Client, error: ErrorCode) -> bool:
    return error in (TRANSIENT_IN_A_CLUSTER if client.is_in_cluster else TRANSIENT)


class Reader:
    isolation_level = READ_UNCOMMITTED

    def __init__(self, client: Client, partitions: Sequence[TopicPartition], random: SimRandom) -> None:
        self.client = client
        self.random = client.random
        self._version = VERSIONS[0] + random.randrange(VERSIONS[1] - VERSIONS[0] + 1)
        self.list_version = LIST_OFFSETS_VERSIONS[0] + random.randrange(LIST_OFFSETS_VERSIONS[1])
        if client.is_in_cluster:  # who does not say which leader is meant may be answered by one of before
            self._version = max(self._version, TELLS_THE_EPOCH_SINCE_VERSION)
            self.list_version = max(self.list_version, LIST_TELLS_THE_EPOCH_SINCE_VERSION)
        self._uses_sessions = self._version >= SESSIONS_SINCE_VERSION and random.chance(0.7)
        self._positions = {partition: Position(partition) for partition in partitions}
        self._place = partitions[0]
        """Whose leader is asked, and asked for all that it leads."""
        self._watched: Sequence[Position] = ()
        """Those that are read now: all of them, or those that one broker leads."""
        self._session_id = 0
        self._epoch = 0
        self._seek_rate = random.between(0.0, 0.1)
        self._wire: Wire | None = None

    async def run(self) -> None:
        client = self.client
        while not client.is_stopping:
            try:
                await self._turn()
            except Disconnected:
                await client.pause()

    async def _turn(self) -> None:
        if self.client.is_in_cluster and self.random.chance(NEXT_BROKER_RATE):
            self._place = list(self._positions)[self.random.randrange(len(self._positions))]
        wire = await self.client.wire(self._place)
        watched = [it for it in self._positions.values() if self.client.leads(wire, it.partition)]
        if wire is not self._wire or watched != self._watched:
            self._wire, self._watched = wire, watched
            self._forget_session()
        if self.random.chance(self._seek_rate):
            await self._seek(wire)
        await self._fetch(wire)

    def _forget_session(self) -> None:
        self._session_id = self._epoch = 0
        for position in self._positions.values():
            position.is_told = False

    # Fetching

    async def _fetch(self, wire: Wire) -> None:
        client = self.client
        before = {place: self._before_fetch(position) for place, position in self._positions.items()}
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
                self._take(
                    wire, client.model[partition], self._positions[partition], part, *before[partition]
                )

    def _request(self) -> SimpleNamespace:
        random = self.random
        topics: dict[str, list[object]] = {}
        for position in self._watched:
            epoch = self.client.leader_epoch(position.partition)
            if self._session_id and position.is_told and epoch == position.told_epoch:
                continue
            position.is_told, position.told_epoch = True, epoch
            parts = topics.setdefault(position.partition.topic, [])
            parts.append(
                wanted_partition(position.partition.partition, position.offset, _some_bytes(random), epoch)
            )
        return fetch_request(
            tuple(self.client.topic(name, partitions=tuple(parts)) for name, parts in topics.items()),
            self.isolation_level,
            max_wait=random.randrange(WAIT_MS_MAX),
            min_bytes=random.randrange(3000) if random.chance(0.3) else 1,
            max_bytes=_some_bytes(random),
            session_id=self._session_id if self._uses_sessions else 0,
            session_epoch=self._epoch if self._uses_sessions else FULL_FETCH_EPOCH,
        )

    def _take(
        self, wire: Wire, ledger: Ledger, position: Position, part: Any, visible: Visible, stable: Visible
    ) -> None:
        code = part.error_code
        if code is ErrorCode.offset_out_of_range:
            self._out_of_range(wire, ledger, position)
        elif code is not ErrorCode.none:
            self.on_error(position, code, f"offset {position.offset} to be read")
        else:
            ledger.check_visible(visible, part.high_watermark)
            ledger.on_visible(wire.life, part.high_watermark)
            ledger.check_stable(stable, part.last_stable_offset, part.high_watermark)
            ledger.on_stable(wire.life, part.last_stable_offset)
            next_offset = self.take_records(wire, ledger, part, position.offset)
            if next_offset > position.offset:
                position.move(next_offset, wire.life)
                position.reach(next_offset)

    def relied_on(self, position: Position) -> tuple[Visible, Visible]:
        """What the end of the log must be at least, for readers of all and of committed records: in a cluster, what
        this one has read, or was told."""
        model = self.client.model
        if model.is_linear:
            return model.relied_on(model[position.partition])
        return position.visible, position.visible if self.isolation_level == READ_COMMITTED else NOTHING

    def _before_fetch(self, position: Position) -> tuple[Visible, Visible]:
        """The same for a fetch: a new leader of a cluster may not know yet what lies behind what it is asked for."""
        visible, stable = self.relied_on(position)
        if self.client.model.is_linear:
            return visible, stable
        return min(visible, Visible(0, position.offset)), min(stable, Visible(0, position.offset))

    def on_error(self, position: Position, error: ErrorCode, wanted: str) -> None:
        if is_transient(self.client, error):
            self.client.mistrust(position.partition)
        else:
            self.client.model[position.partition].fail(wanted, error.name)

    def take_records(self, wire: Wire, ledger: Ledger, part: Any, offset: int) -> int:
        """Check a partition's part of an answer and tell the model; where to read on."""
        next_offset = offset
        try:
            for header, records in unfold(part.records or b"", offset, has_gaps=ledger.has_gaps):
                if header.last_offset >= part.high_watermark:
                    ledger.fail(
                        f"records below the high watermark {part.high_watermark}",
                        f"offset {header.last_offset}",
                    )
                if not header.is_control:
                    for record in records:
                        ledger.on_read(wire.life, self.client.name, header.leader_epoch, record)
                        self.on_record(ledger.partition, record)
                    self.client.count("records read", len(records))
                next_offset = header.next_offset
        except Damaged as damage:
            ledger.fail(f"a fetch of offset {offset} to give whole batches from there on", str(damage))
        return next_offset

    def on_record(self, place: TopicPartition, record: Record) -> None:
        """Called with everything that is read."""

    def _out_of_range(self, wire: Wire, ledger: Ledger, position: Position) -> None:
        """Only a power cut may end a log below an offset at which a reader had reason to be."""
        if self.client.is_in_cluster:  # a leader of before does not know what the next one has told
            self.client.count("out of range")
            self.client.mistrust(position.partition)
            if position.offset < ledger.first_offset:
                position.move(ledger.first_offset, wire.life)
            return
        wanted = ledger.standing(Visible(position.life, position.offset))
        if wanted == position.offset:
            ledger.fail(f"offset {position.offset} to be in the log", "out of range")
        position.move(0 if self.random.chance(0.3) else min(wanted, ledger.visible.next_offset), wire.life)

    # Seeking

    async def _seek(self, wire: Wire) -> None:
        """To the start, the end, somewhere known, or a time."""
        position = self._watched[self.random.randrange(len(self._watched))]
        ledger = self.client.model[position.partition]
        choice = self.random.randrange(5)
        if choice == 0:
            position.move(0, wire.life)
        elif choice == 1:
            position.move(self.random.randrange(ledger.visible.next_offset + 1), ledger.visible.life)
        else:
            await self.look_up(wire, ledger, position, choice)

    async def look_up(self, wire: Wire, ledger: Ledger, position: Position, choice: int) -> None:
        before, _ = self.relied_on(position)
        timestamp = LATEST
        if choice == 3:
            timestamp = self.client.runtime.clock.wall_ms() - self.random.randrange(5000)
        elif choice == 4 and self.list_version >= MAX_TIMESTAMP_SINCE_VERSION:
            timestamp = MAX_TIMESTAMP
        found = await list_offset(self.client, wire, self.list_version, position.partition, timestamp)
        self.client.count("look-ups")
        if found.error_code is not ErrorCode.none:
            self.on_error(position, found.error_code, "an offset to be listed")
        elif timestamp == LATEST:
            ledger.check_visible(before, found.offset)
            ledger.on_visible(wire.life, found.offset)
            position.reach(found.offset)
            position.move(found.offset, wire.life)
        else:
            asked = None if timestamp == MAX_TIMESTAMP else timestamp
            visible = ledger.standing(before)
            ledger.on_look_up(LookUp(wire.life, asked, visible, found.timestamp, found.offset))
            if found.offset >= 0:
                position.move(found.offset, wire.life)


def _some_bytes(random: SimRandom) -> int:
    return (1, 700, 5_000, 100_000, 1 << 20)[random.randrange(5)]
