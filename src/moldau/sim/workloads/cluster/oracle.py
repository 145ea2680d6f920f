"""Who sees the whole cluster at once: what must hold at every moment, whether or not a client ever notices.

- In one leader epoch one broker appends.
- What a leader commits, every member of its in-sync set has, by the store's word; but for one that has lost its power.
- Who leads was in sync before, or eligible, but where an unclean election is allowed.
- What a controller tells the brokers is in the store, and no controller writes after one with a higher epoch.
- What is shown to readers as committed has been committed by some leader (`committed`).

It looks on by wrapping functions of the product for a run (`watching`), and reads the brokers' own state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.controller import layout
from moldau.controller.layout import ControllerState
from moldau.controller.persistence import PersistentImage
from moldau.metadata.records import NO_LEADER, PartitionState, Position
from moldau.replication.partition import Partition
from moldau.sim.node import BrokerNode
from moldau.sim.planting import patched
from moldau.sim.stage import Stage
from moldau.sim.workloads.cluster.model import UncleanLedger, WeakLedger
from moldau.sim.workloads.cluster.store_view import StoreView


class Oracle:
    def __init__(self, stage: Stage) -> None:
        assert stage.store is not None
        self._model = stage.model
        self._counts = stage.counts
        self._nodes = {node.node_id: node for node in stage.nodes}
        self._topic_ids = stage.topic_ids
        self._leaders: dict[tuple[UUID, int, int], int] = {}
        self._view = StoreView(stage.store)
        self._committed: dict[tuple[UUID, int], int] = {}
        self._states: dict[str, PartitionState] = {}
        """As they were last written, by path."""
        self._unclean: set[tuple[UUID, int]] = set()
        self._given_up: set[tuple[UUID, int]] = set()
        self._written: set[Position] = set()
        self._last = Position(0, 0)
        stage.store.tree.on_written = self._on_written

    @contextmanager
    def watching(self) -> Iterator[None]:
        grown, moved, apply = Partition._grown, Partition._moved, PersistentImage._apply

        def watched_grown(partition: Partition, *args: Any) -> None:
            self._on_append(partition)
            grown(partition, *args)
            self._on_committed(partition)

        def watched_moved(partition: Partition, high_watermark: int) -> None:
            before = partition.high_watermark
            moved(partition, high_watermark)
            if partition.high_watermark > before:
                self._on_committed(partition)

        def watched_apply(image: PersistentImage, state: ControllerState, *args: Any) -> Any:
            self._on_applied(state.position)
            return apply(image, state, *args)

        with (
            patched(Partition, "_grown", watched_grown),
            patched(Partition, "_moved", watched_moved),
            patched(PersistentImage, "_apply", watched_apply),
        ):
            yield

    def committed(self, place: TopicPartition) -> int:
        """Up to where some leader has committed a partition of a topic that clients know."""
        return self.committed_of(self._topic_ids[place.topic], place.partition)

    def committed_of(self, topic_id: UUID, index: int) -> int:
        return self._committed.get((topic_id, index), 0)

    def allow_unclean(self, partitions: Iterable[tuple[UUID, int]]) -> None:
        """Nothing is promised of them any more."""
        self._given_up.update(partitions)

    def was_led_uncleanly(self, topic_id: UUID, index: int) -> bool:
        return (topic_id, index) in self._unclean

    # Partitions

    def _on_append(self, partition: Partition) -> None:
        place, epoch = partition.topic_partition, partition.leader_epoch
        broker_id = partition._replication.node_id
        leader = self._leaders.setdefault((partition.topic_id, place.partition, epoch), broker_id)
        if leader != broker_id:
            self._model.fail(
                place,
                f"one leader in epoch {epoch}, which is broker {leader}",
                f"broker {broker_id} appends in it too",
            )

    def _on_committed(self, partition: Partition) -> None:
        if partition.leader is None:
            return
        place, high_watermark = partition.topic_partition, partition.high_watermark
        key = (partition.topic_id, place.partition)
        self._committed[key] = max(high_watermark, self._committed.get(key, 0))
        state = self._view.state_of(*key)
        if state is None or state.leader_epoch != partition.leader_epoch:
            return
        for member in state.isr:
            end = self._end_of(self._nodes[member], partition)
            if end is not None and end < high_watermark:
                self._model.fail(
                    place,
                    f"broker {member}, which is in the in-sync set {state.isr}, to have all below {high_watermark}",
                    f"its log ends at {end}",
                )

    def _end_of(self, node: BrokerNode, partition: Partition) -> int | None:
        """Where a broker's log of a partition ends, or ended when it died; None where that is not known."""
        if node.broker is None or node.is_tainted or node.is_doubtful:
            return None
        own = node.broker.partitions.get(partition.topic_partition)
        return None if own is None or own.topic_id != partition.topic_id else own.log.next_offset

    # Controllers

    def _on_written(self, operations: Sequence[Any]) -> None:
        for operation in operations:
            if operation.path == layout.STATE and hasattr(operation, "value"):
                position = layout.state_of(operation.value).position
                self._written.add(position)
                if position < self._last:
                    self._model.fail(None, f"no write of a controller before {self._last}", str(position))
                self._last = max(self._last, position)
            elif operation.path.startswith(layout.PARTITIONS) and hasattr(operation, "value"):
                self._on_state(operation.path, layout.partition_of(operation.value))

    def _on_state(self, path: str, state: PartitionState) -> None:
        before, self._states[path] = self._states.get(path), state
        if before is None or state.leader in (NO_LEADER, before.leader, *before.isr, *before.elr):
            return
        if state.leader in state.isr and any(member in before.isr for member in state.isr):
            return  # the leader of before has taken it into the set, with which a reassignment is done
        named = layout.partition_named(path)
        assert named is not None
        topic_id, index = named
        name = next((name for name, known in self._topic_ids.items() if known == topic_id), None)
        ledger = None if name is None else self._model.ledgers.get(TopicPartition(name, index))
        if isinstance(ledger, UncleanLedger):
            self._unclean.add(named)
            self._counts["unclean elections"] = self._counts.get("unclean elections", 0) + 1
            ledger.on_unclean_election(self._known_committed(state.leader, ledger.partition))
        elif not isinstance(ledger, WeakLedger) and named not in self._given_up:
            place = None if ledger is None else ledger.partition
            self._model.fail(place, f"a leader out of {before.isr} or {before.elr}", str(state.leader))

    def _known_committed(self, broker_id: int, place: TopicPartition) -> int:
        """By a broker."""
        broker = self._nodes[broker_id].broker
        partition = None if broker is None else broker.partitions.get(place)
        return 0 if partition is None else partition.high_watermark

    def _on_applied(self, position: Position) -> None:
        if position not in self._written:
            self._model.fail(None, f"{position}, which a controller goes on from, in the store", "it is not")
