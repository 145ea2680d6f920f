"""Readers that say where they are, and are sent by the leader to a follower in their rack (KIP-392).

What a follower shows is committed as well: it is there for ever (`Ledger.on_read`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import TIMELESS, Client, Disconnected, Wire
from moldau.sim.fetching import READ_UNCOMMITTED, Damaged, fetch_one, unfold

FETCHES_MAX = 5
"""From a follower, before the leader is asked again."""
WAIT_MS = 50
PAUSE_S = (0.0, 0.1)
SEEK_RATE = 0.1
NO_RACK = ""


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"


class NearReader:
    """`committed` says up to where a partition is committed, by whomever."""

    def __init__(
        self,
        client: Client,
        places: Sequence[TopicPartition],
        rack: str,
        committed: Callable[[TopicPartition], int],
    ) -> None:
        self._client = client
        self._random = client.random
        self._rack = rack
        self._committed = committed
        self._offsets = dict.fromkeys(places, 0)

    async def run(self) -> None:
        client = self._client
        while not client.is_stopping:
            place = list(self._offsets)[self._random.randrange(len(self._offsets))]
            if self._random.chance(SEEK_RATE):
                self._offsets[place] = 0
            try:
                await self._read(place)
            except Disconnected:
                pass
            await client.runtime.tasks.sleep(self._random.between(*PAUSE_S))

    async def _read(self, place: TopicPartition) -> None:
        """Ask the leader, and go where it sends us."""
        part = await self._fetch(await self._client.wire(place), place, self._rack)
        if part is None or part.preferred_read_replica < 0:
            return
        self._client.count("sent to a follower")
        follower = await self._client.wire_to(part.preferred_read_replica)
        for _ in range(1 + self._random.randrange(FETCHES_MAX)):
            if follower is not None:
                await self._fetch(follower, place, NO_RACK)

    async def _fetch(self, wire: Wire, place: TopicPartition, rack: str) -> Any:
        """A partition's part of an answer; None where it is an error."""
        client, offset = self._client, self._offsets[place]
        part = await fetch_one(client, wire, place, offset, READ_UNCOMMITTED, WAIT_MS, rack)
        ledger = client.model[place]
        if part.error_code is not ErrorCode.none:
            client.mistrust(place)
            if part.error_code is ErrorCode.offset_out_of_range:
                self._offsets[place] = ledger.first_offset
            return None
        try:
            for header, records in unfold(part.records or b"", offset, has_gaps=ledger.has_gaps):
                if header.last_offset >= part.high_watermark:
                    ledger.fail(
                        f"records below the high watermark {part.high_watermark}", str(header.last_offset)
                    )
                if header.last_offset >= self._committed(place):
                    ledger.fail(f"committed records, below {self._committed(place)}", str(header.last_offset))
                for record in () if header.is_control else records:
                    ledger.on_read(TIMELESS, client.name, header.leader_epoch, record)
                    client.count("records read near by")
                self._offsets[place] = header.next_offset
        except Damaged as damage:
            ledger.fail(f"a fetch of offset {offset} to give whole batches from there on", str(damage))
        return part
