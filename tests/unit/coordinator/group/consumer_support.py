"""A coordinator with consumer groups, and consumers that do as clients do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.consumer.messages import Beat, Beaten, DescribedGroup
from moldau.coordinator.group.consumer.settings import ConsumerSettings, Times

from .support import Coordinator, new_reply

SESSION_MS = 45_000
AT_ONCE = ConsumerSettings(times_of=lambda _group_id: Times(SESSION_MS, 5_000, 0))
"""A target for every change, without a pause between two."""


class Consumers(Coordinator):
    """With one topic `t` of four partitions."""

    def __init__(self, consumer: ConsumerSettings = AT_ONCE, partitions: int = 4) -> None:
        super().__init__(consumer=consumer)
        self.t = self.topics.make("t", partitions)

    def beat(self, member_id: str, epoch: int, group_id: str = "g", **fields: Any) -> Beaten:
        reply = new_reply()
        beat = Beat(group_id, member_id, epoch, "client", "/host", **fields)
        self.carry_out(self.shard.beat(beat, reply, self.moment))
        if isinstance(reply.response, ErrorCode):
            return Beaten(reply.response)
        assert isinstance(reply.response, Beaten)
        return reply.response

    def shown(self, group_id: str = "g") -> DescribedGroup:
        found = self.shard.describe_consumer(group_id)
        assert isinstance(found, DescribedGroup), found
        return found

    def kind(self, group_id: str = "g") -> str:
        return next(one.group_type for one in self.shard.list_groups() if one.group_id == group_id)

    def change_topics(self, *names: str) -> None:
        self.carry_out(self.shard.on_topics_changed(names))


class Consumer:
    """A client: it gives up what it is told to, says so with its next heartbeat, and joins anew when it is fenced."""

    def __init__(
        self,
        coordinator: Consumers,
        member_id: str,
        *,
        topics: tuple[str, ...] | None = ("t",),
        group_id: str = "g",
        **fields: Any,
    ) -> None:
        self.coordinator = coordinator
        self.id = member_id
        self.group_id = group_id
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.joining = {"rebalance_timeout_ms": 60_000, "topics": topics, **fields}
        self.instance_id = fields.get("instance_id")

    @property
    def partitions(self) -> list[int]:
        """Of all topics, where the test has only one."""
        return sorted(partition for held in self.owned.values() for partition in held)

    def join(self) -> Beaten:
        self.owned = {}
        fields = dict(self.joining)
        return self._beat(0, owned={}, **fields)

    def beat(self, **fields: Any) -> Beaten:
        values = {"owned": self.owned, "instance_id": self.instance_id} | fields
        return self._beat(self.epoch, **values)

    def leave(self, epoch: int = -1) -> Beaten:
        return self._beat(epoch, instance_id=self.instance_id)

    def _beat(self, epoch: int, **fields: Any) -> Beaten:
        answer = self.coordinator.beat(self.id, epoch, self.group_id, **fields)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    row.topic_id: frozenset(row.partitions) for row in answer.assignment.topic_partitions
                }
        return answer


def settle(*consumers: Consumer) -> None:
    """Heartbeats until everyone has what it is to have."""
    for _ in range(4):
        for consumer in consumers:
            assert not consumer.beat().error_code
