"""Readers of committed records: they leave out what the broker names as aborted, as clients do.

What each was shown goes to the model, stretch by stretch: in the end it must be just what is committed there, the same
for all. `fetch_committed` is one fetch of one partition. Readers of everything are those of the workload of logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.record import Record
from moldau.sim.client import Client, Wire
from moldau.sim.fetching import READ_COMMITTED, Batch, Damaged, fetch_one, list_offset, unfold
from moldau.sim.model import Ledger
from moldau.sim.random import SimRandom
from moldau.sim.workloads.log.readers import LATEST, Position, Reader, is_transient
from moldau.sim.workloads.transactions.model import Glimpse, TransactionModel

ABORT_KEY = b"\0\0\0\0"
"""The key of a marker that aborts: version 0, type 0."""
ISOLATION_SINCE_VERSION = 2  # of ListOffsets
WAIT_MS = 50


class AnyReader(Reader):
    """Reads everything, committed or not: of a fenced producer not even that may be there."""

    def __init__(
        self, client: Client, model: TransactionModel, places: Sequence[TopicPartition], random: SimRandom
    ) -> None:
        super().__init__(client, places, random)
        self._model = model

    def on_record(self, place: TopicPartition, record: Record) -> None:
        self._model.on_read(place, record.offset, record.value or b"")


class CommittedReader(Reader):
    isolation_level = READ_COMMITTED

    def __init__(
        self, client: Client, model: TransactionModel, places: Sequence[TopicPartition], random: SimRandom
    ) -> None:
        super().__init__(client, places, random)
        self._model = model

    def take_records(self, wire: Wire, ledger: Ledger, part: Any, offset: int) -> int:
        glimpse = take_committed(self.client, self._model, wire, ledger, part, offset)
        return glimpse.next_offset

    async def look_up(self, wire: Wire, ledger: Ledger, position: Position, choice: int) -> None:
        """The end of what is committed."""
        _, before = self.relied_on(position)
        version = max(self.list_version, ISOLATION_SINCE_VERSION)
        found = await list_offset(self.client, wire, version, position.partition, LATEST, READ_COMMITTED)
        if found.error_code is ErrorCode.none:
            ledger.check_stable(before, found.offset, max(found.offset, before.next_offset))
            ledger.on_stable(wire.life, found.offset)
            position.reach(found.offset)
            position.move(found.offset, wire.life)
        else:
            self.on_error(position, found.error_code, "an offset to be listed")


async def fetch_committed(
    client: Client, model: TransactionModel, wire: Wire, place: TopicPartition, offset: int
) -> Glimpse | None:
    """What is committed from an offset on, as far as one fetch goes; None where it cannot be had now."""
    ledger = client.model[place]
    visible, stable = client.model.relied_on(ledger)
    part = await fetch_one(client, wire, place, offset, READ_COMMITTED, WAIT_MS)
    if part.error_code is not ErrorCode.none:
        if not is_transient(client, part.error_code):
            ledger.fail(f"offset {offset} to be read", part.error_code.name)
        return None
    ledger.check_visible(visible, part.high_watermark)
    ledger.check_stable(stable, part.last_stable_offset, part.high_watermark)
    ledger.on_stable(wire.life, part.last_stable_offset)
    return take_committed(client, model, wire, ledger, part, offset)


def take_committed(
    client: Client, model: TransactionModel, wire: Wire, ledger: Ledger, part: Any, offset: int
) -> Glimpse:
    """Check a partition's part of an answer, tell the model; what is committed of it, and where to read on."""
    next_offset = offset
    batches: list[Batch] = []
    try:
        for batch in unfold(part.records or b"", offset):
            batches.append(batch)
            next_offset = batch[0].next_offset
    except Damaged as damage:
        ledger.fail(f"a fetch of offset {offset} to give whole batches from there on", str(damage))
    if next_offset > max(offset, part.last_stable_offset):
        ledger.fail(f"records below the last stable offset {part.last_stable_offset}", f"{next_offset - 1}")
    values = []
    for leader_epoch, record in committed(batches, part.aborted_transactions or ()):
        ledger.on_read(wire.life, client.name, leader_epoch, record)
        values.append((record.offset, record.value or b""))
    glimpse = Glimpse(client.name, offset, next_offset, tuple(values))
    model.on_glimpse(ledger.partition, glimpse)
    client.count("committed records read", len(values))
    return glimpse


def committed(batches: Sequence[Batch], aborted: Iterable[Any]) -> list[tuple[int, Record]]:
    """The records that a client hands on, with their leader epochs: without markers, and what they aborted."""
    waiting = sorted((one.first_offset, one.producer_id) for one in aborted)
    aborting: set[int] = set()
    found = []
    for header, records in batches:
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.is_control:
            if records and records[0].key == ABORT_KEY:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += [(header.leader_epoch, record) for record in records]
    return found
