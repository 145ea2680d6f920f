"""What many callers ask of one other broker, in as few requests as it takes: one is under way, the rest collects.

For the ends of transactions and for their verification, as Kafka's TransactionMarkerChannelManager and
AddPartitionsToTxnManager have it. Nothing is sent again: a caller whose request is lost, or for which there is no room,
is told so, and decides with the leaders of then. A broker that is fenced is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from moldau.base.limits import OUTBOX_ITEMS_MAX, OUTBOX_WEIGHT_PER_REQUEST
from moldau.peers.errors import Busy, Disconnected
from moldau.peers.peer import Peer
from moldau.peers.peers import Peers
from moldau.runtime.ports import Tasks

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Send = Callable[[Peer, Sequence[Item]], Awaitable[Sequence[Outcome]]]
"""Sends one request for some items: an outcome for each, in their order. Disconnected, Busy."""


class Load(NamedTuple):
    """How an item counts."""

    key: Hashable
    """Two with one key are not in one request: the answer could not tell them apart."""
    weight: int
    """How many partitions it names."""


class _Waiting(NamedTuple, Generic[Item, Outcome]):
    item: Item
    load: Load
    outcome: asyncio.Future[Outcome]


class _Queue(Generic[Item, Outcome]):
    """Of one broker."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiting[Item, Outcome]] = deque()
        self.sent: list[_Waiting[Item, Outcome]] = []
        self.sender: asyncio.Task[None] | None = None


class Outbox(Generic[Item, Outcome]):
    """`lost` is the outcome of an item whose request was lost, or was never sent."""

    def __init__(
        self,
        tasks: Tasks,
        peers: Peers,
        lane: str,
        send: Send[Item, Outcome],
        load: Callable[[Item], Load],
        lost: Callable[[Item], Outcome],
    ) -> None:
        self._tasks = tasks
        self._peers = peers
        self._lane = lane
        self._send = send
        self._load = load
        self._lost = lost
        self._queues: dict[int, _Queue[Item, Outcome]] = {}

    async def ask(self, broker_id: int, item: Item) -> Outcome:
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _Queue()
        if len(queue.waiting) >= OUTBOX_ITEMS_MAX:
            return self._lost(item)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        queue.waiting.append(_Waiting(item, self._load(item), outcome))
        if queue.sender is None:
            name = f"{self._lane} to broker {broker_id}"
            queue.sender = self._tasks.spawn(self._send_all(broker_id, queue), name=name)
        return await outcome

    def on_brokers_changed(self, is_alive: Callable[[int], bool]) -> None:
        """Whoever waits for a broker that is gone need not wait until that is noticed on its connection."""
        for broker_id, queue in list(self._queues.items()):
            if not is_alive(broker_id):
                self._give_up(broker_id, queue)

    def close(self) -> None:
        for broker_id, queue in list(self._queues.items()):
            self._give_up(broker_id, queue)

    def _give_up(self, broker_id: int, queue: _Queue[Item, Outcome]) -> None:
        del self._queues[broker_id]
        if queue.sender is not None:
            queue.sender.cancel()
        self._lose([*queue.sent, *queue.waiting])

    async def _send_all(self, broker_id: int, queue: _Queue[Item, Outcome]) -> None:
        while queue.waiting:
            sent = queue.sent = _take(queue.waiting)
            try:
                outcomes = await self._send(
                    self._peers.peer(broker_id, self._lane), [one.item for one in sent]
                )
            except (Disconnected, Busy) as error:
                log.info("%s to broker %d: %s", self._lane, broker_id, error)
                self._lose(sent)
            else:
                for one, outcome in zip(sent, outcomes, strict=True):
                    if not one.outcome.done():
                        one.outcome.set_result(outcome)
        del self._queues[broker_id]

    def _lose(self, items: Sequence[_Waiting[Item, Outcome]]) -> None:
        for one in items:
            if not one.outcome.done():
                one.outcome.set_result(self._lost(one.item))


def _take(waiting: deque[_Waiting[Item, Outcome]]) -> list[_Waiting[Item, Outcome]]:
    """For the next request: the first, and as many after it as fit; the others keep their order."""
    taken: list[_Waiting[Item, Outcome]] = []
    keys: set[Hashable] = set()
    weight = 0
    while waiting:
        load = waiting[0].load
        is_full = taken and weight + load.weight > OUTBOX_WEIGHT_PER_REQUEST
        if is_full or load.key in keys:
            break
        keys.add(load.key)
        weight += load.weight
        taken.append(waiting.popleft())
    return taken
