"""The settings of the transaction coordinator: those of Kafka's broker keys that its state machine needs."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    abort_interval_ms: int = 10_000
    """How often transactions are looked for that are open longer than their producer said."""
    id_expiration_ms: int = 604_800_000
    expiry_interval_ms: int = 3_600_000

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            id_expiration_ms=config["transactional.id.expiration.ms"],
            expiry_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )
