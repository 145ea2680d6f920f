"""What a client of a cluster knows of it: who leads which partition and who coordinates whom, as brokers have told it.

As real clients do: Metadata names the leaders, and one of an older leader epoch than is known already is not believed;
FindCoordinator names the coordinators. What turned out to be wrong is forgotten (`mistrust`) and asked for anew.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.runtime.ports import Address

METADATA, METADATA_VERSION = 3, 12
FIND_COORDINATOR, FIND_COORDINATOR_VERSION = 10, 4
NO_EPOCH = -1


class Coordinator(NamedTuple):
    """Of a group or a transactional id."""

    key_type: int
    key: str


def group_coordinator(group_id: str) -> Coordinator:
    return Coordinator(0, group_id)


def transaction_coordinator(transactional_id: str) -> Coordinator:
    return Coordinator(1, transactional_id)


About = TopicPartition | Coordinator
"""What a request is about: it decides which broker is asked."""


class Routes:
    def __init__(self) -> None:
        self._ways: dict[About, Address] = {}
        self._epochs: dict[TopicPartition, int] = {}

    def get(self, about: About) -> Address | None:
        return self._ways.get(about)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The newest leader epoch that this client has heard of."""
        return self._epochs.get(partition, NO_EPOCH)

    def mistrust(self, about: About) -> None:
        self._ways.pop(about, None)

    def mistrust_broker(self, address: Address) -> None:
        self._ways = {about: way for about, way in self._ways.items() if way != address}

    def question(self, about: About) -> tuple[int, int, SimpleNamespace]:
        """The request that asks who is responsible."""
        if isinstance(about, Coordinator):
            message = SimpleNamespace(key_type=about.key_type, coordinator_keys=(about.key,))
            return FIND_COORDINATOR, FIND_COORDINATOR_VERSION, message
        return METADATA, METADATA_VERSION, metadata_request([about.topic])

    def take(self, about: About, answer: Any) -> bool:
        """Take an answer; whether it says who is responsible."""
        if isinstance(about, Coordinator):
            (found,) = answer.coordinators
            if found.error_code is ErrorCode.none:
                self._ways[about] = (found.host, found.port)
        else:
            self._take_leaders(answer)
        return about in self._ways

    def _take_leaders(self, answer: Any) -> None:
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            for row in topic.partitions:
                place = TopicPartition(topic.name, row.partition_index)
                if row.leader_epoch >= self.leader_epoch(place):
                    self._epochs[place] = row.leader_epoch
                    self._ways.pop(place, None)
                    if row.leader_id in addresses:
                        self._ways[place] = addresses[row.leader_id]


def metadata_request(topics: list[str]) -> SimpleNamespace:
    return SimpleNamespace(
        topics=tuple(SimpleNamespace(name=name, topic_id=None) for name in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
