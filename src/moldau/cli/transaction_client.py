"""The requests about transactions that confluent-kafka has no calls for, sent to the brokers directly.

One connection for each broker (`peers`), on a loop that runs while a request is asked. It goes the way that a
profile or `-X` says (`peer_way`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.internal_topics import TRANSACTION_STATE
from moldau.cli.client import Connection
from moldau.cli.errors import CliError, Exit
from moldau.cli.peer_way import login_of, on_the_way
from moldau.cli.refused import advice_on
from moldau.cli.shortages import why_nobody_coordinates
from moldau.coordinator.fields import FieldReader
from moldau.peers.connection import PeerConnection
from moldau.peers.errors import Disconnected
from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import encode_request

CLIENT_ID = "moldau-cli"
FENCING_TIMEOUT_MS = 60_000
TRANSACTION = 1  # a key of FindCoordinator


class Listed(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class Described(NamedTuple):
    error: ErrorCode
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]


class OpenTransaction(NamedTuple):
    """A transaction as a partition's leader knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionClient:
    def __init__(self, connection: Connection) -> None:
        self._login = login_of(connection.target)
        self._connection = connection
        self._metadata = connection.metadata()
        self._timeout_s = connection.target.timeout_s
        self._connections: dict[int, PeerConnection] = {}
        self._runtime: Runtime | None = None
        self._runner = asyncio.Runner(loop_factory=new_event_loop)

    # ---- what is there --------------------------------------------------------------------------------------

    def listed(self) -> list[Listed]:
        """All transactional ids of the cluster."""
        found = []
        for broker in self._metadata.brokers:
            answer = self._ask(broker, "ListTransactions", 0, state_filters=(), producer_id_filters=())
            self._check(answer.error_code, "The transactions cannot be listed")
            found += [
                Listed(one.transactional_id, one.producer_id, one.transaction_state)
                for one in answer.transaction_states
            ]
        return sorted(found)

    def described(self, transactional_id: str) -> Described:
        api = "DescribeTransactions"
        key = APIS_BY_NAME[api].key
        body = encode_request(key, 0, SimpleNamespace(transactional_ids=(transactional_id,)))
        answer = self._answered(
            self.coordinator(transactional_id),
            api,
            lambda broker: broker.ask_raw(key, 0, body, self._timeout_s),
        )
        return read_described(bytes(answer))[0]

    def open_transactions(self, topics: Iterable[str]) -> Iterator[OpenTransaction]:
        """Of these topics, as the leaders of their partitions know them."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for name in topics:
            for index, partition in self._metadata.topics[name].partitions.items():
                by_leader.setdefault(partition.leader, {}).setdefault(name, []).append(index)
        for broker, wanted in by_leader.items():
            if broker in self._metadata.brokers:
                rows = tuple(
                    SimpleNamespace(name=name, partition_indexes=tuple(indexes))
                    for name, indexes in wanted.items()
                )
                yield from _open_in(self._ask(broker, "DescribeProducers", 0, topics=rows))

    @property
    def topics(self) -> list[str]:
        return sorted(self._metadata.topics)

    def coordinator(self, transactional_id: str) -> int:
        has_topic = TRANSACTION_STATE in self._metadata.topics
        if not has_topic and (reason := why_nobody_coordinates(self._connection, TRANSACTION_STATE)):
            raise reason
        broker = next(iter(self._metadata.brokers))
        answer = self._ask(broker, "FindCoordinator", 3, key=transactional_id, key_type=TRANSACTION)
        self._check(answer.error_code, f"Nobody coordinates '{transactional_id}' now")
        return int(answer.node_id)

    # ---- ending them ----------------------------------------------------------------------------------------

    def fence(self, transactional_id: str) -> ErrorCode:
        """As a new producer would: the one before is fenced, and its open transaction aborted."""
        answer = self._ask(
            self.coordinator(transactional_id),
            "InitProducerId",
            4,
            transactional_id=transactional_id,
            transaction_timeout=FENCING_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        error: ErrorCode = answer.error_code
        return error

    def write_abort_marker(self, found: OpenTransaction) -> ErrorCode:
        """End a transaction in one partition, without its coordinator."""
        marker = SimpleNamespace(
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            transaction_result=False,
            coordinator_epoch=max(found.coordinator_epoch, 0),
            topics=(SimpleNamespace(name=found.topic, partition_indexes=(found.partition,)),),
        )
        leader = self._metadata.topics[found.topic].partitions[found.partition].leader
        answer = self._ask(leader, "WriteTxnMarkers", 1, markers=(marker,))
        error: ErrorCode = answer.markers[0].topics[0].partitions[0].error_code
        return error

    # ---- the wire -------------------------------------------------------------------------------------------

    def _ask(self, broker: int, api: str, version: int, **fields: Any) -> Any:
        key, request = APIS_BY_NAME[api].key, SimpleNamespace(**fields)
        return self._answered(
            broker, api, lambda connection: connection.ask(key, version, request, self._timeout_s)
        )

    def _answered(
        self, broker: int, api: str, ask: Callable[[PeerConnection], Coroutine[Any, Any, Any]]
    ) -> Any:
        async def exchange() -> Any:
            return await ask(await self._connected(broker))

        try:
            return self._runner.run(exchange())
        except (OSError, Disconnected) as error:
            raise CliError(
                f"Broker {broker} does not answer {api} ({error}).",
                advice_on(str(error), self._connection.target)
                or "Brokers before Kafka 3.0 do not tell of their transactions.",
                Exit.UNREACHABLE,
            ) from error

    async def _connected(self, broker: int) -> PeerConnection:
        if self._runtime is None:
            self._runtime = on_the_way(real_runtime(), self._connection.target)
        connection = self._connections.get(broker)
        if connection is None:
            found = self._metadata.brokers[broker]
            connection = await PeerConnection.open(
                self._runtime, found.host, found.port, CLIENT_ID, timeout_s=self._timeout_s
            )
            self._connections[broker] = connection
            if self._login is not None:
                from moldau.peers.login import log_in

                await log_in(self._runtime, connection, self._login)
        return connection

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._runtime is not None:
            close_runtime(self._runtime)
        self._runner.close()

    def __enter__(self) -> TransactionClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, error: ErrorCode, what: str) -> None:
        if error:
            raise CliError(f"{what}: {error.name.upper()}.")


def _open_in(answer: Any) -> Iterator[OpenTransaction]:
    for topic in answer.topics:
        for partition in topic.partitions:
            for producer in partition.active_producers:
                if producer.current_txn_start_offset >= 0:
                    yield OpenTransaction(
                        topic.name,
                        partition.partition_index,
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                        producer.last_timestamp,
                    )


def read_described(body: bytes) -> list[Described]:
    """DescribeTransactions' answer. Read by hand: kio refuses the start of a transaction that was never begun, -1."""
    fields = FieldReader(body, flexible=True)
    fields.int32()  # throttle time
    return [_described(fields) for _ in range(fields.array())]


def _described(fields: FieldReader) -> Described:
    error, transactional_id, state = ErrorCode(fields.int16()), fields.string(), fields.string()
    timeout_ms, start_ms, producer_id, epoch = fields.int32(), fields.int64(), fields.int64(), fields.int16()
    partitions: list[tuple[str, int]] = []
    for _ in range(fields.array()):
        topic = fields.string()
        partitions += [(topic, fields.int32()) for _ in range(fields.array())]
        fields.tagged()
    fields.tagged()
    return Described(
        error, transactional_id, state, timeout_ms, start_ms, producer_id, epoch, tuple(sorted(partitions))
    )
