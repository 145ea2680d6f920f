"""What the store says of the cluster, read past everybody: its word is the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from moldau.controller import layout
from moldau.metadata.records import PartitionState
from moldau.sim.store_node import StoreNode
from moldau.store.port import unquoted


class Placed(NamedTuple):
    topic: str
    topic_id: UUID
    number: int
    state: PartitionState


class StoreView:
    def __init__(self, store: StoreNode) -> None:
        self._entries = store.tree.entries
        self._states: dict[str, tuple[int, PartitionState]] = {}

    def state_of(self, topic_id: UUID, index: int) -> PartitionState | None:
        path = layout.partition_path(topic_id, index)
        entry = self._entries.get(path)
        if entry is None:
            return None
        known = self._states.get(path)
        if known is None or known[0] != entry.version:
            known = self._states[path] = (entry.version, layout.partition_of(entry.value))
        return known[1]

    def partitions(self) -> Iterator[Placed]:
        """Of all topics that there are."""
        prefix = layout.TOPICS + "/"
        for path in [path for path in self._entries if path.startswith(prefix)]:
            topic = layout.topic_of(self._entries[path].value)
            for index in range(topic.partition_count):
                state = self.state_of(topic.topic_id, index)
                if state is not None:
                    yield Placed(unquoted(path.removeprefix(prefix)), topic.topic_id, index, state)

    def controller_id(self) -> int | None:
        entry = self._entries.get(layout.STATE)
        return None if entry is None else layout.state_of(entry.value).controller
