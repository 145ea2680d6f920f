"""The requests of transactional producers, in both versions of the protocol, and what their errors mean to a client.

Transaction version 1: the producer adds partitions and groups to its transaction itself, and keeps its epoch. Version 2
(KIP-890): the broker adds them, and every end of a transaction gives the producer another epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import Client
from moldau.sim.model import Sent
from moldau.sim.random import SimRandom
from moldau.sim.workloads.transactions.model import Session

OFFSET_FETCH, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = (
    9,
    22,
    24,
    25,
    26,
    28,
)
GROUP = "copiers"
SOURCE = "source"
NO_ID = -1
NO_EPOCH = -1

AGAIN = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.kafka_storage_error,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_id,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unstable_offset_commit,
)
"""The same request may go out again."""
AGAIN_IN_A_CLUSTER = (*AGAIN, ErrorCode.not_enough_replicas_after_append, ErrorCode.request_timed_out)
DID_NOTHING = (ErrorCode.none, ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress)
"""After other errors that let a request go out again, it may have been carried out."""
FENCED = (
    ErrorCode.producer_fenced,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.invalid_producer_id_mapping,
)
"""The session is over: another instance has come, or the transaction's time was up."""
ABORTABLE = (
    ErrorCode.transaction_abortable,
    ErrorCode.invalid_txn_state,
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.unknown_producer_id,
    ErrorCode.illegal_generation,  # the group has gone on without the one who commits its offsets
    ErrorCode.unknown_member_id,
)
"""The transaction can only be aborted."""


class Fenced(Exception):
    """The session is over."""


class Abortable(Exception):
    """The transaction is to be aborted."""


class NothingToDo(Exception):
    """The transaction has not begun, and will not."""


class Batch(NamedTuple):
    place: TopicPartition
    sent: list[Sent]
    data: bytes


class Versions(NamedTuple):
    """Which version of each request an instance sends."""

    produce: int
    end: int
    offsets: int
    init: int
    owns_epochs: bool
    """Transaction version 2."""

    @classmethod
    def draw(cls, random: SimRandom, *, owns_epochs: bool) -> Versions:
        if owns_epochs:
            return cls(12 + random.randrange(2), 5, 5, 4 + random.randrange(2), True)
        return cls(
            7 + random.randrange(5), random.randrange(5), random.randrange(5), random.randrange(6), False
        )


def init_request(transactional_id: str, timeout_ms: int, before: Session | None) -> SimpleNamespace:
    """`before` is the session that the producer goes on from (KIP-360)."""
    return SimpleNamespace(
        transactional_id=transactional_id,
        transaction_timeout=timeout_ms,
        producer_id=NO_ID if before is None else before.producer_id,
        producer_epoch=NO_EPOCH if before is None else before.epoch,
        enable2_pc=False,
        keep_prepared_txn=False,
    )


def _named(session: Session) -> dict[str, Any]:
    return {
        "transactional_id": session.transactional_id,
        "producer_id": session.producer_id,
        "producer_epoch": session.epoch,
    }


def add_partitions_request(session: Session, places: Sequence[TopicPartition]) -> SimpleNamespace:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    rows = tuple(SimpleNamespace(name=name, partitions=tuple(indexes)) for name, indexes in topics.items())
    fields = {f"v3_and_below_{name}": value for name, value in _named(session).items()}
    return SimpleNamespace(**fields, v3_and_below_topics=rows)


def add_partitions_errors(answer: Any) -> list[ErrorCode]:
    return [
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]


def add_offsets_request(session: Session) -> SimpleNamespace:
    return SimpleNamespace(**_named(session), group_id=GROUP)


class Membership(NamedTuple):
    """As whom a client commits offsets of its group (KIP-447)."""

    member_id: str = ""
    epoch: int = -1


def commit_offsets_request(
    session: Session, offsets: dict[int, int], membership: Membership
) -> SimpleNamespace:
    rows = tuple(
        SimpleNamespace(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        for partition, offset in offsets.items()
    )
    return SimpleNamespace(
        **_named(session),
        group_id=GROUP,
        generation_id=membership.epoch,
        member_id=membership.member_id,
        group_instance_id=None,
        topics=(SimpleNamespace(name=SOURCE, partitions=rows),),
    )


def commit_offsets_errors(answer: Any) -> list[ErrorCode]:
    return [row.error_code for topic in answer.topics for row in topic.partitions]


def end_request(session: Session, *, is_commit: bool) -> SimpleNamespace:
    return SimpleNamespace(**_named(session), committed=is_commit)


def produce_request(client: Client, session: Session, batches: Sequence[Batch]) -> SimpleNamespace:
    """One batch for each partition."""
    topics: dict[str, list[object]] = {}
    for place, _, data in batches:
        topics.setdefault(place.topic, []).append(SimpleNamespace(index=place.partition, records=data))
    return SimpleNamespace(
        transactional_id=session.transactional_id,
        acks=-1,
        timeout=1000,
        topic_data=tuple(client.topic(name, partition_data=tuple(parts)) for name, parts in topics.items()),
    )


def offset_fetch_request(client: Client, partitions: Sequence[int], *, stable: bool) -> SimpleNamespace:
    group = SimpleNamespace(
        group_id=GROUP,
        member_id=None,
        member_epoch=-1,
        topics=(client.topic(SOURCE, partition_indexes=tuple(partitions)),),
    )
    return SimpleNamespace(groups=(group,), require_stable=stable)


def worst_of(errors: Sequence[ErrorCode]) -> ErrorCode:
    """The error by which a client goes on, of several in one answer."""
    for kind in (FENCED, ABORTABLE, AGAIN):
        for error in errors:
            if error in kind:
                return error
    return next((error for error in errors if error), ErrorCode.none)
