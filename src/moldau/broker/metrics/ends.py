"""Where partitions end that this broker has no replica of, as their leaders say: for the lag of groups (ListOffsets).

Asked when /metrics is, about what groups had committed at the last look. What a leader does not say in time is not
known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.base.limits import METRIC_WAIT_S
from moldau.peers.errors import Busy, Disconnected
from moldau.peers.peers import Peers
from moldau.runtime.ports import Tasks

LIST_OFFSETS = 2
CONSUMER, LATEST, NO_EPOCH = -1, -1, -1
LANE = "metrics"
PARTITIONS_PER_REQUEST = 500


class Ends:
    """`leader_of`: by this broker's image; None where nobody else leads."""

    def __init__(self, tasks: Tasks, peers: Peers, leader_of: Callable[[TopicPartition], int | None]) -> None:
        self._tasks = tasks
        self._peers = peers
        self._leader_of = leader_of
        self._known: dict[TopicPartition, int] = {}

    def of(self, place: TopicPartition) -> int | None:
        """As it was said at the last look."""
        return self._known.get(place)

    async def look(self, wanted: Iterable[TopicPartition]) -> None:
        self._known = {}
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for number, place in enumerate(wanted, 1):
            if number % PARTITIONS_PER_REQUEST == 0:
                await self._tasks.sleep(0)
            leader = self._leader_of(place)
            if leader is not None:
                led[leader].append(place)
        asking = [
            self._tasks.spawn(self._ask(leader, places), name=f"ends on broker {leader}")
            for leader, places in led.items()
        ]
        for task in asking:
            await task

    async def _ask(self, leader: int, places: list[TopicPartition]) -> None:
        try:
            peer = self._peers.peer(leader, LANE)
            for first in range(0, len(places), PARTITIONS_PER_REQUEST):
                request = _request(places[first : first + PARTITIONS_PER_REQUEST])
                answer: Any = await peer.ask(LIST_OFFSETS, request, METRIC_WAIT_S)
                for topic in answer.topics:
                    for found in topic.partitions:
                        if not found.error_code:
                            self._known[TopicPartition(topic.name, found.partition_index)] = found.offset
        except (Disconnected, Busy):
            return  # it tells next time


def _request(places: list[TopicPartition]) -> SimpleNamespace:
    topics: dict[str, list[SimpleNamespace]] = defaultdict(list)
    for place in places:
        topics[place.topic].append(
            SimpleNamespace(partition_index=place.partition, current_leader_epoch=NO_EPOCH, timestamp=LATEST)
        )
    return SimpleNamespace(
        replica_id=CONSUMER,
        isolation_level=0,
        topics=tuple(SimpleNamespace(name=name, partitions=tuple(wanted)) for name, wanted in topics.items()),
        timeout=0,
    )
