"""How much power may be cut: a promise, counted exactly.

What was acknowledged with acks=all is on `min.insync.replicas` brokers at least, perhaps in their page caches only
(promise 1: it lives while one in-sync replica lives). So of the brokers that had it one fewer may lose their
power at one time. Who has lost it counts until it has all again that was promised: until it is in the in-sync set of
every partition of which it has a replica, by the store's word, and its log has what any leader ever committed.

A broker counts before its power is gone: from when it is decided that it will be, in a change of its disk that is yet
to come (`Drive.is_armed`), or at the end of a process whose sync has failed (`is_doubtful`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.sim.model import Model
from moldau.sim.node import BrokerNode
from moldau.sim.workloads.cluster.store_view import Placed, StoreView

Committed = Callable[[UUID, int], int]
"""Up to where any leader has committed a partition of a topic, by its id."""


class Power:
    """`spared`: how many brokers may lack something that was promised. Not of every topic is anything."""

    def __init__(
        self,
        model: Model,
        nodes: Sequence[BrokerNode],
        store: StoreView,
        committed: Committed,
        spared: int,
        is_promised: Callable[[Placed], bool],
    ) -> None:
        self._model = model
        self._nodes = nodes
        self._store = store
        self._committed = committed
        self._spared = spared
        self._is_promised = is_promised
        for node in nodes:
            node.on_power_cut = self._check

    def may_go(self, node: BrokerNode) -> bool:
        """Whether the promises hold when a broker's power goes before the others are well again."""
        return len(self._counted_beside(node)) < self._spared

    def _check(self, node: BrokerNode) -> None:
        """Whoever has cut it: where the promises do not bear that, what is found then is no bug of the brokers."""
        if not self.may_go(node):
            counted = [other.name for other in self._counted_beside(node)]
            self._model.fail(None, f"{node.name} to keep its power while {counted} count", "it was cut")

    def _counted_beside(self, node: BrokerNode) -> list[BrokerNode]:
        return [other for other in self._nodes if other is not node and self._counts(other)]

    def _counts(self, node: BrokerNode) -> bool:
        if node.is_tainted and self._has_caught_up(node):
            node.is_tainted = False
        return node.is_tainted or node.is_doubtful or node.host.drive.is_armed

    def _has_caught_up(self, node: BrokerNode) -> bool:
        broker = node.broker
        if not node.is_up or broker is None or node.host.is_paused:
            return False
        for placed in self._store.partitions():
            topic, topic_id, number, state = placed
            if node.node_id in state.replicas and self._is_promised(placed):
                partition = broker.partitions.get(TopicPartition(topic, number))
                if partition is None or partition.topic_id != topic_id or node.node_id not in state.isr:
                    return False
                if partition.log.next_offset < self._committed(topic_id, number):
                    return False
        return True
