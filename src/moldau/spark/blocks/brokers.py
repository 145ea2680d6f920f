"""Who leads a partition, and connections to whom.

Both outlive a task: Spark uses a worker process for many, and a micro-batch of a few records would else pay for a
handshake and a question each. Connections belong to the process that made them; a reader takes one out while it uses
it. Who leads is believed until somebody who is asked as a leader denies it, or does not answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.spark.blocks.client_settings import ClientSettings
from moldau.spark.blocks.connection import Address, Connection
from moldau.spark.blocks.errors import ReadFailed, SecurityFailed
from moldau.wire.primitives import WireError

METADATA: Final = 3
METADATA_VERSIONS: Final = (9, 12)
TOPIC_IDS_FROM: Final = 10
IDLE_MAX: Final = 32
DEFAULT_PORT: Final = 9092
_NO_ID: Final = UUID(int=0)

KNOWN_S: Final = 300.0
"""For how long an answer about a topic is believed: Java's `metadata.max.age.ms`."""
KNOWN_MAX: Final = 256

_idle: dict[tuple[int, Address, ClientSettings], Connection] = {}
_known: dict[tuple[str, ClientSettings, str], Described] = {}


class NotKnownYet(Exception):
    """Nobody leads the partition now, or nobody knows who does: another try may find it."""


class NoSuchPartition(NotKnownYet):
    """The brokers do not know the topic or the partition."""


@dataclass(frozen=True, slots=True)
class Leader:
    address: Address
    epoch: int
    topic_id: UUID | None


@dataclass(frozen=True, slots=True)
class Described:
    """What a broker has said of a topic, and when."""

    asked_s: float
    topic: Any
    hosts: Mapping[int, Address]
    version: int


def addresses(bootstrap_servers: str) -> list[Address]:
    """`host:port,[::1]:port,host`; ReadFailed for what is none."""
    found = []
    for entry in bootstrap_servers.split(","):
        entry = entry.strip().rpartition("://")[2]
        if not entry:
            continue
        host, colon, port = entry.rpartition(":")
        if not colon or entry.endswith("]"):
            host, port = entry, str(DEFAULT_PORT)
        if not port.isdigit():
            raise ReadFailed(f"kafka.bootstrap.servers: {entry!r} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ReadFailed("kafka.bootstrap.servers names no broker")
    return found


class Brokers:
    """The cluster behind some bootstrap addresses, as one reader sees it."""

    def __init__(self, bootstrap_servers: str, settings: ClientSettings | None = None) -> None:
        self._settings = settings or ClientSettings()
        self._bootstrap_servers = bootstrap_servers
        self._bootstrap = addresses(bootstrap_servers)
        self._others: list[Address] = []

    def leader_of(self, topic: str, partition: int) -> Leader:
        """As is known, or as any broker says. NotKnownYet where there is none now, OSError where no broker answers."""
        key = self._key(topic)
        known = _known.get(key)
        if known is None or known.asked_s < time.monotonic() - KNOWN_S:
            known = self._ask_any(topic)
        leader = _leader(known.topic, partition, known.hosts, known.version)
        if key not in _known and len(_known) >= KNOWN_MAX:
            _known.clear()
        _known[key] = known
        return leader

    def forget(self, topic: str) -> None:
        """Who leads it is to be asked anew."""
        _known.pop(self._key(topic), None)

    def _key(self, topic: str) -> tuple[str, ClientSettings, str]:
        return self._bootstrap_servers, self._settings, topic

    def _ask_any(self, topic: str) -> Described:
        failure: Exception | None = None
        for address in self._candidates():
            try:
                return self._ask(address, topic)
            except (OSError, WireError) as reason:
                failure = failure or reason
        assert failure is not None
        raise failure

    def _candidates(self) -> Sequence[Address]:
        return list(dict.fromkeys([*self._others, *self._bootstrap]))

    def _ask(self, address: Address, topic: str) -> Described:
        connection = self.connect(address)
        try:
            version = connection.version_of(METADATA, *METADATA_VERSIONS)
            request = SimpleNamespace(
                topics=(SimpleNamespace(topic_id=None, name=topic),),
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            answer = connection.ask(METADATA, version, request)
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)
        hosts = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._others = list(hosts.values())
        if len(answer.topics) != 1:
            raise WireError("the Metadata answer is not about one topic")
        return Described(time.monotonic(), answer.topics[0], hosts, version)

    def connect(self, address: Address) -> Connection:
        """A connection that nobody else uses: an idle one, or a new one."""
        idle = _idle.pop((os.getpid(), address, self._settings), None)
        if idle is not None and not idle.is_stale:
            return idle
        if idle is not None:
            idle.close()
        return Connection(address, self._settings)

    def give_back(self, connection: Connection) -> None:
        key = (os.getpid(), connection.address, self._settings)
        for foreign in [
            key for key in _idle if key[0] != os.getpid()
        ]:  # of the process that this one was forked from
            del _idle[foreign]
        if not connection.is_quiet or key in _idle or len(_idle) >= IDLE_MAX:
            connection.close()
        else:
            _idle[key] = connection


def _leader(topic: Any, partition: int, hosts: Mapping[int, Address], version: int) -> Leader:
    error, name = topic.error_code, topic.name
    if error is ErrorCode.topic_authorization_failed:
        raise SecurityFailed(f"not authorized to read the topic {name}")
    if error in (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id):
        raise NoSuchPartition(f"the topic {name} does not exist")
    if error is ErrorCode.invalid_topic_exception:
        raise ReadFailed(f"{name!r} is not a name that a topic can have")
    if error:
        raise NotKnownYet(f"the topic {name}: {error.name}")
    for found in topic.partitions:
        if found.partition_index == partition:
            if found.leader_id not in hosts:
                raise NotKnownYet(f"nobody leads {name}-{partition} now")
            topic_id = topic.topic_id if version >= TOPIC_IDS_FROM else None
            known_id = None if topic_id in (None, _NO_ID) else topic_id
            return Leader(hosts[found.leader_id], found.leader_epoch, known_id)
    raise NoSuchPartition(f"the topic {name} has no partition {partition}")
