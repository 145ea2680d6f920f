"""Bugs on purpose in replication, controller and coordinators: each must be found by the workload of clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moldau.broker.fetching import Fetch
from moldau.controller import layout, partition_change
from moldau.controller.persistence import Fenced, PersistentImage
from moldau.coordinator.shard import NOTHING, Decision
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.log.following import Following
from moldau.metadata.records import NO_LEADER, PartitionState
from moldau.replication.fetcher import Fetcher
from moldau.replication.follower import Next, Step
from moldau.replication.leader import PartitionLeader
from moldau.replication.partition import Partition
from moldau.sim.planting import Plants, patched
from moldau.sim.workloads.log.plants import LOG_PLANTS

plant = CLUSTER_PLANTS = Plants()
PRODUCER_ID = 9  # its place in a batch's header
NOBODY = -1


# Leaders


@plant("acknowledged-before-replicated", promise=1)
def acknowledged_before_replicated() -> Iterator[None]:
    """What the leader has is committed, whoever else has it."""
    with patched(PartitionLeader, "_counting_offsets", lambda *_: []):
        yield


@plant("proposed-member-counted-too-late", promise=1)
def proposed_member_counted_too_late() -> Iterator[None]:
    """Who is about to enter the in-sync set counts only when the leader hears of it."""

    def committed_only(self: PartitionLeader, _now_s: float) -> list[int]:
        return [
            follower.next_offset for replica, follower in self.followers.items() if replica in self.state.isr
        ]

    with patched(PartitionLeader, "_counting_offsets", committed_only):
        yield


@plant("a-fenced-leader-still-writes", promise=6)
def a_fenced_leader_still_writes() -> Iterator[None]:
    """A leader that another one has followed goes on to lead."""
    change = Partition.change

    def stubborn(self: Partition, state: PartitionState) -> None:
        if self.leader is None or state.leader in (NO_LEADER, self.leader._node_id):
            change(self, state)

    with patched(Partition, "change", stubborn):
        yield


# Followers


@plant("truncated-to-the-high-watermark", promise=1)
def truncated_to_the_high_watermark() -> Iterator[None]:
    """Who begins to follow throws away what it does not know to be committed, as before KIP-101."""
    follow = Fetcher.follow

    def hasty(self: Fetcher, partition: Partition) -> None:
        follow(self, partition)
        followed = self._followed[partition.topic_id_bytes, partition.topic_partition.partition]
        if followed.busy is None:
            offset = min(partition.high_watermark, partition.log.next_offset)
            self._change_log(followed, Step(Next.TRUNCATE, offset))

    with patched(Fetcher, "follow", hasty):
        yield


@plant("sequences-forgotten-in-a-fail-over", promise=3)
def sequences_forgotten_in_a_fail_over() -> Iterator[None]:
    """Followers do not look at the producers of what they append."""
    count_in = Following._count_in

    def forgetful(self: Following, buffer: memoryview, batch: Any, segment: Any) -> bool:
        header = list(batch.header)
        header[PRODUCER_ID] = NOBODY
        return count_in(self, buffer, batch._replace(header=tuple(header)), segment)

    with patched(Following, "_count_in", forgetful):
        yield


@plant("a-follower-serves-past-its-high-watermark", promise=2)
def a_follower_serves_past_its_high_watermark() -> Iterator[None]:
    """Readers get from a follower all that it has."""
    limit_of, answer = Fetch._limit_of, Fetch._answer

    def unlimited(self: Fetch, partition: Partition) -> int:
        return partition.log.next_offset if partition.leader is None else limit_of(self, partition)

    def as_if_committed(self: Fetch, partition: Partition, *args: Any, **kwargs: Any) -> Any:
        row = list(answer(self, partition, *args, **kwargs))
        if partition.leader is None:
            row[2] = row[3] = partition.log.next_offset
        return tuple(row)

    with patched(Fetch, "_limit_of", unlimited), patched(Fetch, "_answer", as_if_committed):
        yield


@plant("a-replica-keeps-its-torn-tail", promise=2)
def a_replica_keeps_its_torn_tail() -> Iterator[None]:
    """Recovery finds where a torn tail begins, and leaves it in the log."""
    with LOG_PLANTS.planted("torn-tail-kept"):
        yield


# The controller


@plant("elected-out-of-the-set", promise=1)
def elected_out_of_the_set() -> Iterator[None]:
    """Whoever is there may lead, those first that are not in sync."""

    def anyone(
        _state: PartitionState, isr: Sequence[int], _elr: Any, replicas: Sequence[int], may_lead: Any, *_: Any
    ) -> tuple[int, bool]:
        order = sorted(replicas, key=lambda replica: replica in isr)
        return next((replica for replica in order if may_lead(replica)), NO_LEADER), False

    with patched(partition_change, "_elect", anyone):
        yield


@plant("a-fenced-controller-still-writes", promise=6)
def a_fenced_controller_still_writes() -> Iterator[None]:
    """A controller whose write meets another one's tries again with that one's version."""
    multi = PersistentImage._multi

    async def stubborn(self: PersistentImage, operations: Any, state: Any) -> None:
        try:
            await multi(self, operations, state)
        except Fenced:
            entry = await self._store.get(layout.STATE)
            if entry is None:
                raise
            self._version = entry.version
            await multi(self, operations, state)

    with patched(PersistentImage, "_multi", stubborn):
        yield


@plant("a-conflict-taken-for-success", promise=6)
def a_conflict_taken_for_success() -> Iterator[None]:
    """A controller that comes too late believes that its write was done."""
    multi = PersistentImage._multi

    async def hopeful(self: PersistentImage, operations: Any, state: Any) -> None:
        try:
            await multi(self, operations, state)
        except Fenced:
            self._version += 1
            self._state = state

    with patched(PersistentImage, "_multi", hopeful):
        yield


# Coordinators


@plant("markers-lost-in-a-fail-over", promise=4)
def markers_lost_in_a_fail_over() -> Iterator[None]:
    """A coordinator that takes over does not carry out the ends that were decided before."""
    on_loaded = TransactionShard.on_loaded

    def careless(self: TransactionShard, moment: Any) -> Decision:
        on_loaded(self, moment)
        return NOTHING

    with patched(TransactionShard, "on_loaded", careless):
        yield
