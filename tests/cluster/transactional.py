"""A transactional producer whose every request a test sends by itself, in either transaction version.

Requests that may go out again do, to whoever leads or coordinates then, for as long as there is time; any other error
is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.broker.node import Broker
from moldau.peers.connection import PeerConnection
from moldau.peers.errors import Disconnected
from moldau.records.record import Record, build_batch

from .brokers import Brokers

PRODUCE, OFFSET_FETCH, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 9, 22, 24, 25, 26, 28
PATIENCE_S = 30.0
PAUSE_S = 0.02
AGAIN = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.not_leader_or_follower,
    ErrorCode.request_timed_out,
    ErrorCode.unstable_offset_commit,
)


class Transactional:
    def __init__(self, brokers: Brokers, transactional_id: str, version: int) -> None:
        self._brokers = brokers
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._own_epochs = version >= 2

    def init(self) -> None:
        request = SimpleNamespace(
            transactional_id=self.transactional_id,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=False,
            keep_prepared_txn=False,
        )
        self._take(self._of_coordinator(INIT, 5, request, lambda answer: answer.error_code))

    def send(self, topic: str, index: int, value: str, *, adds: bool = True) -> None:
        """With version 1 the partition is added to the transaction first, unless the test says no."""
        if adds and not self._own_epochs:
            self.add(topic, index)
        sequence = self._sequences.get((topic, index), 0)
        batch = build_batch(
            [Record(0, 1, None, value.encode())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        partition = SimpleNamespace(index=index, records=batch)
        request = SimpleNamespace(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=5000,
            topic_data=(SimpleNamespace(name=topic, partition_data=(partition,)),),
        )

        def error(answer: Any) -> ErrorCode:
            return ErrorCode(answer.responses[0].partition_responses[0].error_code)

        version = 12 if self._own_epochs else 11
        self._ask(
            lambda image: image.topics[topic].partitions[index].leader, PRODUCE, version, request, error
        )
        self._sequences[topic, index] = sequence + 1

    def add(self, topic: str, index: int) -> None:
        rows = (SimpleNamespace(name=topic, partitions=(index,)),)
        request = SimpleNamespace(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=rows,
        )

        def error(answer: Any) -> ErrorCode:
            (topic,) = answer.results_by_topic_v3_and_below
            return ErrorCode(topic.results_by_partition[0].partition_error_code)

        self._of_coordinator(ADD_PARTITIONS, 3, request, error)

    def commit_offset(self, group: str, topic: str, offset: int) -> None:
        """Of partition 0, with the transaction."""
        own = self._named()
        if not self._own_epochs:
            request = SimpleNamespace(**own, group_id=group)
            self._of_coordinator(ADD_OFFSETS, 4, request, lambda answer: answer.error_code)
        row = SimpleNamespace(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = SimpleNamespace(
            **own,
            group_id=group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(SimpleNamespace(name=topic, partitions=(row,)),),
        )
        self._ask(
            lambda _image: self._brokers.coordinator_of(CONSUMER_OFFSETS, group),
            COMMIT_OFFSETS,
            5 if self._own_epochs else 4,
            request,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )

    def end(self, *, is_commit: bool) -> None:
        request = SimpleNamespace(**self._named(), committed=is_commit)
        version = 5 if self._own_epochs else 4
        answer = self._of_coordinator(END, version, request, lambda answer: answer.error_code)
        if self._own_epochs:
            self._take(answer)

    def offset_of(self, group: str, topic: str) -> int:
        """What the group has committed for partition 0, when no transaction is about to say otherwise."""
        asked = SimpleNamespace(
            group_id=group,
            member_id=None,
            member_epoch=-1,
            topics=(SimpleNamespace(name=topic, partition_indexes=(0,)),),
        )

        def error(answer: Any) -> ErrorCode:
            (found,) = answer.groups
            return ErrorCode(found.error_code or found.topics[0].partitions[0].error_code)

        answer = self._ask(
            lambda _image: self._brokers.coordinator_of(CONSUMER_OFFSETS, group),
            OFFSET_FETCH,
            9,
            SimpleNamespace(groups=(asked,), require_stable=True),
            error,
        )
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    # Asking

    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def _take(self, answer: Any) -> None:
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def _of_coordinator(
        self, api_key: int, version: int, request: object, error_of: Callable[[Any], int]
    ) -> Any:
        return self._ask(
            lambda _image: self._brokers.coordinator_of(TRANSACTION_STATE, self.transactional_id),
            api_key,
            version,
            request,
            error_of,
        )

    def _ask(
        self,
        broker_of: Callable[[Any], int],
        api_key: int,
        version: int,
        request: object,
        error_of: Callable[[Any], int],
    ) -> Any:
        brokers = self._brokers

        async def ask() -> Any:
            clock, tasks = brokers.any.clock, brokers.any.tasks
            deadline_s = clock.monotonic() + PATIENCE_S
            while True:
                error = ErrorCode.network_exception
                broker = brokers.running.get(broker_of(brokers.any.image), None)
                if broker is not None:
                    try:
                        answer = await _asked(broker, api_key, version, request)
                        error = ErrorCode(error_of(answer))
                        if not error:
                            return answer
                    except (Disconnected, OSError):
                        pass
                    if error not in (*AGAIN, ErrorCode.network_exception):
                        raise KafkaError(error)
                if clock.monotonic() > deadline_s:
                    raise KafkaError(error, f"API {api_key} is not answered in time")
                await tasks.sleep(PAUSE_S)

        return brokers.call(ask)


async def _asked(broker: Broker, api_key: int, version: int, request: object) -> Any:
    (listener,) = broker.listeners.values()
    connection = await PeerConnection.open(broker.runtime, *listener.address, "test", timeout_s=PATIENCE_S)
    try:
        return await connection.ask(api_key, version, request, PATIENCE_S)
    finally:
        connection.close()
