"""Consume, transform, produce: a copier reads committed records of one source partition, writes a copy of each, and
commits how far it has read in the same transaction. So every source record has exactly one copy that is committed.

`Copier`: the instances of one source partition share a transactional id, so that a new one fences the one before; it
begins where the group's offset is stable. `GroupCopier`: each instance has its own id, and the group says who reads
what (KIP-447); who has lost a partition can commit nothing for it. The copies of one partition are dealt out to
several: all or nothing of them counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import Client, Disconnected
from moldau.sim.routes import group_coordinator
from moldau.sim.workloads.consumer_groups.members import ConsumerMember, Interest
from moldau.sim.workloads.consumer_groups.model import ConsumerGroupModel
from moldau.sim.workloads.transactions.model import (
    NOTHING_COMMITTED,
    Attempt,
    Source,
    TransactionModel,
)
from moldau.sim.workloads.transactions.producers import TIMEOUT_MS, TransactionalProducer
from moldau.sim.workloads.transactions.protocol import (
    ADD_OFFSETS,
    GROUP,
    OFFSET_FETCH,
    SOURCE,
    TXN_OFFSET_COMMIT,
    Membership,
    NothingToDo,
    add_offsets_request,
    commit_offsets_errors,
    commit_offsets_request,
    offset_fetch_request,
    worst_of,
)
from moldau.sim.workloads.transactions.readers import fetch_committed

ADD_OFFSETS_VERSION = 3
OFFSET_FETCH_VERSION = 8
MEMBERS_SINCE_VERSION = 3  # of TxnOffsetCommit
RECORDS_MAX = 12


class Copier(TransactionalProducer):
    def __init__(
        self,
        client: Client,
        model: TransactionModel,
        transactional_id: str,
        partition: int,
        places: Sequence[TopicPartition],
        *,
        owns_epochs: bool,
        timeout_ms: int | None = None,
    ) -> None:
        super().__init__(
            client, model, transactional_id, places, owns_epochs=owns_epochs, timeout_ms=timeout_ms
        )
        self.partition = partition
        self.positions: dict[int, int] = {}
        """Where to read on, where that is known."""

    async def on_session(self) -> None:
        self.positions.clear()

    async def fill(self, attempt: Attempt) -> None:
        position = self.positions.pop(self.partition, None)  # until all goes well
        if position is None:
            position = await read_group_offset(self.client, self.model, self.partition)
        sources, position = await self._read(position)
        if sources:
            await self._copy(attempt, sources)
        await self._commit_offset(attempt, position)

    async def end(self, attempt: Attempt, *, is_commit: bool) -> None:
        await super().end(attempt, is_commit=is_commit)
        if is_commit:
            self.positions.update(attempt.offsets)

    def membership(self) -> Membership:
        """As whom it commits offsets."""
        return Membership()

    def has_lost_its_partition(self) -> bool:
        """Whether another one has it for sure."""
        return False

    # ---- reading --------------------------------------------------------------------------------------------

    def waits_for_records(self) -> bool:
        return not self.client.is_stopping

    async def _read(self, position: int) -> tuple[list[Source], int]:
        """Some committed records from a position on, and where to read on."""
        place = TopicPartition(SOURCE, self.partition)
        while True:
            wire = await self.client.wire(place)
            try:
                found = await fetch_committed(self.client, self.model, wire, place, position)
            except Disconnected:
                found = None
            if found is not None and (found.values or not self.waits_for_records()):
                break
            if found is None:
                self.client.mistrust(place)
            await self.client.pause()
        taken = found.values[:RECORDS_MAX]
        next_offset = found.next_offset if len(taken) == len(found.values) else taken[-1][0] + 1
        return [Source(self.partition, offset) for offset, _ in taken], next_offset

    # ---- writing --------------------------------------------------------------------------------------------

    async def _copy(self, attempt: Attempt, sources: Sequence[Source]) -> None:
        dealt: dict[TopicPartition, list[Source]] = {}
        for source in sources:
            dealt.setdefault(self._places[source.offset % len(self._places)], []).append(source)
        await self.add(attempt.session, list(dealt))
        await self.deliver(
            attempt.session, [[self.batch(attempt, place, part) for place, part in dealt.items()]]
        )
        self.client.count("records copied", len(sources))

    async def _commit_offset(self, attempt: Attempt, position: int) -> None:
        session = attempt.session
        if not self.versions.owns_epochs:
            answered = await self.insist(
                ADD_OFFSETS,
                ADD_OFFSETS_VERSION,
                add_offsets_request(session),
                lambda answer: answer.error_code,
            )
            self.check("AddOffsetsToTxn", answered.error)
        was_fenced, was_lost = session.is_fenced, self.has_lost_its_partition()
        attempt.offsets[self.partition] = position
        answered = await self.insist(
            TXN_OFFSET_COMMIT,
            self.versions.offsets,
            commit_offsets_request(session, {self.partition: position}, self.membership()),
            lambda answer: worst_of(commit_offsets_errors(answer)),
            group_coordinator(GROUP),
        )
        self.check("TxnOffsetCommit", answered.error)
        if was_fenced:
            self.model.on_fenced_request_taken(session, "TxnOffsetCommit")
        if was_lost:
            self.client.model.fail(
                TopicPartition(SOURCE, self.partition), f"no offset from {session}, which has lost it", "one"
            )


class GroupCopier(Copier):
    """`group` knows who may have what; `sources` is the number of source partitions.

    It dawdles often, so that its partitions go to others while its transaction is open.
    """

    DAWDLES_MAX = 0.5
    DAWDLES_FOR = (0.4, 1.1)

    def __init__(
        self,
        client: Client,
        model: TransactionModel,
        group: ConsumerGroupModel,
        sources: int,
        places: Sequence[TopicPartition],
        *,
        owns_epochs: bool,
    ) -> None:
        super().__init__(
            client, model, client.name, 0, places, owns_epochs=owns_epochs, timeout_ms=TIMEOUT_MS[-1]
        )
        if self.versions.offsets < MEMBERS_SINCE_VERSION:
            self.versions = self.versions._replace(offsets=MEMBERS_SINCE_VERSION)
        self._group = group
        self._member = ConsumerMember(
            client, group, Interest({SOURCE: sources}, client.random), group_id=GROUP
        )
        self._since = 0

    async def fill(self, attempt: Attempt) -> None:
        before = dict(self._member.belief.owned)
        await self._member.report()
        owned = self._member.belief.owned
        for place in before:
            if owned.get(place) != before[place]:
                self.positions.pop(place.partition, None)
        if not owned:
            raise NothingToDo
        places = sorted(owned)
        place = places[self.random.randrange(len(places))]
        self.partition, self._since = place.partition, owned[place]
        await super().fill(attempt)

    def waits_for_records(self) -> bool:
        return False  # a heartbeat is due

    def membership(self) -> Membership:
        return Membership(self._member.member_id, self._member.epoch)

    def has_lost_its_partition(self) -> bool:
        return self._group.is_lost(self._member.belief, TopicPartition(SOURCE, self.partition), self._since)


async def read_group_offset(client: Client, model: TransactionModel, partition: int) -> int:
    """Where the group is in a source partition, when no transaction is about to say otherwise."""
    request = offset_fetch_request(client, [partition], stable=True)
    while True:
        at_least = model.committed_offset(partition) if client.model.is_linear else NOTHING_COMMITTED
        coordinator = group_coordinator(GROUP)
        (group,) = (await client.ask(OFFSET_FETCH, OFFSET_FETCH_VERSION, request, coordinator)).groups
        if not group.error_code:
            row = group.topics[0].partitions[0]
            if not row.error_code:
                model.on_offset_read(partition, row.committed_offset, at_least)
                offset: int = row.committed_offset
                return max(0, offset)
            if row.error_code is ErrorCode.unstable_offset_commit:
                client.count("unstable offsets")
        else:
            client.mistrust(coordinator)
        await client.pause()
