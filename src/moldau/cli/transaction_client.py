"""The requests about transactions that confluent-kafka has no calls for, sent to the brokers directly.

One plain connection for each broker, asked and answered one by one; listeners with TLS or SASL are not spoken to.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.cli.client import Connection
from moldau.cli.errors import CliError, Exit
from moldau.coordinator.fields import FieldReader
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import decode_response, encode_request_frame
from moldau.wire.frames import SIZE, parse_response_header

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
        self._connection = connection
        self._metadata = connection.metadata()
        self._sockets: dict[int, socket.socket] = {}
        self._correlation_id = 0

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
        broker = self.coordinator(transactional_id)
        frame, position = self._exchange(
            broker, "DescribeTransactions", 0, SimpleNamespace(transactional_ids=(transactional_id,))
        )
        return read_described(bytes(frame[position:]))[0]

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
        frame, position = self._exchange(broker, api, version, SimpleNamespace(**fields))
        return decode_response(APIS_BY_NAME[api].key, version, frame, position)

    def _exchange(self, broker: int, api: str, version: int, request: Any) -> tuple[memoryview, int]:
        key = APIS_BY_NAME[api].key
        self._correlation_id += 1
        try:
            stream = self._stream(broker)
            stream.sendall(encode_request_frame(key, version, self._correlation_id, CLIENT_ID, request))
            (size,) = SIZE.unpack(_receive(stream, SIZE.size))
            frame = memoryview(_receive(stream, size))
        except (OSError, EOFError) as error:
            raise CliError(
                f"Broker {broker} does not answer {api} ({error}).",
                "Brokers before Kafka 3.0 do not tell of their transactions; listeners with TLS or SASL"
                " are not spoken to.",
                Exit.UNREACHABLE,
            ) from error
        return frame, parse_response_header(frame, key, version)[1]

    def _stream(self, broker: int) -> socket.socket:
        stream = self._sockets.get(broker)
        if stream is None:
            found = self._metadata.brokers[broker]
            timeout_s = self._connection.target.timeout_s
            stream = self._sockets[broker] = socket.create_connection((found.host, found.port), timeout_s)
        return stream

    def close(self) -> None:
        for stream in self._sockets.values():
            stream.close()

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


def _receive(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = stream.recv(count - len(data))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return bytes(data)


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
