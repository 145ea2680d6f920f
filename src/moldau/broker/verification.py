"""Asking a transaction's coordinator whether a batch may open the transaction in a partition (KIP-890).

Producers of transaction version 2 leave it to the broker to add partitions to their transaction; of the others, the
broker checks that they did. While the transaction before is being ended the coordinator is asked again for a moment,
which is all that it takes nearly always. Its markers may reach the partitions meanwhile and void their guards, so new
ones are taken each time.

A coordinator on another broker is asked with AddPartitionsToTxn, about as many transactions at a time as wait for it
(`outbox`), as by Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import TRANSACTION_STATE
from moldau.broker.interface import VerifyingBroker
from moldau.broker.outbox import Load, Outbox
from moldau.coordinator.reply import Reply
from moldau.coordinator.runtime import CoordinatorRuntime
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.metadata.records import NO_LEADER
from moldau.peers.peer import Peer
from moldau.peers.peers import Peers
from moldau.runtime.ports import Tasks

if TYPE_CHECKING:
    from moldau.coordinator.transaction.shard import TransactionShard

ADD_PARTITIONS_TO_TXN = 24
LANE = "verification"
REQUEST_TIMEOUT_S = 10.0
"""Longer than a coordinator waits for its own writes."""

PASSING = (
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
"""Old clients do not expect these in the answer to Produce; they try again after NOT_ENOUGH_REPLICAS."""


BEHIND = (ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted)
"""A coordinator on another broker says this of partitions that this one leads: it has not heard of a new topic yet."""

Outcomes = dict[TopicPartition, ErrorCode]


async def verify(broker: VerifyingBroker, add: Add, take_guards: Callable[[], object]) -> Outcomes:
    """An outcome for each partition. With transaction version 2 they are added."""
    if not add.transactional_id:
        return _all(add, ErrorCode.invalid_request)
    if add.version < EPOCH_PER_TRANSACTION:
        take_guards()
        return await _ask_coordinator(broker, add)
    config = broker.config
    give_up_s = broker.clock.monotonic() + config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
    while True:
        take_guards()
        outcomes = await _ask_coordinator(broker, add)
        is_busy = ErrorCode.concurrent_transactions in outcomes.values()
        if not is_busy or broker.clock.monotonic() >= give_up_s:
            return outcomes
        await broker.tasks.sleep(config["add.partitions.to.txn.retry.backoff.ms"] / 1000)


async def _ask_coordinator(broker: VerifyingBroker, add: Add) -> Outcomes:
    """Wherever it is now, by this broker's image of the cluster."""
    leader = broker.coordinators.leader_of(TRANSACTION_STATE, add.transactional_id)
    if leader == NO_LEADER:
        return _all(add, ErrorCode.coordinator_not_available)
    outcomes: Outcomes
    if leader != broker.node_id:
        outcomes = await broker.coordinators.verifications.ask(leader, add)
    elif add.version < EPOCH_PER_TRANSACTION:
        outcomes = await verify_here(broker.coordinators.transactions, add)
    else:
        outcomes = _all(add, await add_here(broker.coordinators.transactions, add))
    return outcomes


def verify_here(transactions: CoordinatorRuntime[TransactionShard], add: Add) -> Reply:
    """Whether the coordinator on this broker knows partitions as part of a transaction: an outcome for each."""
    return transactions.read(
        add.transactional_id, lambda shard, _moment: shard.verify(add), lambda error: _all(add, error)
    )


def add_here(transactions: CoordinatorRuntime[TransactionShard], add: Add) -> Reply:
    """Have the coordinator on this broker add partitions to a transaction: one error for all."""
    return transactions.write(
        add.transactional_id,
        lambda shard, moment, reply: shard.add(add, reply, moment),
        lambda error: error,
    )


def verifications(tasks: Tasks, peers: Peers) -> Outbox[Add, Outcomes]:
    """To the coordinators on other brokers."""
    return Outbox(tasks, peers, LANE, _send, _load, lambda add: _all(add, ErrorCode.network_exception))


def _all(add: Add, error: ErrorCode) -> Outcomes:
    return dict.fromkeys(add.partitions, error)


def _load(add: Add) -> Load:
    return Load(add.transactional_id, len(add.partitions))


async def _send(peer: Peer, adds: Sequence[Add]) -> list[Outcomes]:
    request = SimpleNamespace(transactions=tuple(_request(add) for add in adds))
    answer = await peer.ask(ADD_PARTITIONS_TO_TXN, request, REQUEST_TIMEOUT_S)
    if error := ErrorCode(answer.error_code):
        if error is ErrorCode.cluster_authorization_failed:
            error = ErrorCode.invalid_txn_state  # which a producer can do something about
        return [_all(add, error) for add in adds]
    found = {
        (one.transactional_id, topic.name, partition.partition_index): ErrorCode(
            partition.partition_error_code
        )
        for one in answer.results_by_transaction
        for topic in one.topic_results
        for partition in topic.results_by_partition
    }
    return [
        {place: _outcome(found.get((add.transactional_id, *place))) for place in add.partitions}
        for add in adds
    ]


def _outcome(error: ErrorCode | None) -> ErrorCode:
    if error is None:
        return ErrorCode.network_exception
    return ErrorCode.coordinator_not_available if error in BEHIND else error


def _request(add: Add) -> SimpleNamespace:
    topics: dict[str, list[int]] = {}
    for place in add.partitions:
        topics.setdefault(place.topic, []).append(place.partition)
    return SimpleNamespace(
        transactional_id=add.transactional_id,
        producer_id=add.producer_id,
        producer_epoch=add.producer_epoch,
        verify_only=add.version < EPOCH_PER_TRANSACTION,
        topics=tuple(
            SimpleNamespace(name=name, partitions=tuple(indexes)) for name, indexes in topics.items()
        ),
    )


def as_produce_error(
    error: ErrorCode, *, own_epochs: bool, knows_abortable: bool
) -> tuple[ErrorCode, str | None]:
    """What the outcome is in the answer to a Produce request, with Kafka's text."""
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch, None
    if error is ErrorCode.transaction_abortable and not knows_abortable:
        error = ErrorCode.invalid_txn_state
    if error is ErrorCode.invalid_txn_state:
        return error, "Partition was not added to the transaction"
    if error in PASSING or (error is ErrorCode.concurrent_transactions and not own_epochs):
        text = "Unable to verify the partition has been added to the transaction. Underlying error: "
        return ErrorCode.not_enough_replicas, text + error.name.upper()
    return error, None
