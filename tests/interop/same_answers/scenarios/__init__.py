"""The steps, by subject. Importing this package registers all of them."""

from __future__ import annotations

from . import (
    acls,
    both_protocols,
    cluster,
    configs,
    consumer_groups,
    consumers_at_random,
    delete_records,
    fetch,
    group_offsets,
    groups,
    malformed,
    offsets,
    produce,
    producers,
    quotas,
    replicas,
    topics,
    transaction_states,
    transactional_offsets,
    transactions,
)

__all__ = [
    "SETTINGS",
    "acls",
    "both_protocols",
    "cluster",
    "configs",
    "consumer_groups",
    "consumers_at_random",
    "delete_records",
    "fetch",
    "group_offsets",
    "groups",
    "malformed",
    "offsets",
    "produce",
    "producers",
    "quotas",
    "replicas",
    "topics",
    "topics_at_random",
    "transaction_states",
    "transactional_offsets",
    "transactions",
]

SETTINGS = {
    "num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}
"""What both brokers are started with."""
