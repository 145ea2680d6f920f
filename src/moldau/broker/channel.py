"""How a broker asks its controller: a direct call where it is on this broker, Kafka's own messages where it is not.

Each request is tried until it is answered by whoever is the controller then, or its time is up. What Kafka has a
message for goes as that (AlterPartition, BrokerHeartbeat, AllocateProducerIds, CreateTopics, clients' requests in
Envelope), the rest as Moldau's own (`wire.cluster`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.in_sync import Decided, Wanted
from moldau.broker.membership import Location
from moldau.broker.seldom import Seldom
from moldau.controller.alter_partition import InSync, Proposal
from moldau.controller.brokers import Registration
from moldau.controller.controller import Controller
from moldau.controller.producer_ids import Block
from moldau.controller.topics import NewTopic
from moldau.metadata.records import PartitionState
from moldau.peers.errors import Busy, Disconnected
from moldau.peers.peer import Peer
from moldau.runtime.ports import Runtime
from moldau.wire import cluster

if TYPE_CHECKING:
    from moldau.security.sasl.client import Login

log = logging.getLogger(__name__)
T = TypeVar("T")

CREATE_TOPICS, ALTER_PARTITION, ENVELOPE, BROKER_HEARTBEAT, ALLOCATE_PRODUCER_IDS = 19, 56, 58, 63, 67
DENIED = "the controller denies ClusterAction: the brokers' own principal must be one of super.users"
RETRY_PAUSE_S = 0.05
REQUEST_TIMEOUT_S = 10.0
FEEDS_PER_SILENCE = 4


class NoController(Exception):
    """Nobody is known to be the controller now, or it is another by now."""


class ControllerChannel:
    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        active: Callable[[], Controller | None],
        silence_s_max: float,
        login: Login | None = None,
    ) -> None:
        """`active` is the controller on this broker, if it is here; `silence_s_max`: how long it may hear nothing of
        this broker; `login`: who this broker is to others, where their listener has SASL."""
        self._runtime = runtime
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._node_id = node_id
        self._active = active
        self._location: Location | None = None
        self._silence_s_max = silence_s_max
        self._answered_s = 0.0
        """When a controller has last answered, or was last named."""
        self._guesses = 0
        self._seldom = Seldom(runtime.clock)
        self.others: Callable[[], Sequence[Location]] = list
        """Where the other brokers are. One of them is the controller, also where the store cannot say which."""
        self._feed_wait_s = silence_s_max / FEEDS_PER_SILENCE
        self._feed_timeout_s = self._feed_wait_s + silence_s_max
        name = f"broker {node_id}"
        self._asking = Peer(runtime, None, f"{name} controller", login)
        self._feeding = Peer(runtime, None, f"{name} feed", login)

    def on_controller(self, location: Location | None) -> None:
        """Another broker is the controller now, or none."""
        self._answered_s = self._clock.monotonic()
        self._go_to(location)

    def _go_to(self, location: Location | None) -> None:
        self._location = location
        address = None
        if location is not None and location.broker_id != self._node_id:
            address = (location.host, location.port)
        for peer in (self._asking, self._feeding):
            peer.on_address_changed(None)  # of a controller that came back, the connection is another
            peer.on_address_changed(address)

    def close(self) -> None:
        self._asking.close()
        self._feeding.close()

    @property
    def controller_id(self) -> int:
        return -1 if self._location is None else self._location.broker_id

    # Following the cluster

    async def feed(self, position: tuple[int, int]) -> tuple[dict[str, Any], list[bytes]]:
        """The changes behind a position, from a controller elsewhere. NoController, Disconnected, Busy."""
        value = {"broker": self._node_id, "position": position, "wait_ms": int(self._feed_wait_s * 1000)}
        if self._clock.monotonic() > self._answered_s + self._silence_s_max and (others := self.others()):
            self._guesses += 1
            self._go_to(others[self._guesses % len(others)])
        answer = await self._own(self._feeding, cluster.FEED, value, self._feed_timeout_s)
        self._answered_s = self._clock.monotonic()
        return answer

    @property
    def busy_after_s(self) -> float:
        """How long a broker may act on changes before it says that it still does."""
        return self._feed_wait_s

    async def tell_busy(self) -> None:
        """Say that this broker lives, while it acts on changes and asks for none. NoController, Disconnected, Busy."""
        value = {"broker": self._node_id, "busy": True}
        await self._own(self._feeding, cluster.FEED, value, self._feed_timeout_s)
        self._answered_s = self._clock.monotonic()

    async def _own(
        self, peer: Peer, kind: int, value: dict[str, Any], timeout_s: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        return await self._own_answer(peer, cluster.pack_request(kind, value), timeout_s)

    async def _own_answer(
        self, peer: Peer, body: bytes, timeout_s: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        connection = await peer.connection(timeout_s)
        frame = await connection.ask_raw(cluster.CLUSTER_KEY, cluster.CLUSTER_VERSION, body, timeout_s)
        answer, pieces = cluster.parse_answer(frame)
        connection.give_back(frame)
        if answer.get("error") == ErrorCode.not_controller:
            raise NoController("it is not the controller")
        if answer.get("error") == ErrorCode.cluster_authorization_failed:
            if self._seldom("denied"):
                log.error("%s", DENIED)
            raise NoController(DENIED)
        return answer, pieces

    # Asking

    async def register(self, registration: Registration) -> int:
        """The broker's epoch. KafkaError where it may not register."""

        async def here(controller: Controller) -> int:
            return await controller.register_broker(registration)

        async def elsewhere() -> int:
            answer, _ = await self._own_answer(self._asking, _packed(registration), REQUEST_TIMEOUT_S)
            if error := ErrorCode(answer["error"]):
                raise KafkaError(error, answer.get("message"))
            return int(answer["epoch"])

        return await self._until_answered(here, elsewhere)

    async def heartbeat(
        self, broker_epoch: int, *, wants_fence: bool = False, wants_shut_down: bool = False
    ) -> tuple[bool, bool]:
        """Whether this broker is fenced, and whether it should shut down now."""

        async def here(controller: Controller) -> tuple[bool, bool]:
            beat = await controller.heartbeat(
                self._node_id,
                broker_epoch,
                controller.position_of(self._node_id),
                wants_fence=wants_fence,
                wants_shut_down=wants_shut_down,
            )
            return beat.is_fenced, beat.should_shut_down

        async def elsewhere() -> tuple[bool, bool]:
            request = SimpleNamespace(
                broker_id=self._node_id,
                broker_epoch=broker_epoch,
                current_metadata_offset=-1,
                want_fence=wants_fence,
                want_shut_down=wants_shut_down,
                offline_log_dirs=(),
                cordoned_log_dirs=None,
            )
            answer = await self._ask(BROKER_HEARTBEAT, request)
            return answer.is_fenced, answer.should_shut_down

        return await self._until_answered(here, elsewhere)

    async def alter_partition(self, broker_epoch: int, wanted: Sequence[Wanted]) -> list[Decided] | None:
        """What the controller says to each wish; None where it could not be asked."""

        async def here(controller: Controller) -> list[Decided]:
            proposals = [
                Proposal(
                    topic_id,
                    partition,
                    wish.leader_epoch,
                    wish.partition_epoch,
                    tuple(InSync(*member) for member in wish.isr),
                )
                for topic_id, partition, wish in wanted
            ]
            decided = await controller.alter_partition(self._node_id, broker_epoch, proposals)
            return [Decided(one.error, one.state) for one in decided]

        async def elsewhere() -> list[Decided]:
            request = _alter_partition(self._node_id, broker_epoch, wanted)
            answer = await self._ask(ALTER_PARTITION, request)
            found = {
                (topic.topic_id, partition.partition_index): partition
                for topic in answer.topics
                for partition in topic.partitions
            }
            return [_decided(found.get((topic_id, partition))) for topic_id, partition, _ in wanted]

        try:
            return await self._until_answered(here, elsewhere)
        except KafkaError as error:
            log.info("in-sync sets could not be changed: %s", error)
            return None

    async def allocate_producer_ids(self, broker_epoch: int) -> Block:
        async def here(controller: Controller) -> Block:
            return await controller.allocate_producer_ids()

        async def elsewhere() -> Block:
            request = SimpleNamespace(broker_id=self._node_id, broker_epoch=broker_epoch)
            answer = await self._ask(ALLOCATE_PRODUCER_IDS, request)
            return Block(answer.producer_id_start, answer.producer_id_len)

        return await self._until_answered(here, elsewhere)

    async def report_replica(self, broker_epoch: int, place: TopicPartition, *, is_offline: bool) -> None:
        """The disk of a partition has failed here, or it is there after all."""

        async def here(controller: Controller) -> None:
            offline, online = ([place], []) if is_offline else ([], [place])
            await controller.report_replicas(self._node_id, broker_epoch, offline=offline, online=online)

        async def elsewhere() -> None:
            value = {
                "broker": self._node_id,
                "epoch": broker_epoch,
                "place": place,
                "is_offline": is_offline,
            }
            answer, _ = await self._own(self._asking, cluster.REPORT, value, REQUEST_TIMEOUT_S)
            if error := ErrorCode(answer["error"]):
                raise KafkaError(error, answer.get("message"))

        await self._until_answered(here, elsewhere)

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[tuple[ErrorCode, str | None]]:
        """An outcome for each, when the brokers that lead the new partitions serve them."""

        async def here(controller: Controller) -> list[tuple[ErrorCode, str | None]]:
            outcomes = await controller.create_topics(topics)
            return [(outcome.error, outcome.message) for outcome in outcomes]

        async def elsewhere() -> list[tuple[ErrorCode, str | None]]:
            answer = await self._ask(CREATE_TOPICS, _create_topics(topics))
            outcomes = {topic.name: topic for topic in answer.topics}
            return [
                (ErrorCode(outcomes[topic.name].error_code), outcomes[topic.name].error_message)
                for topic in topics
            ]

        return await self._until_answered(here, elsewhere)

    async def forward(self, request: bytes, principal: bytes, client_host: bytes) -> bytes | None:
        """A client's request to the controller, as it is; its whole answer, None where it could not be asked."""
        message = SimpleNamespace(
            request_data=request, request_principal=principal, client_host_address=client_host
        )

        async def here(_controller: Controller) -> None:
            return None  # the controller has just moved here: the client asks again

        async def elsewhere() -> bytes | None:
            answer = await self._ask(ENVELOPE, message, timeout_s=60.0)
            data: bytes | None = answer.response_data
            return data

        try:
            return await self._until_answered(here, elsewhere)
        except KafkaError:
            return None

    async def _ask(self, api_key: int, request: object, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        answer = await self._asking.ask(api_key, request, timeout_s)
        error = ErrorCode(getattr(answer, "error_code", 0))
        if error is ErrorCode.not_controller:
            raise NoController("it is not the controller")
        if error:
            raise KafkaError(error)
        return answer

    async def _until_answered(
        self, here: Callable[[Controller], Awaitable[T]], elsewhere: Callable[[], Awaitable[T]]
    ) -> T:
        """KafkaError: what the controller says, or request_timed_out where none has answered in time."""
        deadline_s = self._clock.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                controller = self._active()
                if controller is not None:
                    return await here(controller)
                return await elsewhere()
            except KafkaError as error:
                if error.code is not ErrorCode.not_controller:
                    raise
                reason: Exception = error
            except (NoController, Disconnected, Busy) as error:
                reason = error
            if self._clock.monotonic() >= deadline_s:
                raise KafkaError(ErrorCode.request_timed_out, f"the controller does not answer: {reason}")
            await self._tasks.sleep(RETRY_PAUSE_S)


def _packed(registration: Registration) -> bytes:
    plain = {
        "id": registration.id,
        "incarnation": registration.incarnation.hex,
        "listeners": registration.listeners,
        "rack": registration.rack,
        "log_dirs": [directory.hex for directory in registration.log_dirs],
        "boot_id": registration.boot_id,
        "previous_epoch": registration.previous_epoch,
        "cluster_id": registration.cluster_id,
    }
    return cluster.pack_registration(plain, sorted(registration.lost))


def registration_from(plain: dict[str, Any], lost: list[TopicPartition]) -> Registration:
    """ValueError, KeyError, TypeError where it is none."""
    return Registration(
        int(plain["id"]),
        UUID(plain["incarnation"]),
        {
            str(name): None if address is None else (str(address[0]), int(address[1]))
            for name, address in plain["listeners"].items()
        },
        plain["rack"],
        tuple(UUID(text) for text in plain["log_dirs"]),
        str(plain["boot_id"]),
        int(plain["previous_epoch"]),
        lost,
        plain["cluster_id"],
    )


def _alter_partition(node_id: int, broker_epoch: int, wanted: Sequence[Wanted]) -> SimpleNamespace:
    topics: dict[UUID, list[SimpleNamespace]] = {}
    for topic_id, partition, wish in wanted:
        members = tuple(SimpleNamespace(broker_id=member, broker_epoch=epoch) for member, epoch in wish.isr)
        topics.setdefault(topic_id, []).append(
            SimpleNamespace(
                partition_index=partition,
                leader_epoch=wish.leader_epoch,
                new_isr_with_epochs=members,
                leader_recovery_state=0,
                partition_epoch=wish.partition_epoch,
            )
        )
    return SimpleNamespace(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        topics=tuple(
            SimpleNamespace(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
    )


def _decided(answer: Any) -> Decided:
    """Only leader, epochs and in-sync set are told: the rest comes with the image."""
    if answer is None:
        return Decided(ErrorCode.operation_not_attempted, None)
    if error := ErrorCode(answer.error_code):
        return Decided(error, None)
    state = PartitionState(
        leader=answer.leader_id,
        leader_epoch=answer.leader_epoch,
        replicas=(),
        isr=tuple(answer.isr),
        partition_epoch=answer.partition_epoch,
    )
    return Decided(ErrorCode.none, state)


def _create_topics(topics: Sequence[NewTopic]) -> SimpleNamespace:
    return SimpleNamespace(
        topics=tuple(
            SimpleNamespace(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=tuple(
                    SimpleNamespace(partition_index=index, broker_ids=replicas)
                    for index, replicas in topic.assignments
                ),
                configs=tuple(SimpleNamespace(name=name, value=value) for name, value in topic.configs),
            )
            for topic in topics
        ),
        timeout=int(REQUEST_TIMEOUT_S * 1000),
        validate_only=False,
    )
