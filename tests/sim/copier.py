"""A client for scripted runs: a few transactions over two partitions and a group's offsets, in both versions.

`Stage` is a broker that comes back whenever its host is down. `Copier` can be told to die at one of its requests; a new
one goes on as another instance of the same transactional id. `check` is what must hold in the end, whoever died.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.records.batch import read_header
from moldau.records.record import Record, build_batch, read_records
from moldau.sim.client import PORT, Disconnected, Wire
from moldau.sim.world import SimHost, World
from moldau.store.memory import MemoryStore, Tree

TOPICS = ("a", "b")
TRANSACTIONS = 2
TIMEOUT_MS = 5000
TRIES_MAX = 200
ID, GROUP = "copier", "group"
PRODUCE, FETCH, FIND, CREATE, OFFSET_FETCH = 0, 1, 10, 19, 9
INIT, ADD, ADD_OFFSETS, END, COMMIT_OFFSETS = 22, 24, 25, 26, 28
AGAIN = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
)
SETTINGS = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://:{PORT}",
    "log.dirs": "/data",
    "moldau.http.port": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
FLUSHED = {"log.flush.interval.messages": "1"}


class Stage:
    """A broker that starts again whenever its host is down."""

    def __init__(self, world: World, settings: dict[str, str]) -> None:
        self.world = world
        self.host: SimHost = world.host("broker")
        self.client = world.host("client").runtime
        self._config = BrokerConfig.parse(SETTINGS | settings)
        self._tree = Tree()
        self.starts = 0

    async def keep_up(self) -> None:
        while True:
            if not self.host.alive or self.starts == 0:
                runtime = self.host.runtime if self.host.alive else self.host.restart()
                self.starts += 1
                broker = Broker(self._config, runtime, MemoryStore(self._tree, runtime.tasks))
                runtime.tasks.spawn(broker.start(), name="broker")
            await self.world.sleep(0.05)


class Lost(Exception):
    """The connection went in the middle of a transaction: its outcome is not known."""


class Died(Exception):
    """The client was killed: nobody will ever hear of it again."""


class Copier:
    """The client: each transaction has a value in both topics, and an offset. Every other one is aborted."""

    def __init__(self, stage: Stage, own_epochs: bool) -> None:
        self._runtime = stage.client
        self._own_epochs = own_epochs
        self._wire: Wire | None = None
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.asked: list[int] = []
        """The API keys of all requests since `dies_at` was set."""
        self.dies_at: tuple[int, str] | None = None
        """The number of a request, and whether it dies before it is `sent`, or before it is `answered`."""

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """The answer; Lost where there is none."""
        try:
            if self._wire is None or self._wire.is_closed:
                stream = await self._runtime.net.connect("broker", PORT, timeout_s=1.0)
                self._wire = Wire(self._runtime, stream, "copier", 0, 0.0)
            return await self._send(self._wire, api_key, version, SimpleNamespace(**fields))
        except (Disconnected, OSError):
            raise Lost from None

    def _send(self, wire: Wire, api_key: int, version: int, message: object) -> asyncio.Future[Any]:
        self.asked.append(api_key)
        is_last = self.dies_at is not None and len(self.asked) == self.dies_at[0]
        if is_last and self.dies_at == (len(self.asked), "sent"):
            wire.close()
            raise Died
        answer = wire.send(api_key, version, message)
        if is_last:
            raise Died  # the connection stays, as that of a host that has lost its power
        return answer

    async def insist(self, api_key: int, version: int, error_of: Any, **fields: Any) -> Any:
        """Ask until the answer is one; only for what may be asked twice."""
        for _ in range(TRIES_MAX):
            try:
                answer = await self.ask(api_key, version, **fields)
                if error_of(answer) not in AGAIN:
                    return answer
            except Lost:
                pass
            await self._runtime.tasks.sleep(0.05)
        raise AssertionError(f"API {api_key} gives no answer but to come again")

    async def prepare(self) -> None:
        topics = tuple(
            SimpleNamespace(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
            for name in TOPICS
        )
        await self.insist(
            CREATE, 5, lambda _: ErrorCode.none, topics=topics, timeout=5000, validate_only=False
        )
        for key, kind in ((ID, 1), (GROUP, 0)):
            await self.insist(FIND, 3, lambda answer: answer.error_code, key=key, key_type=kind)

    async def run(self) -> None:
        producer = await self.init()
        for number in range(TRANSACTIONS):
            try:
                producer = await self.transact(producer, number)
            except Lost:
                producer = await self.init()

    async def init(self) -> tuple[int, int]:
        answer = await self.insist(
            INIT,
            4,
            lambda answer: answer.error_code,
            transactional_id=ID,
            transaction_timeout=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert not answer.error_code
        self._sequence = 0
        return answer.producer_id, answer.producer_epoch

    async def transact(self, producer: tuple[int, int], number: int) -> tuple[int, int]:
        fields = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
        if not self._own_epochs:
            topics = tuple(SimpleNamespace(name=name, partitions=(0,)) for name in TOPICS)
            old = {f"v3_and_below_{key}": value for key, value in fields.items()}
            self.expect(
                (await self.ask(ADD, 3, **old, v3_and_below_topics=topics))
                .results_by_topic_v3_and_below[0]
                .results_by_partition[0]
                .partition_error_code
            )
            self.expect((await self.ask(ADD_OFFSETS, 3, **fields, group_id=GROUP)).error_code)
        await self.produce(fields, number)
        await self.commit_offset(fields, number)
        is_commit = number % 2 == 0
        answer = await self.ask(END, 5 if self._own_epochs else 4, **fields, committed=is_commit)
        self.expect(answer.error_code)
        (self.committed if is_commit else self.aborted).add(number)
        self._sequence = 0 if self._own_epochs else self._sequence + 1
        if self._own_epochs:
            return answer.producer_id, answer.producer_epoch
        await self._runtime.tasks.sleep(0.2)  # until the markers are written
        return producer

    async def produce(self, fields: dict[str, Any], number: int) -> None:
        batch = build_batch(
            [Record(0, 1, b"k", b"%d" % number)],
            producer_id=fields["producer_id"],
            producer_epoch=fields["producer_epoch"],
            base_sequence=self._sequence,
            transactional=True,
        )
        rows = (SimpleNamespace(index=0, records=batch),)
        topics = tuple(SimpleNamespace(name=name, partition_data=rows) for name in TOPICS)
        version = 12 if self._own_epochs else 9
        answer = await self.ask(
            PRODUCE, version, transactional_id=ID, acks=-1, timeout=5000, topic_data=topics
        )
        for topic in answer.responses:
            self.expect(topic.partition_responses[0].error_code)

    async def commit_offset(self, fields: dict[str, Any], number: int) -> None:
        row = SimpleNamespace(
            partition_index=0, committed_offset=number + 1, committed_leader_epoch=-1, committed_metadata=""
        )
        answer = await self.ask(
            COMMIT_OFFSETS,
            5 if self._own_epochs else 3,
            **fields,
            group_id=GROUP,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(SimpleNamespace(name="a", partitions=(row,)),),
        )
        self.expect(answer.topics[0].partitions[0].error_code)

    def expect(self, error: ErrorCode) -> None:
        """Any error ends the transaction, which a new producer then aborts."""
        if error:
            raise Lost

    # ---- what is seen in the end --------------------------------------------------------------------------------

    async def seen(self, topic: str) -> list[int]:
        """The values of a topic, read to its end."""
        values: list[int] = []
        offset, end = 0, 1
        while offset < end:
            partition = await self.fetch(topic, offset)
            end = partition.high_watermark
            assert partition.last_stable_offset == end, "a transaction is still open"
            records = bytes(partition.records or b"")
            assert records or offset == end
            values += committed_values(records, partition.aborted_transactions)
            position = 0
            while position < len(records):
                header = read_header(records, position)
                position += header.size
                offset = header.next_offset
        return values

    async def fetch(self, topic: str, offset: int) -> Any:
        row = SimpleNamespace(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        answer = await self.insist(
            FETCH,
            11,
            lambda answer: answer.responses[0].partitions[0].error_code,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=(SimpleNamespace(topic=topic, partitions=(row,)),),
            forgotten_topics_data=(),
            rack_id="",
        )
        return answer.responses[0].partitions[0]

    async def offset(self) -> int:
        answer = await self.insist(
            OFFSET_FETCH,
            7,
            lambda answer: answer.error_code or answer.topics[0].partitions[0].error_code,
            group_id=GROUP,
            topics=(SimpleNamespace(name="a", partition_indexes=(0,)),),
            require_stable=True,
        )
        return int(answer.topics[0].partitions[0].committed_offset)


async def check(copier: Copier, committed: set[int], aborted: set[int], what: str) -> None:
    """All of a transaction is seen, in both partitions and in the offset, or nothing; and all that was confirmed."""
    a, b = await copier.seen("a"), await copier.seen("b")
    assert a == b, f"{what}: {a} in one partition, {b} in the other"
    assert a == sorted(set(a)), f"{what}: {a}, which is not in order or not once"
    assert committed <= set(a), f"{what}: confirmed, but not seen: {a}"
    assert not aborted & set(a), f"{what}: aborted, but seen: {a}"
    assert await copier.offset() == (max(a) + 1 if a else -1), what


def committed_values(records: bytes, aborted: Any) -> list[int]:
    """As a client leaves out what was aborted."""
    waiting = sorted((one.first_offset, one.producer_id) for one in aborted)
    aborting: set[int] = set()
    values, position = [], 0
    while position < len(records):
        header = read_header(records, position)
        batch = records[position : position + header.size]
        position += header.size
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.is_control:
            if read_records(batch)[0].key == b"\0\0\0\0":
                aborting.discard(header.producer_id)
        elif header.producer_id not in aborting:
            values += [int(record.value or b"") for record in read_records(batch)]
    return values
