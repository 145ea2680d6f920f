"""Who holds which partition, by topic: nobody else gets it until it is given up.

A draft is made in no time and copies a topic when it changes there, so that a decision of several steps sees what it
will have done, and the group does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

from moldau.coordinator.group.consumer.records import Assigned

NOBODY: Mapping[int, str] = MappingProxyType({})


class Holders:
    __slots__ = ("_base", "_own")

    def __init__(self, base: Holders | None = None) -> None:
        self._base = base
        self._own: dict[UUID, dict[int, str]] = {}

    def draft(self) -> Holders:
        return Holders(self)

    def of(self, topic_id: UUID) -> Mapping[int, str]:
        """The member that has each partition of a topic that someone has."""
        own = self._own.get(topic_id)
        if own is not None:
            return own
        return NOBODY if self._base is None else self._base.of(topic_id)

    def hold(self, member_id: str, partitions: Assigned) -> None:
        for topic_id, held in partitions.items():
            self._changed(topic_id).update(dict.fromkeys(held, member_id))

    def release(self, member_id: str, partitions: Assigned) -> None:
        """What it still has of these."""
        for topic_id, held in partitions.items():
            holders = self._changed(topic_id)
            for partition in held:
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders and self._base is None:
                del self._own[topic_id]

    def _changed(self, topic_id: UUID) -> dict[int, str]:
        own = self._own.get(topic_id)
        if own is None:
            own = self._own[topic_id] = dict(self.of(topic_id))
        return own
