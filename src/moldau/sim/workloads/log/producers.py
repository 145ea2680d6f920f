"""Producers of a simulated run, as real ones behave when connections and brokers come and go.

`IdempotentProducer`: a lane per partition, up to five batches in flight in each. After a loss everything that is not
acknowledged goes out again, in order, under the same sequence numbers. Where the broker refuses the next number in
line, what is in flight is given up and a new producer id begins: of a flushed topic that may not happen.

`PlainProducer`: one request at a time, over several partitions, sent again until each has answered. So its records may
be stored more than once. With acks=0 it never knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.peers.errors import Busy
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.sim.client import INIT_PRODUCER_ID, PRODUCE, Client, Disconnected, Wire
from moldau.sim.model import Sent
from moldau.sim.random import SimRandom

VERSIONS = (3, 13)
ZSTD_SINCE_VERSION = 7
RECORDS_PER_BATCH_MAX = 5
VALUE_BYTES_MAX = 700
TIMESTAMP_SPREAD_MS = 400
THINK_S = (0.02, 0.2)
ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
TIMEOUT_MS = 1000
BURST_RATE, BURST_RATE_IN_A_CLUSTER = 0.7, 0.3
"""How often a lane with something in flight sends more at once."""

RETRIABLE = (
    ErrorCode.kafka_storage_error,
    ErrorCode.unknown_topic_or_partition,  # the broker is about to open it
    ErrorCode.unknown_topic_id,
    ErrorCode.not_leader_or_follower,
)
RETRIABLE_IN_A_CLUSTER = (
    *RETRIABLE,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.request_timed_out,
)
OUT_OF_ORDER = (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id)


class Batch(NamedTuple):
    partition: TopicPartition
    sent: list[Sent]
    data: bytes


class Maker:
    """Makes batches whose records have names that nobody else gives."""

    def __init__(self, client: Client, version: int, *, idempotent: bool) -> None:
        self._client = client
        self._random = client.random
        self._idempotent = idempotent
        self._codecs = [codec for codec in Codec if codec != Codec.ZSTD or version >= ZSTD_SINCE_VERSION]
        self._number = 0
        self._session = 0

    def begin_session(self) -> None:
        self._session += 1

    def batch(
        self, partition: TopicPartition, producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1
    ) -> Batch:
        count = 1 + self._random.randrange(RECORDS_PER_BATCH_MAX)
        has_keys = self._client.model[partition].has_gaps
        sent = [self._sent(index, has_keys=has_keys) for index in range(count)]
        data = build_batch(
            [one.record for one in sent],
            codec=self._codecs[self._random.randrange(len(self._codecs))],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        self._client.model[partition].on_sent(sent)
        self._client.count("records sent", count)
        return Batch(partition, sent, data)

    def _sent(self, index: int, *, has_keys: bool) -> Sent:
        random, client = self._random, self._client
        number, self._number = self._number, self._number + 1
        name = f"{client.name}/{self._session}/{number}|".encode()
        record = Record(
            index,
            client.runtime.clock.wall_ms() - random.randrange(TIMESTAMP_SPREAD_MS),
            None if random.chance(0.3) and not has_keys else f"key-{random.randrange(20)}".encode(),
            name + random.bytes(random.randrange(VALUE_BYTES_MAX)),
            (("trace", random.bytes(3)), ("none", None)) if random.chance(0.2) else (),
        )
        return Sent(client.name, self._session, number, self._idempotent, record)


def request(client: Client, batches: Sequence[Batch], acks: int) -> SimpleNamespace:
    topics: dict[str, list[object]] = {}
    for batch in batches:
        parts = topics.setdefault(batch.partition.topic, [])
        parts.append(SimpleNamespace(index=batch.partition.partition, records=batch.data))
    return SimpleNamespace(
        transactional_id=None,
        acks=acks,
        timeout=TIMEOUT_MS,
        topic_data=tuple(client.topic(name, partition_data=tuple(parts)) for name, parts in topics.items()),
    )


def outcomes(client: Client, answer: Any) -> dict[TopicPartition, Any]:
    return {
        client.partition_of(topic, part.index): part
        for topic in answer.responses
        for part in topic.partition_responses
    }


def is_retriable(client: Client, error: ErrorCode) -> bool:
    return error in (RETRIABLE_IN_A_CLUSTER if client.is_in_cluster else RETRIABLE)


def acknowledged(client: Client, wire: Wire, batch: Batch, base_offset: int, acks: int) -> None:
    """What one broker of several has taken, without asking the others, may be lost with it."""
    client.count("records acknowledged", len(batch.sent))
    if acks == ACKS_ALL or not client.is_in_cluster:
        client.model[batch.partition].on_acknowledged(wire.life, base_offset, batch.sent)


class Lane:
    """An idempotent producer's way to one partition."""

    def __init__(self, producer: IdempotentProducer, partition: TopicPartition, window: int) -> None:
        self._producer = producer
        self._client = producer.client
        self._partition = partition
        self._window = window
        self._burst_rate = BURST_RATE_IN_A_CLUSTER if self._client.is_in_cluster else BURST_RATE
        self._unacknowledged: deque[Batch] = deque()
        self._sequence = 0
        self._session = 0
        self._is_known = False
        """Whether the log knows this session from its first batch on. A log that does not know a producer takes
        any sequence number from it, as Kafka's does: so where the disk refuses the first batch and then takes the
        second, the first never follows."""

    @property
    def is_empty(self) -> bool:
        return not self._unacknowledged

    async def run(self) -> None:
        client = self._client
        while not (client.is_stopping and self.is_empty):
            wire = await client.wire(self._partition)
            if self._session != self._producer.session:
                self._begin_session()
            await self._pump(wire)
            await client.pause()

    def _begin_session(self) -> None:
        """Under a new producer id; nobody will know what became of what was in flight."""
        self._session = self._producer.session
        self._unacknowledged.clear()
        self._sequence = 0
        self._is_known = False

    async def _pump(self, wire: Wire) -> None:
        """Send what is not acknowledged, in order and a window at once, until something goes wrong."""
        sending: deque[tuple[Batch, asyncio.Future[Any]]] = deque()
        while True:
            if self.is_empty:
                await self._producer.think()
            if self._session != self._producer.session:
                return
            while len(sending) < self._window and (batch := self._next(len(sending))) is not None:
                sending.append((batch, wire.send(PRODUCE, self._producer.version, self._request(batch))))
            if not sending:
                return
            is_well = await self._settle(wire, *sending.popleft(), is_head=True)
            if not is_well:
                for batch, future in sending:  # they were sent, and may have been stored
                    await self._settle(wire, batch, future, is_head=False)
                return

    def _next(self, position: int) -> Batch | None:
        """The batch at a position of the window: one that goes out again, or a new one."""
        if position < len(self._unacknowledged):
            return self._unacknowledged[position]
        if self._client.is_stopping or (position and not self._client.random.chance(self._burst_rate)):
            return None
        producer = self._producer
        batch = producer.maker.batch(self._partition, producer.producer_id, producer.epoch, self._sequence)
        self._sequence += len(batch.sent)
        self._unacknowledged.append(batch)
        return batch

    def _request(self, batch: Batch) -> object:
        return request(self._client, [batch], self._producer.acks)

    async def _settle(self, wire: Wire, batch: Batch, future: asyncio.Future[Any], *, is_head: bool) -> bool:
        """Take the answer for a batch; False where the lane must begin again with what is left."""
        try:
            answer = await future
        except Disconnected:
            return False
        outcome = outcomes(self._client, answer)[self._partition]
        if outcome.error_code is ErrorCode.none:
            acknowledged(self._client, wire, batch, outcome.base_offset, self._producer.acks)
            if self._session == batch.sent[0].session:
                self._unacknowledged.remove(batch)
                self._is_known = self._is_known or is_head
            return True
        if outcome.error_code in OUT_OF_ORDER:
            if is_head:
                self._refused_head(batch)
        elif is_retriable(self._client, outcome.error_code):
            self._client.mistrust(self._partition)
        else:
            self._fail("a batch to be taken", outcome.error_code.name)
        return False

    def _refused_head(self, batch: Batch) -> None:
        """All before it is acknowledged, and still it does not follow."""
        if self._client.model[self._partition].is_flushed and self._is_known:
            name = f"{self._client.name}/{batch.sent[0].session}/{batch.sent[0].number}"
            self._fail(f"{name} to follow what was acknowledged before", "out of order")
        self._producer.needs_session = True

    def _fail(self, expected: str, found: str) -> None:
        self._client.model[self._partition].fail(expected, found)


class IdempotentProducer:
    def __init__(
        self,
        client: Client,
        partitions: Sequence[TopicPartition],
        random: SimRandom,
        think_s: tuple[float, float] = THINK_S,
    ) -> None:
        self.client = client
        self.version = VERSIONS[0] + random.randrange(VERSIONS[1] - VERSIONS[0] + 1)
        self.acks = ACKS_ALL
        self.maker = Maker(client, self.version, idempotent=True)
        self.producer_id = -1
        self.epoch = -1
        self.session = 0
        self.needs_session = True
        self._think_s = random.between(*think_s)
        self._lanes = [Lane(self, partition, 1 + random.randrange(5)) for partition in partitions]

    async def run(self) -> None:
        tasks = self.client.runtime.tasks
        await self._begin_session()
        lanes = [tasks.spawn(lane.run(), name=f"lane of {self.client.name}") for lane in self._lanes]
        while not all(lane.done() for lane in lanes):
            if self.needs_session:
                await self._begin_session()
            await tasks.sleep(0.01)
        for lane in lanes:
            await lane

    async def think(self) -> None:
        await self.client.runtime.tasks.sleep(self._think_s)

    async def _begin_session(self) -> None:
        wanted = SimpleNamespace(
            transactional_id=None,
            transaction_timeout=0,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=False,
            keep_prepared_txn=False,
        )
        answer = await self.client.ask(INIT_PRODUCER_ID, 4, wanted)
        if answer.error_code is ErrorCode.none:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.session += 1
            self.maker.begin_session()
            self.needs_session = False
            self.client.count("producer ids")


class PlainProducer:
    def __init__(
        self,
        client: Client,
        partitions: Sequence[TopicPartition],
        random: SimRandom,
        think_s: tuple[float, float] = THINK_S,
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._version = VERSIONS[0] + random.randrange(VERSIONS[1] - VERSIONS[0] + 1)
        self._acks = (ACKS_ALL, ACKS_LEADER, ACKS_LEADER, ACKS_NONE)[random.randrange(4)]
        self._maker = Maker(client, self._version, idempotent=False)
        self._think_s = random.between(*think_s)

    async def run(self) -> None:
        client = self._client
        while not client.is_stopping:
            await self._deliver(self._batches())
            await client.runtime.tasks.sleep(self._think_s)

    def _batches(self) -> list[Batch]:
        chosen = [p for p in self._partitions if self._client.random.chance(0.5)]
        return [self._maker.batch(partition) for partition in chosen or self._partitions[:1]]

    async def _deliver(self, batches: list[Batch]) -> None:
        client = self._client
        while batches:
            left: list[Batch] = []
            for wire, places in (await client.wires([batch.partition for batch in batches])).items():
                left += await self._send(wire, [batch for batch in batches if batch.partition in places])
            batches = left
            if batches:
                await client.pause()

    async def _send(self, wire: Wire, batches: list[Batch]) -> list[Batch]:
        """Send what one broker leads; what is left to be sent again."""
        message = request(self._client, batches, self._acks)
        if self._acks == ACKS_NONE:
            try:
                wire.send_only(PRODUCE, self._version, message)
            except Busy:  # a connection that nobody reads; without answers there is no time-out either
                wire.close()
            return []
        try:
            answer = await wire.ask(PRODUCE, self._version, message)
        except Disconnected:
            return batches
        return self._left(wire, batches, outcomes(self._client, answer))

    def _left(self, wire: Wire, batches: list[Batch], answers: dict[TopicPartition, Any]) -> list[Batch]:
        left = []
        for batch in batches:
            outcome = answers[batch.partition]
            if outcome.error_code is ErrorCode.none:
                acknowledged(self._client, wire, batch, outcome.base_offset, self._acks)
            elif is_retriable(self._client, outcome.error_code):
                self._client.mistrust(batch.partition)
                left.append(batch)
            else:
                self._client.model[batch.partition].fail("a batch to be taken", outcome.error_code.name)
        return left
