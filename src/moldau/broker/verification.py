"""Asking a transaction's coordinator whether a batch may open the transaction in a partition (KIP-890).

Producers of transaction version 2 leave it to the broker to add partitions to their transaction; of the others, the
broker checks that they did. While the transaction before is being ended the coordinator is asked again for a moment,
which is all that it takes nearly always. Its markers may reach the partitions meanwhile and void their guards, so new
ones are taken each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION

PASSING = (
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
"""Old clients do not expect these in the answer to Produce; they try again after NOT_ENOUGH_REPLICAS."""


async def verify(broker: Any, add: Add, take_guards: Callable[[], object]) -> dict[TopicPartition, ErrorCode]:
    """An outcome for each partition. With transaction version 2 they are added."""
    if not add.transactional_id:
        return dict.fromkeys(add.partitions, ErrorCode.invalid_request)
    if add.version < EPOCH_PER_TRANSACTION:
        take_guards()
        outcomes: dict[TopicPartition, ErrorCode] = await broker.coordinators.transactions.read(
            add.transactional_id,
            lambda shard, _moment: shard.verify(add),
            lambda error: dict.fromkeys(add.partitions, error),
        )
        return outcomes
    config = broker.config
    give_up_s = broker.clock.monotonic() + config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
    while True:
        take_guards()
        error = await broker.coordinators.transactions.write(
            add.transactional_id,
            lambda shard, moment, reply: shard.add(add, reply, moment),
            lambda error: error,
        )
        if error is not ErrorCode.concurrent_transactions or broker.clock.monotonic() >= give_up_s:
            return dict.fromkeys(add.partitions, error)
        await broker.tasks.sleep(config["add.partitions.to.txn.retry.backoff.ms"] / 1000)


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
