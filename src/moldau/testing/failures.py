"""What a test can do to the brokers of a `Cluster`, and see of them: kill, pause, cut, elect, who leads, who is in
sync.

The others behave as they would on several machines: a killed broker is missed at once, a paused one when its session
has timed out (three seconds), and no leader is elected that lacks an acknowledged message.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.node import Broker
from moldau.controller.controller import Controller
from moldau.controller.leaders import Election
from moldau.controller.reassignments import Reassignment
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import PartitionState
from moldau.testing.links import Links
from moldau.testing.member import TIMEOUT_S, Member

T = TypeVar("T")
PAUSE_S = 0.005


class Failures(ABC):
    _members: dict[int, Member]
    _links: Links

    def kill(self, broker: int) -> None:
        """End a broker as kill -9 does. `start(broker)` brings it back, with its data."""
        self._member(broker).kill()

    def pause(self, broker: int) -> None:
        """Let a broker do nothing until `resume`, as SIGSTOP does: its connections stay, and nobody answers."""
        self._member(broker).pause()

    def resume(self, broker: int) -> None:
        """Let it go on where it was, not knowing that it was paused."""
        self._member(broker).resume()

    def cut(self, broker: int, *others: int) -> None:
        """Cut a broker off from others, or from all others: what they have open to each other breaks, and nothing new
        gets through. Clients and the cluster store are not cut off; so a controller stays the controller, and whom it
        does not reach waits for the end of the cut.
        """
        self._member(broker)
        for other in others or [number for number in self._members if number != broker]:
            self._member(other)
            self._links.cut(broker, other)

    def heal(self) -> None:
        """Undo all cuts."""
        self._links.heal()

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers that run, and are not paused."""
        return [number for number, member in self._members.items() if member.is_running]

    @property
    def controller(self) -> int | None:
        """The id of the broker that is the controller; None between two."""
        found = self._active_controller()
        return None if found is None else found[0].number

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The id of the broker that leads a partition, as the others know it; None while nobody does, or who did is
        down. KeyError where there is no such partition.
        """
        leader = self._state(topic, partition).leader
        member = self._members.get(leader)
        return None if member is None or member.broker is None else leader

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """The ids of the brokers that have a partition, the preferred leader first."""
        return list(self._state(topic, partition).replicas)

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The ids of the brokers that have all of it."""
        return sorted(self._state(topic, partition).isr)

    def wait_for_leader(self, topic: str, partition: int = 0, *, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until a broker that runs leads a partition; its id."""

        def leads() -> int | None:
            leader = self.leader(topic, partition)
            return leader if leader in self.brokers else None

        return self._wait_for(leads, f"a leader of {topic}-{partition}", timeout_s)

    def wait_in_sync(self, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until every replica of every topic is in sync; in vain, while a broker is down that has one."""

        def are_in_sync() -> bool:
            return all(
                len(state.isr) == len(state.replicas)
                for topic in list(self._image().topics.values())
                for state in topic.partitions
            )

        self._wait_until(are_in_sync, "all replicas to be in sync", timeout_s)

    def elect(self, topic: str, partition: int = 0, broker: int | None = None) -> int:
        """Give the lead of a partition to its preferred leader, or to a broker that has it, which becomes the preferred
        one. Returns when all brokers that run know it. RuntimeError where that broker is not in sync.
        """
        place = TopicPartition(topic, partition)
        replicas = self.replicas(topic, partition)
        if broker is not None:
            if broker not in replicas:
                raise ValueError(f"broker {broker} has no replica of {place}: {replicas} have one")
            order = (broker, *(number for number in replicas if number != broker))
            self._ask_controller(
                lambda controller: controller.alter_reassignments([Reassignment(place, order)])
            )
        (outcome,) = self._ask_controller(
            lambda controller: controller.elect_leaders(Election.PREFERRED, [place])
        )
        if outcome.error not in (ErrorCode.none, ErrorCode.election_not_needed):
            raise RuntimeError(f"{place}: {outcome.message or outcome.error.name}")
        wanted = replicas[0] if broker is None else broker
        self._wait_until(lambda: self._all_know_leader(place, wanted), f"broker {wanted} to lead {place}")
        return wanted

    def _all_know_leader(self, place: TopicPartition, leader: int) -> bool:
        return all(state_in(broker.image, place).leader == leader for broker in self._running_brokers())

    def _state(self, topic: str, partition: int) -> PartitionState:
        return state_in(self._image(), TopicPartition(topic, partition))

    def _image(self) -> ClusterImage:
        """The newest that a broker has."""
        self._any_broker()
        return max((broker.image for broker in self._running_brokers()), key=lambda image: image.position)

    def _running_brokers(self) -> list[Broker]:
        return [
            member.broker
            for member in self._members.values()
            if member.broker is not None and not member.is_paused
        ]

    def _active_controller(self) -> tuple[Member, Controller] | None:
        for member in self._members.values():
            if member.is_running and member.broker is not None:
                controller = member.broker.active_controller
                if controller is not None:
                    return member, controller
        return None

    def _is_acquainted(self) -> bool:
        brokers = self._running_brokers()
        ids = {broker.node_id for broker in brokers}
        return all(ids <= set(broker.image.brokers) for broker in brokers)

    def _is_served(self, topic: str) -> bool:
        """Whether all brokers know a topic, and those that lead its partitions have them."""
        for broker in self._running_brokers():
            known = broker.image.topics.get(topic)
            if known is None:
                return False
            for index, state in enumerate(known.partitions):
                if state.leader == broker.node_id and TopicPartition(topic, index) not in broker.partitions:
                    return False
        return True

    def _wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
        self._wait_for(lambda: condition() or None, what, timeout_s)

    def _wait_for(self, found: Callable[[], T | None], what: str, timeout_s: float = TIMEOUT_S) -> T:
        deadline_s = time.monotonic() + timeout_s
        while True:
            result = found()
            if result is not None:
                return result
            if time.monotonic() >= deadline_s:
                raise TimeoutError(f"waited {timeout_s:g} s in vain for {what}")
            time.sleep(PAUSE_S)

    @abstractmethod
    def _member(self, broker: int) -> Member: ...

    @abstractmethod
    def _any_broker(self) -> Broker: ...

    @abstractmethod
    def _ask_controller(self, work: Callable[[Controller], Coroutine[Any, Any, T]]) -> T: ...


def state_in(image: ClusterImage, place: TopicPartition) -> PartitionState:
    topic = image.topics.get(place.topic)
    if topic is None or not 0 <= place.partition < len(topic.partitions):
        raise KeyError(str(place))
    return topic.partitions[place.partition]
