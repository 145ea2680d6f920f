"""The keys of the transaction coordinator."""

from __future__ import annotations

from moldau.config.key import Check, Key, Range, Scope, Type, Update


def _key(
    name: str, type_: Type, default: str, check: Check | None, doc: str, importance: str = "high"
) -> Key:
    return Key(name, type_, default, doc, check, Scope.BROKER, importance=importance)


TRANSACTIONS = (
    _key(
        "transaction.max.timeout.ms",
        Type.INT,
        "900000",
        Range(1),
        "The longest time that a producer may ask for a transaction to stay open.",
    ),
    _key(
        "transactional.id.expiration.ms",
        Type.INT,
        "604800000",
        Range(1),
        "How long a transactional id is kept that nobody uses.",
    ),
    _key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Type.INT,
        "10000",
        Range(1),
        "How often a coordinator looks for transactions whose time is up, and aborts them.",
        "low",
    ),
    _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Type.INT,
        "3600000",
        Range(1),
        "How often a coordinator looks for transactional ids that are no longer kept.",
        "low",
    ),
    Key(
        "transaction.partition.verification.enable",
        Type.BOOLEAN,
        "true",
        "Whether the first batch of a transaction in a partition is taken only when its coordinator knows of it.",
        None,
        Scope.BROKER,
        Update.CLUSTER_WIDE,
        importance="low",
    ),
    _key(
        "add.partitions.to.txn.retry.backoff.ms",
        Type.INT,
        "20",
        Range(1),
        "How soon a broker asks again to add a partition to a transaction, while the one before it is being ended.",
    ),
    _key(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Type.INT,
        "100",
        Range(0),
        "For how long it asks before the producer is told to try again.",
    ),
    _key(
        "transaction.state.log.num.partitions",
        Type.INT,
        "50",
        Range(1),
        "The partitions of `__transaction_state`, when it is created.",
    ),
    _key(
        "transaction.state.log.replication.factor",
        Type.SHORT,
        "3",
        Range(1),
        "The replicas of `__transaction_state`, when it is created.",
    ),
    _key(
        "transaction.state.log.min.isr",
        Type.INT,
        "2",
        Range(1),
        "The `min.insync.replicas` of `__transaction_state`, when it is created.",
    ),
    _key(
        "transaction.state.log.segment.bytes",
        Type.INT,
        "104857600",
        Range(1),
        "The `segment.bytes` of `__transaction_state`, when it is created.",
    ),
)
