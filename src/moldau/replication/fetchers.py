"""The fetchers of a broker, one for each broker that leads something it follows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from moldau.log.log import Log
from moldau.metadata.records import NO_LEADER
from moldau.peers.errors import Busy, Disconnected
from moldau.peers.peers import Peers
from moldau.replication.fetcher import Fetcher, FetcherSettings
from moldau.replication.partition import Partition
from moldau.replication.throttle import Throttle
from moldau.runtime.ports import Runtime

LANE = "fetcher"


class Fetchers:
    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        node_id: int,
        broker_epoch: Callable[[], int],
        checkpoint: Callable[[Log], Awaitable[None]],
        settings: FetcherSettings,
        throttle: Throttle,
    ) -> None:
        self._runtime = runtime
        self._peers = peers
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._checkpoint = checkpoint
        self._settings = settings
        self._throttle = throttle
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[Partition, int] = {}
        self._leaving: dict[Partition, asyncio.Future[None]] = {}
        """Partitions that are being given up: done when they are."""
        self._waiting: dict[Partition, None] = {}
        """Followers of a broker whose address is not known yet."""

    @property
    def fetched_bytes(self) -> int:
        return sum(fetcher.fetched_bytes for fetcher in self._fetchers.values())

    async def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader as it is now; from nobody, where it has none."""
        leader = partition.state.leader
        while self._leaders.get(partition, leader) != leader or partition in self._leaving:
            await self.forget(partition)
            leader = partition.state.leader
        if leader == NO_LEADER or leader == self._node_id or partition.is_offline:
            return
        fetcher = self._fetcher_of(leader)
        if fetcher is None:
            self._waiting[partition] = None
            return
        self._leaders[partition] = leader
        fetcher.follow(partition)

    async def forget(self, partition: Partition) -> None:
        """When this returns, nothing of a leader's will be written to its log."""
        self._waiting.pop(partition, None)
        leader = self._leaders.pop(partition, NO_LEADER)
        if leader in self._fetchers:
            self._leaving[partition] = left = asyncio.get_running_loop().create_future()
            try:
                await self._fetchers[leader].forget(partition)
            finally:
                del self._leaving[partition]
                left.set_result(None)
        elif partition in self._leaving:
            await asyncio.shield(self._leaving[partition])

    async def on_brokers_changed(self) -> None:
        """Brokers have come, gone or moved."""
        self._peers.refresh()
        waiting, self._waiting = self._waiting, {}
        for partition in waiting:
            await self.follow(partition)

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()

    def _fetcher_of(self, leader: int) -> Fetcher | None:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            try:
                fetcher = self._fetchers[leader] = Fetcher(
                    self._runtime,
                    partial(self._peers.peer, leader, LANE),
                    self._node_id,
                    self._broker_epoch,
                    self._checkpoint,
                    self._settings,
                    self._throttle,
                )
            except (Disconnected, Busy):
                return None
        return fetcher
