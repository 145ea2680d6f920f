"""A decision on a consumer group in the making: what one step records, the next one sees.

The group itself changes only when the records are applied; until then the steps work on a draft of it, made when there
is something to record. Most heartbeats record nothing.
"""

from __future__ import annotations

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.records import ConsumerRecord
from moldau.coordinator.group.draft import Draft
from moldau.coordinator.group.messages import Sees


class Edit:
    __slots__ = ("_is_draft", "draft", "group", "original", "sees")

    def __init__(self, group: ConsumerGroup, draft: Draft) -> None:
        self.group = group
        """As it will be."""
        self.original = group
        self.draft = draft
        self.sees: Sees | None = None
        """Which topics the one may know of who asks for this; None where everyone may know of all."""
        self._is_draft = False

    def record(self, record: ConsumerRecord) -> None:
        if not self._is_draft:
            self.group = self.group.draft()
            self._is_draft = True
        self.group.take(record)
        self.draft.record(record)
