"""What handlers use of the broker and of a request's context, as small roles: `node.Broker` and `dispatch.Context` fill
them.

A handler names the smallest role that it needs, so its signature says what it can reach, and a test can stand in for
it. So do the parts that work for handlers: coordinators, markers, verification. The end of this module has mypy check
that the node fills every role.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.metadata.image import ClusterImage
from moldau.runtime.ports import Address, Clock, Runtime, Tasks

if TYPE_CHECKING:  # the parts whose modules a role's user need not load
    from moldau.broker.channel import ControllerChannel
    from moldau.broker.connection import Connection
    from moldau.broker.dispatch import Context, Route
    from moldau.broker.guard import Guard
    from moldau.broker.insiders import Insiders
    from moldau.broker.kept_answers import KeptAnswers
    from moldau.broker.metrics.counters import Metrics
    from moldau.broker.node import Broker
    from moldau.broker.office import Office
    from moldau.broker.outbox import Outbox
    from moldau.broker.throttling import Throttling
    from moldau.controller.controller import Controller
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime
    from moldau.coordinator.transaction.messages import Add
    from moldau.coordinator.transaction.shard import TransactionShard
    from moldau.log.manager import LogManager
    from moldau.peers.peers import Peers
    from moldau.replication.fetch_session import FetchSessions, TopicRef
    from moldau.replication.long_polls import LongPolls
    from moldau.replication.partition import Partition
    from moldau.replication.replication import Replication
    from moldau.runtime.line import Line

Request: TypeAlias = Any
"""A decoded request, or a struct of one: kio's dataclass of the request's own version, so there is no one type for it.
Fields that all served versions have are read as they are, others with `getattr(request, "field", default)`."""


class ClusterView(Protocol):
    """What any handler may look at."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def config(self) -> BrokerConfig:
        """With the dynamic settings of now: made anew (`with_dynamic`) when they change."""
        ...

    @property
    def guard(self) -> Guard | None:
        """Who may do what; None where everyone may do everything."""
        ...


class DataBroker(ClusterView, Protocol):
    """The partitions that this broker holds, and their logs."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]: ...

    @property
    def offline(self) -> Set[TopicPartition]:
        """Those whose disk has failed."""
        ...

    @property
    def log_manager(self) -> LogManager: ...

    def partition(self, topic: TopicRef, index: int) -> Partition:
        """By the topic's name or the bytes of its id; KafkaError where this broker does not hold it."""
        ...


class Found(NamedTuple):
    """A coordinator, or why there is none."""

    error: ErrorCode
    node_id: int
    message: str = ""


class Coordinating(Protocol):
    """`broker.coordinators.Coordinators`, as far as requests are concerned."""

    @property
    def groups(self) -> CoordinatorRuntime[GroupShard]: ...

    @property
    def transactions(self) -> CoordinatorRuntime[TransactionShard]: ...

    async def find(self, topic: str, key: str) -> Found:
        """The broker that coordinates a key, or why there is none."""
        ...

    def error_without(self, topic: str) -> ErrorCode:
        """What a client gets where an internal topic is not there and cannot be made."""
        ...

    def reason_of(self, error: ErrorCode, topic: str) -> str | None:
        """What there is to say of an error of the coordinators in this topic."""
        ...

    async def partition_of(self, topic: str, key: str) -> int | None:
        """The partition of an internal topic that a key belongs to; None where the topic cannot be made."""
        ...


class CoordinatorBroker(ClusterView, Protocol):
    """The coordinators of the partitions that this broker leads."""

    @property
    def clock(self) -> Clock: ...

    @property
    def coordinators(self) -> Coordinating: ...


class ControllerBroker(ClusterView, Protocol):
    """The controller, where it is on this broker."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def active_controller(self) -> Controller | None: ...

    @property
    def office(self) -> Office: ...


class AdminBroker(ClusterView, Protocol):
    """Changes of the cluster, and views of it."""

    @property
    def controller(self) -> Controller:
        """For what only the controller's broker does; KafkaError (not_controller) elsewhere."""
        ...

    @property
    def channel(self) -> ControllerChannel:
        """To the controller, wherever it is."""
        ...

    @property
    def throttling(self) -> Throttling | None:
        """While some client has a quota."""
        ...

    @property
    def kept_answers(self) -> KeptAnswers:
        """To Metadata requests."""
        ...


class ProducerIdBroker(CoordinatorBroker, AdminBroker, Protocol):
    """Coordinators that may need a new producer id, which only the controller gives."""

    async def next_producer_id(self) -> int:
        """KafkaError where none can be had now."""
        ...


class MarkerBroker(CoordinatorBroker, Protocol):
    """The partitions that markers are written to, here or on other brokers."""

    @property
    def tasks(self) -> Tasks: ...

    @property
    def line(self) -> Line: ...

    @property
    def peers(self) -> Peers: ...

    def partition(self, topic: TopicRef, index: int) -> Partition: ...


class CoordinatorHost(MarkerBroker, ProducerIdBroker, Protocol):
    """What coordinators stand on."""

    @property
    def runtime(self) -> Runtime: ...


class VerifyingCoordinators(Protocol):
    """`broker.coordinators.Coordinators`, as far as the verification of transactions is concerned."""

    @property
    def transactions(self) -> CoordinatorRuntime[TransactionShard]: ...

    @property
    def verifications(self) -> Outbox[Add, dict[TopicPartition, ErrorCode]]:
        """Of transactions that are coordinated elsewhere."""
        ...

    def leader_of(self, topic: str, key: str) -> int:
        """Who leads the key's partition of an internal topic, by this broker's image."""
        ...


class VerifyingBroker(ClusterView, Protocol):
    """Whoever asks coordinators of transactions on a producer's behalf."""

    @property
    def clock(self) -> Clock: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def coordinators(self) -> VerifyingCoordinators: ...


class TransactionCoordinators(Coordinating, VerifyingCoordinators, Protocol):
    """All that requests of transactions ask of coordinators."""


class TransactionBroker(MarkerBroker, DataBroker, Protocol):
    """Coordinators, and the partitions that a transaction writes to."""

    @property
    def coordinators(self) -> TransactionCoordinators: ...


class ProducingBroker(VerifyingBroker, Protocol):
    """What Produce uses."""

    @property
    def line(self) -> Line: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def throttling(self) -> Throttling | None:
        """While some client has a quota."""
        ...

    @property
    def partitions_of(self) -> Mapping[TopicRef, Mapping[int, Partition]]:
        """By the topic's name, and by the bytes of its id."""
        ...

    def partition(self, topic: TopicRef, index: int) -> Partition: ...

    def fail(self, error: BaseException) -> None: ...


class FetchingBroker(ClusterView, Protocol):
    """What Fetch uses."""

    @property
    def line(self) -> Line: ...

    def fail(self, error: BaseException) -> None: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def throttling(self) -> Throttling | None:
        """While some client has a quota."""
        ...

    @property
    def fetch_sessions(self) -> FetchSessions: ...

    @property
    def fetch_bytes_max(self) -> int:
        """Of one answer."""
        ...

    @property
    def replication(self) -> Replication: ...

    @property
    def long_polls(self) -> LongPolls: ...

    @property
    def selects_by_rack(self) -> bool:
        """Whether a consumer is sent to the replica in its rack (KIP-392)."""
        ...

    def partition(self, topic: TopicRef, index: int) -> Partition: ...

    def note_read_error(self, partition: Partition, error: OSError) -> None: ...


class ServingBroker(Protocol):
    """What the dispatcher, ApiVersions and Envelope use."""

    @property
    def guard(self) -> Guard | None: ...

    @property
    def insiders(self) -> Insiders: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def throttling(self) -> Throttling | None:
        """While some client has a quota."""
        ...

    @property
    def routes(self) -> Mapping[int, Route]: ...

    @property
    def active_controller(self) -> Controller | None: ...

    @property
    def channel(self) -> ControllerChannel: ...

    @property
    def line(self) -> Line: ...

    def fail(self, error: BaseException) -> None:
        """A broken invariant: the node stops."""
        ...


class RequestContext(Protocol):
    """Who asks, and how: what a handler may want to know beside the request."""

    @property
    def version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...

    @property
    def connection(self) -> Connection: ...

    @property
    def listener_name(self) -> str: ...

    @property
    def local_address(self) -> Address:
        """The address that the client connected to."""
        ...

    @property
    def principal(self) -> str: ...

    async def breathe(self) -> None:
        """Awaited between the elements of what may be many: others run where this request has used up its slice."""
        ...

    def within(self, version: int, client_id: str | None, principal: str, client_host: str) -> RequestContext:
        """Of a request that came within this one, and who sent it to the broker that has forwarded it."""
        ...


if TYPE_CHECKING:

    def _fill(
        ids: ProducerIdBroker,
        transactions: TransactionBroker,
        serving: ServingBroker,
        controller: ControllerBroker,
        producing: ProducingBroker,
        fetching: FetchingBroker,
        coordinating: CoordinatorHost,
        context: RequestContext,
    ) -> None: ...

    def _node_fills_every_role(node: Broker, context: Context) -> None:
        """The first two are made of nearly all the others."""
        _fill(node, node, node, node, node, node, node, context)
