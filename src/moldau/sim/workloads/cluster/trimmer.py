"""Who lets partitions begin later (DeleteRecords), while others write and read them.

An answer without an error means that every replica in sync has heard of it (KIP-107): so no leader that follows shows
what is gone, but for one that was killed before it had its own start on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import Client, Disconnected
from moldau.sim.node import BrokerNode
from moldau.sim.workloads.cluster.model import TrimmedLedger
from moldau.sim.workloads.cluster.store_view import StoreView
from moldau.sim.workloads.log.readers import is_transient

DELETE_RECORDS, DELETE_RECORDS_VERSION = 21, 2
PAUSE_S = (0.2, 1.5)
PATIENCE_MS = 1500


class Trimmer:
    def __init__(
        self,
        client: Client,
        places: Sequence[TopicPartition],
        nodes: Sequence[BrokerNode],
        store: StoreView,
    ) -> None:
        self._client = client
        self._random = client.random
        self._places = places
        self._nodes = nodes
        self._store = store

    async def run(self) -> None:
        client = self._client
        while not client.is_stopping:
            await client.runtime.tasks.sleep(self._random.between(*PAUSE_S))
            try:
                await self._trim(self._places[self._random.randrange(len(self._places))])
            except Disconnected:
                continue

    async def _trim(self, place: TopicPartition) -> None:
        ledger = self._client.model[place]
        assert isinstance(ledger, TrimmedLedger)
        left = ledger.visible.next_offset - ledger.first_offset
        offset = ledger.first_offset + self._random.randrange(max(1, left))
        wire = await self._client.wire(place)
        lives = {node.node_id: node.life for node in self._nodes if node.is_up}
        ledger.on_asked_to_begin_at(offset)
        answer = await wire.ask(DELETE_RECORDS, DELETE_RECORDS_VERSION, self._request(place, offset))
        row = answer.topics[0].partitions[0]
        if row.error_code is ErrorCode.none:
            self._client.count("trimmed")
            self._check(ledger, offset, row, lives)
        else:
            self._client.mistrust(place)
            if not is_transient(self._client, row.error_code) and row.error_code not in (
                ErrorCode.request_timed_out,
                ErrorCode.offset_out_of_range,  # for a leader that does not know yet what is committed
            ):
                ledger.fail(f"a beginning at {offset}", row.error_code.name)

    def _request(self, place: TopicPartition, offset: int) -> SimpleNamespace:
        row = SimpleNamespace(partition_index=place.partition, offset=offset)
        topic = SimpleNamespace(name=place.topic, partitions=(row,))
        return SimpleNamespace(topics=(topic,), timeout=PATIENCE_MS)

    def _check(self, ledger: TrimmedLedger, offset: int, row: Any, lives: dict[int, int]) -> None:
        """Of those that have lived since it was asked for, who is in sync begins there."""
        place = ledger.partition
        if row.low_watermark < offset:
            ledger.fail(f"a low watermark of {offset} at least", str(row.low_watermark))
        state = self._store.state_of(self._client.topic_ids[place.topic], place.partition)
        for node in self._nodes:
            if state is None or node.node_id not in state.isr or lives.get(node.node_id) != node.life:
                continue
            partition = None if node.broker is None else node.broker.partitions.get(place)
            if partition is not None and partition.log.log_start_offset < offset:
                ledger.fail(
                    f"{node.name} to begin at {offset} when that is said",
                    f"{partition.log.log_start_offset}",
                )
