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
        self._of_topic: tuple[Topic, int, Election] | None = None

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
        min_isr, usual = self._settings(topic)
        offline = state.offline if target.offline is None else target.offline
        after = changed(state, target, self._may_lead(offline), min_isr, election or usual)
        if after is not None:
            self.put(topic, index, after)
        return after

    def _settings(self, topic: Topic) -> tuple[int, Election]:
        """Looked up once for the partitions of a topic, which come one after the other."""
        if self._of_topic is None or self._of_topic[0] is not topic:
            self._of_topic = (topic, self._rules.min_isr(topic.configs), self._rules.election(topic))
        return self._of_topic[1:]

    def put(self, topic: Topic, index: int, state: PartitionState) -> None:
        """Several changes of one partition become one: its epochs rise once."""
        before, pending = topic.partitions[index], self._states.setdefault(topic.name, {})
        if state.partition_epoch != before.partition_epoch + 1:
            state = state._replace(
                leader_epoch=min(state.leader_epoch, before.leader_epoch + 1),
                partition_epoch=before.partition_epoch + 1,
            )
        pending[index] = state

    def records(self) -> list[PartitionsChanged]:
        topics = self._image.topics
        return [
            PartitionsChanged(name, topics[name].topic_id, states) for name, states in self._states.items()
        ]
