"""What the command line asks of a cluster and confluent-kafka has no calls for, with Kafka's own requests over `peers`.

Any broker will do for what the controller decides: it is passed on. Sizes of logs are asked of the broker that has
them. It goes the way that a profile or `-X` says (`peer_way`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any, NamedTuple, Self

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.client import reach_address, split_bootstrap
from moldau.cli.errors import CliError, Exit
from moldau.cli.options import Target
from moldau.cli.partition_health import PartitionView
from moldau.cli.peer_way import login_of, on_the_way
from moldau.cli.refused import advice_on
from moldau.peers.errors import Busy, Disconnected, UnsupportedVersion
from moldau.peers.peer import Peer
from moldau.runtime.ports import Address, Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.runtime.real.tasks import RealTasks
from moldau.wire.apis import APIS_BY_NAME

CLIENT_ID = "moldau-cli"
BROKERS = 1  # an endpoint type of DescribeCluster
TOPIC, BROKER = 2, 4  # resource types of configs
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
OWN_DYNAMIC = 2  # the source of a broker's setting: for it alone, and set while it runs
PREFERRED, UNCLEAN = 0, 1  # election types
TOPICS_AT_ONCE = 500  # in one request for configs
MIN_ISR = "min.insync.replicas"
ONE_OF_MANY_TIMEOUT_S = 2.0
"""For each broker where all are asked: one may hang, and is not known to be dead yet."""
DESCRIBE_CLUSTER = SimpleNamespace(
    include_cluster_authorized_operations=False, endpoint_type=BROKERS, include_fenced_brokers=True
)
ANSWER_TIMEOUT_S = 3.0
"""How long one of several brokers is waited for before the next is asked."""


class BrokerView(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class ClusterView(NamedTuple):
    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerView, ...]

    @property
    def live(self) -> list[int]:
        return [broker.id for broker in self.brokers if not broker.is_fenced]


class Moving(NamedTuple):
    """A partition that is being reassigned."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class LogView(NamedTuple):
    size: int
    lag: int
    is_future: bool
    """It is on its way there."""


class LogFolder(NamedTuple):
    """A data folder of a broker."""

    path: str
    error: str | None
    usable_bytes: int
    logs: dict[TopicPartition, LogView]


class Setting(NamedTuple):
    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool


class Refusal(NamedTuple):
    """What the cluster has against one partition."""

    error: ErrorCode
    message: str


class ClusterClient:
    """A connection to each broker that is asked something, on a loop that runs while it is asked."""

    def __init__(self, target: Target) -> None:
        self._login = login_of(target)
        self.target = target
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self._runtime: Runtime | None = None
        self._peers: dict[Address, Peer] = {}
        reach_address(target)  # or say why none can be reached
        self._bootstrap = self._runner.run(self._first_that_answers(split_bootstrap(target.bootstrap)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _first_that_answers(self, addresses: Sequence[Address]) -> Address:
        """One that is stopped, hangs or is about to start takes connections all the same. The last one is taken for
        granted."""
        timeout_s = min(self.target.timeout_s, ANSWER_TIMEOUT_S)
        for address in addresses[:-1]:
            try:
                await self._answered("DescribeCluster", address, DESCRIBE_CLUSTER, timeout_s)
            except (Disconnected, Busy):
                continue
            except UnsupportedVersion:
                pass
            return address
        return addresses[-1]

    async def _close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        if self._runtime is not None:
            if isinstance(self._runtime.tasks, RealTasks):
                for task in self._runtime.tasks.cancel_all():
                    await asyncio.wait((task,))
            close_runtime(self._runtime)

    def cluster(self) -> ClusterView:
        """The brokers that are registered, fenced ones too where the cluster tells them (KIP-1073)."""
        answer = self._ask("DescribeCluster", **vars(DESCRIBE_CLUSTER))
        self._check(answer.error_code, answer.error_message, "The cluster cannot be described")
        brokers = sorted(
            BrokerView(one.broker_id, one.host, one.port, one.rack, getattr(one, "is_fenced", False))
            for one in answer.brokers
        )
        controller = int(answer.controller_id)
        return ClusterView(answer.cluster_id, controller if controller >= 0 else None, tuple(brokers))

    def partitions(self) -> list[PartitionView]:
        """Of all topics, sorted."""
        answer = self._ask(
            "Metadata",
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        least = self._min_isr([topic.name for topic in answer.topics])
        return sorted(
            PartitionView(
                topic.name,
                partition.partition_index,
                int(partition.leader_id) if partition.leader_id >= 0 else None,
                tuple(map(int, partition.replica_nodes)),
                tuple(map(int, partition.isr_nodes)),
                least.get(topic.name, 1),
            )
            for topic in answer.topics
            for partition in topic.partitions
        )

    def _min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        settings = self.topic_settings(topics, (MIN_ISR,))
        return {topic: int(of_topic[MIN_ISR]) for topic, of_topic in settings.items()}

    def topic_settings(self, topics: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        """Of topics: those of these settings that are not empty."""
        found: dict[str, dict[str, str]] = {}
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            resources = tuple(
                SimpleNamespace(resource_type=TOPIC, resource_name=name, configuration_keys=tuple(keys))
                for name in topics[first : first + TOPICS_AT_ONCE]
            )
            answer = self._ask(
                "DescribeConfigs", resources=resources, include_synonyms=False, include_documentation=False
            )
            for result in answer.results:
                if settings := {config.name: config.value for config in result.configs if config.value}:
                    found[result.resource_name] = settings
        return found

    def broker_settings(self, broker: BrokerView, keys: Sequence[str]) -> dict[str, str] | None:
        """Those of these settings that a broker was given for itself while it runs; None where it does not answer."""
        asked = SimpleNamespace(
            resource_type=BROKER, resource_name=str(broker.id), configuration_keys=tuple(keys)
        )
        try:
            answer = self._ask(
                "DescribeConfigs",
                (broker.host, broker.port),
                min(self.target.timeout_s, ONE_OF_MANY_TIMEOUT_S),
                resources=(asked,),
                include_synonyms=False,
                include_documentation=False,
            )
        except CliError as error:
            if error.code is not Exit.UNREACHABLE:
                raise
            return None
        configs = answer.results[0].configs
        return {one.name: one.value for one in configs if one.config_source == OWN_DYNAMIC and one.value}

    def change_settings(
        self, kind: int, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, Refusal]:
        """Of topics or brokers, by name; None takes a setting away. What was refused."""
        resources = tuple(
            SimpleNamespace(
                resource_type=kind,
                resource_name=name,
                configs=tuple(
                    SimpleNamespace(name=key, config_operation=DELETE if value is None else SET, value=value)
                    for key, value in settings.items()
                ),
            )
            for name, settings in changes.items()
        )
        if not resources:
            return {}
        answer = self._ask("IncrementalAlterConfigs", resources=resources, validate_only=False)
        return {
            one.resource_name: refusal(one.error_code, one.error_message)
            for one in answer.responses
            if one.error_code
        }

    def moving(self) -> dict[TopicPartition, Moving]:
        """The reassignments under way."""
        answer = self._ask("ListPartitionReassignments", timeout=self._timeout_ms, topics=None)
        self._check(answer.error_code, answer.error_message, "The reassignments cannot be listed")
        return {
            TopicPartition(topic.name, one.partition_index): Moving(
                tuple(map(int, one.replicas)),
                tuple(map(int, one.adding_replicas)),
                tuple(map(int, one.removing_replicas)),
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    def reassign(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, Refusal]:
        """Ask for new replicas, or, with None, for the end of what is under way; what was refused."""
        topics = tuple(
            SimpleNamespace(
                name=name,
                partitions=tuple(
                    SimpleNamespace(partition_index=place.partition, replicas=wanted[place])
                    for place in places
                ),
            )
            for name, places in by_topic(wanted)
        )
        answer = self._ask(
            "AlterPartitionReassignments",
            timeout=self._timeout_ms,
            allow_replication_factor_change=True,
            topics=topics,
        )
        self._check(answer.error_code, answer.error_message, "The cluster refuses to move partitions")
        return {
            TopicPartition(topic.name, one.partition_index): refusal(one.error_code, one.error_message)
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code
        }

    def elect(
        self, election: int, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Refusal]:
        """Elect leaders; an answer for each partition that was asked about, or, for all, for those that need one."""
        topics = None
        if partitions is not None:
            topics = tuple(
                SimpleNamespace(topic=name, partitions=tuple(place.partition for place in places))
                for name, places in by_topic(partitions)
            )
        answer = self._ask(
            "ElectLeaders", election_type=election, topic_partitions=topics, timeout=self._timeout_ms
        )
        self._check(answer.error_code, None, "The cluster refuses to elect leaders")
        return {
            TopicPartition(topic.topic, one.partition_id): refusal(one.error_code, one.error_message)
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    def unregister(self, broker: int) -> None:
        answer = self._ask("UnregisterBroker", broker_id=broker)
        self._check(answer.error_code, answer.error_message, f"Broker {broker} cannot be unregistered")

    def broker_defaults(self) -> list[Setting]:
        """The settings that all brokers share, as far as they were changed while the cluster runs."""
        asked = SimpleNamespace(resource_type=BROKER, resource_name="", configuration_keys=None)
        answer = self._ask(
            "DescribeConfigs", resources=(asked,), include_synonyms=False, include_documentation=False
        )
        (result,) = answer.results
        self._check(result.error_code, result.error_message, "The brokers' settings cannot be read")
        return [
            Setting(one.name, one.value, int(one.config_source), one.read_only, one.is_sensitive)
            for one in result.configs
        ]

    def change_broker_defaults(
        self, changes: Mapping[str, str], unset: Sequence[str], *, validate_only: bool = False
    ) -> None:
        operations: list[tuple[str, int, str | None]] = []
        operations += [(name, SET, value) for name, value in changes.items()]
        operations += [(name, DELETE, None) for name in unset]
        configs = tuple(
            SimpleNamespace(name=name, config_operation=operation, value=value)
            for name, operation, value in operations
        )
        asked = SimpleNamespace(resource_type=BROKER, resource_name="", configs=configs)
        answer = self._ask("IncrementalAlterConfigs", resources=(asked,), validate_only=validate_only)
        (outcome,) = answer.responses
        self._check(outcome.error_code, outcome.error_message, "The brokers' settings are not changed")

    def log_sizes(self, broker: BrokerView) -> dict[TopicPartition, int]:
        """Bytes of each log that a broker has."""
        answer = self._ask("DescribeLogDirs", (broker.host, broker.port), topics=None)
        return {
            TopicPartition(topic.name, one.partition_index): int(one.partition_size)
            for folder in answer.results
            for topic in folder.topics
            for one in topic.partitions
            if not one.is_future_key
        }

    def log_folders(self, broker: BrokerView) -> list[LogFolder]:
        """The data folders of a broker, with the logs that lie there or are on their way there."""
        answer = self._ask("DescribeLogDirs", (broker.host, broker.port), topics=None)
        return [
            LogFolder(
                folder.log_dir,
                refusal(folder.error_code, None).message if folder.error_code else None,
                int(getattr(folder, "usable_bytes", -1)),
                {
                    TopicPartition(topic.name, one.partition_index): LogView(
                        int(one.partition_size), int(one.offset_lag), bool(one.is_future_key)
                    )
                    for topic in folder.topics
                    for one in topic.partitions
                },
            )
            for folder in answer.results
        ]

    def move_logs(
        self, broker: BrokerView, wanted: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Refusal]:
        """Ask a broker to move logs to other data folders of it; what was refused."""
        places: dict[str, list[TopicPartition]] = {}
        for place, path in wanted.items():
            places.setdefault(path, []).append(place)
        folders = tuple(
            SimpleNamespace(
                path=path,
                topics=tuple(
                    SimpleNamespace(name=name, partitions=tuple(place.partition for place in own))
                    for name, own in by_topic(some)
                ),
            )
            for path, some in places.items()
        )
        answer = self._ask("AlterReplicaLogDirs", (broker.host, broker.port), dirs=folders)
        return {
            TopicPartition(topic.topic_name, one.partition_index): refusal(one.error_code, None)
            for topic in answer.results
            for one in topic.partitions
            if one.error_code
        }

    @property
    def _timeout_ms(self) -> int:
        return int(self.target.timeout_s * 1000)

    def _ask(
        self, api: str, address: Address | None = None, timeout_s: float | None = None, /, **fields: Any
    ) -> Any:
        address = address or self._bootstrap
        patience_s = self.target.timeout_s if timeout_s is None else timeout_s
        try:
            return self._runner.run(self._answered(api, address, SimpleNamespace(**fields), patience_s))
        except UnsupportedVersion as error:
            raise CliError(f"This cluster does not know {api}.", "It may be too old for this.") from error
        except (Disconnected, Busy) as error:
            raise CliError(
                f"The broker at {address[0]}:{address[1]} does not answer {api}: {error}.",
                advice_on(str(error), self.target)
                or "Check that the port is a Kafka listener and its security.protocol; --bootstrap takes several.",
                Exit.UNREACHABLE,
            ) from error

    async def _answered(self, api: str, address: Address, message: object, timeout_s: float) -> Any:
        peer = self._peer(address)
        await peer.connection(timeout_s)
        return await peer.ask(APIS_BY_NAME[api].key, message, timeout_s)

    def _peer(self, address: Address) -> Peer:
        if self._runtime is None:
            self._runtime = on_the_way(real_runtime(), self.target)
        if address not in self._peers:
            self._peers[address] = Peer(self._runtime, address, CLIENT_ID, self._login)
        return self._peers[address]

    def _check(self, error: int, message: str | None, what: str) -> None:
        if error:
            said = refusal(error, message)
            raise CliError(f"{what}: {said.message.rstrip('.')}.")


def refusal(error: int, message: str | None) -> Refusal:
    code = ErrorCode(int(error))
    return Refusal(code, message or code.name.replace("_", " "))


def by_topic(places: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    found: dict[str, list[TopicPartition]] = {}
    for place in sorted(places):
        found.setdefault(place.topic, []).append(place)
    yield from found.items()
