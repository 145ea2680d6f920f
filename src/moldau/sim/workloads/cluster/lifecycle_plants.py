"""Bugs on purpose in what a cluster does beside replication: deleted records, compaction, restarts, elections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.handlers import delete_records
from moldau.broker.registration import Registrar
from moldau.controller import brokers
from moldau.controller.partition_change import Election
from moldau.controller.rules import Rules
from moldau.coordinator.driver import Driver
from moldau.coordinator.group.offsets import Offsets
from moldau.log.cleaner.keys import Survivors
from moldau.sim.planting import patched
from moldau.sim.workloads.cluster.plants import CLUSTER_PLANTS as CLUSTER_PLANTS

plant = CLUSTER_PLANTS


# Restarts and elections


@plant("a-power-cut-is-not-told", promise=1)
def a_power_cut_is_not_told() -> Iterator[None]:
    """A broker that comes back from a power cut counts as one whose process alone has ended (KIP-966)."""
    come_back = brokers._come_back

    def as_if_it_ran_on(image: Any, rules: Any, wanted: Any, before: Any) -> Any:
        if before is not None:
            wanted = wanted._replace(boot_id=before.boot_id)
        return come_back(image, rules, wanted, before)

    with patched(brokers, "_come_back", as_if_it_ran_on):
        yield


@plant("a-lost-disk-is-not-told", promise=1)
def a_lost_disk_is_not_told() -> Iterator[None]:
    """A broker whose logs are gone with their disk does not say so when it comes back."""
    register = Registrar._register

    async def silent(self: Registrar, previous_epoch: int, _lost: Sequence[TopicPartition]) -> None:
        await register(self, previous_epoch, ())

    with patched(Registrar, "_register", silent):
        yield


@plant("unclean-where-it-is-not-allowed", promise=1)
def unclean_where_it_is_not_allowed() -> Iterator[None]:
    """Every topic elects whoever is there when nobody in sync or eligible is."""
    with patched(Rules, "election", lambda *_: Election.UNCLEAN):
        yield


# Records that go


@plant("records-deleted-before-followers-know", promise=2)
def records_deleted_before_followers_know() -> Iterator[None]:
    """DeleteRecords is answered when the leader has carried it out."""

    async def at_once(
        _broker: Any, _partition: Any, offset: int, _deadline_s: float
    ) -> tuple[int, ErrorCode]:
        return offset, ErrorCode.none

    with patched(delete_records, "_until_all_begin_there", at_once):
        yield


@plant("the-last-record-of-a-key-compacted-away", promise=1)
def the_last_record_of_a_key_compacted_away() -> Iterator[None]:
    """Compaction takes the first of those records of a batch that must stay."""
    of_batch = Survivors.of_batch

    def greedy(self: Survivors, number: int, count: int) -> tuple[int, int]:
        kept, null = of_batch(self, number, count)
        return kept & (kept - 1), null & kept & (kept - 1)

    with patched(Survivors, "of_batch", greedy):
        yield


@plant("offsets-of-open-transactions-lost-in-a-fail-over", promise=4)
def offsets_of_open_transactions_lost_in_a_fail_over() -> Iterator[None]:
    """A group's coordinator that takes over does not load offsets that wait for the end of a transaction."""
    replay, commit = Driver._replay_entry, Offsets.commit_in_transaction
    is_replaying = [False]

    def replaying(self: Any, entry: Any) -> None:
        is_replaying[0] = True
        try:
            replay(self, entry)
        finally:
            is_replaying[0] = False

    def forgetful(self: Offsets, record: Any, producer: Any) -> None:
        if not is_replaying[0]:
            commit(self, record, producer)

    with (
        patched(Driver, "_replay_entry", replaying),
        patched(Offsets, "commit_in_transaction", forgetful),
    ):
        yield
