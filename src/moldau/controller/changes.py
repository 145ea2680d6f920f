"""Changes of partitions while they are decided on: later decisions see the earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from moldau.controller.partition_change import NOTHING, Election, Target, changed
from moldau.controller.rules import Rules, may_lead
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import PartitionsChanged, PartitionState


class Changes:
    def __init__(
        self,
        image: ClusterImage,
        rules: Rules,
        *,
        leaving: Collection[int] = (),
        coming: Collection[int] = (),
    ) -> None:
        """`leaving` cannot lead from now on, and `coming` can, whatever the image says yet."""
        self._image = image
        self._rules = rules
        self._may_lead = may_lead(image, leaving, coming)
        self._states: dict[str, dict[int, PartitionState]] = {}

    def state(self, topic: Topic, index: int) -> PartitionState:
        pending = self._states.get(topic.name)
        if pending is not None and index in pending:
            return pending[index]
        return topic.partitions[index]

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        """All partitions of the cluster, as the image has them."""
        for topic in self._image.topics.values():
            for index, state in enumerate(topic.partitions):
                yield topic, index, state

    def change(
        self, topic: Topic, index: int, target: Target = NOTHING, election: Election | None = None
    ) -> PartitionState | None:
        """Change a partition, with the election that its topic's settings allow unless another is said. None where
        nothing changes.
        """
        state = self.state(topic, index)
        after = changed(
            state,
            target,
            self._may_lead(state.offline if target.offline is None else target.offline),
            self._rules.min_isr(topic.configs),
            self._rules.election(topic) if election is None else election,
        )
        if after is not None:
            self.put(topic, index, after)
        return after

    def put(self, topic: Topic, index: int, state: PartitionState) -> None:
        """Several changes of one partition become one: its epoch rises once."""
        before = topic.partitions[index]
        state = state._replace(
            leader_epoch=min(state.leader_epoch, before.leader_epoch + 1),
            partition_epoch=before.partition_epoch + 1,
        )
        self._states.setdefault(topic.name, {})[index] = state

    def records(self) -> list[PartitionsChanged]:
        topics = self._image.topics
        return [
            PartitionsChanged(name, topics[name].topic_id, states) for name, states in self._states.items()
        ]
