"""Producers with a transactional id, as real clients behave when connections, brokers and they themselves come and go.

`TransactionalProducer` writes transactions over several partitions and ends them either way. Sometimes it dawdles
until its time is up. When it is fenced it begins anew, and so fences whoever has come in between. `copier.Copier` does
the same with what it reads. Every request that may be sent twice is, until there is an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.sim.client import PRODUCE, Client, Disconnected, Wire
from moldau.sim.model import Sent
from moldau.sim.routes import Coordinator, transaction_coordinator
from moldau.sim.workloads.log.producers import outcomes
from moldau.sim.workloads.transactions.model import Attempt, Fate, Session, Source, TransactionModel
from moldau.sim.workloads.transactions.protocol import (
    ABORTABLE,
    ADD_PARTITIONS,
    AGAIN,
    AGAIN_IN_A_CLUSTER,
    DID_NOTHING,
    END_TXN,
    FENCED,
    INIT_PRODUCER_ID,
    Abortable,
    Batch,
    Fenced,
    NothingToDo,
    Versions,
    add_partitions_errors,
    add_partitions_request,
    end_request,
    init_request,
    produce_request,
    worst_of,
)

ADD_PARTITIONS_VERSION = 3
GOES_ON_SINCE_VERSION = 3  # of InitProducerId
TIMEOUT_MS = (600, 1200, 3000)
THINK_S = (0.01, 0.15)
AWAY_S = (0.0, 2.0)
ROUNDS_MAX = 3
RECORDS_PER_BATCH_MAX = 3
FILLER_BYTES_MAX = 200


class Answered(NamedTuple):
    answer: Any
    error: ErrorCode
    is_first: bool
    """No earlier try may have been carried out."""


class TransactionalProducer:
    """One instance. `places` are the partitions that it writes to."""

    DAWDLES_MAX = 0.15
    DAWDLES_FOR = (0.3, 2.0)
    """Of its time-out."""

    def __init__(
        self,
        client: Client,
        model: TransactionModel,
        transactional_id: str,
        places: Sequence[TopicPartition],
        *,
        owns_epochs: bool,
        timeout_ms: int | None = None,
    ) -> None:
        random = client.random
        self.client = client
        self.random = random
        self.model = model
        self.versions = Versions.draw(random, owns_epochs=owns_epochs)
        self._transactional_id = transactional_id
        self._places = places
        self._timeout_ms = timeout_ms or TIMEOUT_MS[random.randrange(len(TIMEOUT_MS))]
        self._dawdles = random.between(0.0, self.DAWDLES_MAX)
        self._abort_rate = random.between(0.1, 0.4)
        self._name = f"{client.name}.{client.incarnation}"
        self._number = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._session: Session | None = None
        self._before: Session | None = None
        """The session that may go on under its own name, after an error that only ended its transaction."""

    async def run(self) -> None:
        client = self.client
        while not client.is_stopping:
            try:
                session = self._session or await self._begin_session()
                await self.transact(session)
            except Fenced:
                client.count("fenced")
                self._session = None
                if not client.is_stopping:
                    await self.sleep(*AWAY_S)
            await self.sleep(*THINK_S)

    async def commit_one(self) -> None:
        """One transaction, which must succeed: for a quiet world."""
        attempt = self.model.begin(await self._begin_session())
        try:
            await self.fill(attempt)
            await self.end(attempt, is_commit=True)
        except (Fenced, Abortable) as refusal:
            self.client.model.fail(None, f"{attempt} to be committed", repr(refusal))

    async def sleep(self, low_s: float, high_s: float) -> None:
        await self.client.runtime.tasks.sleep(self.random.between(low_s, high_s))

    # ---- a session ------------------------------------------------------------------------------------------

    async def _begin_session(self) -> Session:
        before, self._before = self._before, None
        if self.versions.init < GOES_ON_SINCE_VERSION:
            before = None
        was_fenced = before is not None and before.is_fenced
        request = init_request(self._transactional_id, self._timeout_ms, before)
        answered = await self.insist(
            INIT_PRODUCER_ID, self.versions.init, request, lambda answer: answer.error_code
        )
        answer = answered.answer
        if answered.error:
            self._unexpected("InitProducerId", answered.error, FENCED)
            raise Fenced
        if before is not None and was_fenced:
            self.model.on_fenced_request_taken(before, "InitProducerId")
        self._session = self.model.on_session(
            self._transactional_id, self._name, answer.producer_id, answer.producer_epoch
        )
        self._sequences.clear()
        self.client.count("sessions")
        await self.on_session()
        return self._session

    async def on_session(self) -> None:
        """Called when a session has begun."""

    # ---- a transaction --------------------------------------------------------------------------------------

    async def transact(self, session: Session) -> None:
        attempt = self.model.begin(session)
        try:
            await self.fill(attempt)
            if self.random.chance(self._dawdles):
                self.client.count("dawdled")
                await self.sleep(*(part * self._timeout_ms / 1000 for part in self.DAWDLES_FOR))
            is_commit = not self.random.chance(self._abort_rate)
        except NothingToDo:
            return
        except Abortable:
            self.client.count("abortable errors")
            await self.end(attempt, is_commit=False)
            self._before, self._session = session if self.random.chance(0.5) else None, None
            return
        await self.end(attempt, is_commit=is_commit)

    async def fill(self, attempt: Attempt) -> None:
        """Write what the transaction consists of."""
        chosen = [place for place in self._places if self.random.chance(0.6)] or [self._places[0]]
        await self.add(attempt.session, chosen)
        for _ in range(1 + self.random.randrange(2)):
            rounds = [
                [self.batch(attempt, place, None) for place in chosen]
                for _ in range(1 + self.random.randrange(ROUNDS_MAX))
            ]
            await self.deliver(attempt.session, rounds)
            if self.random.chance(0.3):
                await self.sleep(*THINK_S)

    async def add(self, session: Session, places: Sequence[TopicPartition]) -> None:
        if self.versions.owns_epochs:
            return
        was_fenced = session.is_fenced
        answered = await self.insist(
            ADD_PARTITIONS,
            ADD_PARTITIONS_VERSION,
            add_partitions_request(session, places),
            lambda answer: worst_of(add_partitions_errors(answer)),
        )
        self.check("AddPartitionsToTxn", answered.error)
        if was_fenced:
            self.model.on_fenced_request_taken(session, "AddPartitionsToTxn")

    async def end(self, attempt: Attempt, *, is_commit: bool) -> None:
        session = attempt.session
        was_fenced = session.is_fenced
        attempt.fate = Fate.COMMITTING if is_commit else Fate.ABORTED
        request = end_request(session, is_commit=is_commit)
        answered = await self.insist(END_TXN, self.versions.end, request, lambda answer: answer.error_code)
        if answered.error:
            self._unexpected("EndTxn", answered.error, (*FENCED, *ABORTABLE))
            if is_commit and answered.is_first:
                attempt.fate = Fate.REFUSED
            raise Fenced
        if was_fenced and answered.is_first:
            self.model.on_fenced_request_taken(session, "EndTxn")
        if is_commit:
            attempt.fate = Fate.COMMITTED
        self.client.count("committed" if is_commit else "aborted")
        if self.versions.owns_epochs:
            self.model.on_epoch(session, answered.answer.producer_id, answered.answer.producer_epoch)
            self._sequences.clear()

    # ---- batches --------------------------------------------------------------------------------------------

    def batch(self, attempt: Attempt, place: TopicPartition, sources: Sequence[Source] | None) -> Batch:
        """New records: copies of others, or some of the producer's own."""
        session = attempt.session
        origins: Sequence[Source | None] = (
            sources if sources is not None else [None] * (1 + self.random.randrange(RECORDS_PER_BATCH_MAX))
        )
        sent = [self._sent(attempt, place, index, source) for index, source in enumerate(origins)]
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(sent)
        data = build_batch(
            [one.record for one in sent],
            codec=(Codec.NONE, Codec.LZ4)[self.random.randrange(2)],
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.client.model[place].on_sent(sent)
        return Batch(place, sent, data)

    def _sent(self, attempt: Attempt, place: TopicPartition, index: int, source: Source | None) -> Sent:
        session = attempt.session
        number, self._number = self._number, self._number + 1
        name = f"{self._name}/{session.number}/{number}|".encode()
        value = name + self.random.bytes(self.random.randrange(FILLER_BYTES_MAX))
        record = Record(index, self.client.runtime.clock.wall_ms(), b"%d" % number, value)
        self.model.on_sent(attempt, place, value, source)
        return Sent(self._name, session.number, number, True, record)

    async def deliver(self, session: Session, rounds: Sequence[Sequence[Batch]]) -> None:
        """Send batches until all are acknowledged: at first all rounds at once, then one after the other."""
        left = [list(batches) for batches in rounds]
        in_flight = len(left)
        while left:
            wires = await self.client.wires([one.place for batches in left[:in_flight] for one in batches])
            sent = [
                (wire, batches, self._send(wire, session, [one for one in batches if one.place in places]))
                for batches in left[:in_flight]
                for wire, places in wires.items()
                if any(one.place in places for one in batches)
            ]
            in_flight = 1
            blocked: dict[TopicPartition, ErrorCode] = {}
            is_lost = False
            for wire, batches, future in sent:
                try:
                    self._take(wire.life, batches, await future, blocked)
                except Disconnected:
                    is_lost = True
            left = [batches for batches in left if batches]
            for place in blocked:
                self.client.mistrust(place)
            if blocked:
                self.check("Produce", worst_of([*blocked.values()]))
            if blocked or is_lost:
                await self.client.pause()

    def _send(self, wire: Wire, session: Session, batches: Sequence[Batch]) -> asyncio.Future[Any]:
        return wire.send(PRODUCE, self.versions.produce, produce_request(self.client, session, batches))

    def _take(
        self, life: int, batches: list[Batch], answer: Any, blocked: dict[TopicPartition, ErrorCode]
    ) -> None:
        """Strike out what is acknowledged. Of what is not, the first of a partition says why: the rest follows it."""
        found = outcomes(self.client, answer)
        for batch in [batch for batch in batches if batch.place in found]:
            part = found[batch.place]
            if part.error_code is ErrorCode.none:
                self._acknowledged(life, batch, part.base_offset)
                batches.remove(batch)
            else:
                blocked.setdefault(batch.place, part.error_code)

    def _acknowledged(self, life: int, batch: Batch, base_offset: int) -> None:
        self.client.count("records acknowledged", len(batch.sent))
        self.client.model[batch.place].on_acknowledged(life, base_offset, batch.sent)
        self.model.on_acknowledged(one.record.value or b"" for one in batch.sent)

    # ---- asking ---------------------------------------------------------------------------------------------

    async def insist(
        self,
        api_key: int,
        version: int,
        request: object,
        error_of: Callable[[Any], ErrorCode],
        coordinator: Coordinator | None = None,
    ) -> Answered:
        """Ask a coordinator, or one's own, until the answer is one that asking again does not change."""
        is_first = True
        about = coordinator or transaction_coordinator(self._transactional_id)
        while True:
            wire = await self.client.wire(about)
            try:
                answer = await wire.ask(api_key, version, request)
            except Disconnected:
                is_first = False
                await self.client.pause()
                continue
            error = error_of(answer)
            if error not in self._again:
                return Answered(answer, error, is_first)
            is_first = is_first and error in DID_NOTHING
            self.client.mistrust(about)
            await self.client.pause()

    def check(self, what: str, error: ErrorCode) -> None:
        """Raise what an error means to the transaction."""
        if error in FENCED:
            raise Fenced
        if error in ABORTABLE:
            raise Abortable
        if error and error not in self._again:
            self._unexpected(what, error, ())
            raise Fenced

    @property
    def _again(self) -> Sequence[ErrorCode]:
        return AGAIN_IN_A_CLUSTER if self.client.is_in_cluster else AGAIN

    def _unexpected(self, what: str, error: ErrorCode, expected: Sequence[ErrorCode]) -> None:
        if error not in expected:
            self.client.model.fail(None, f"{what} of {self._name} to be answered", error.name)
