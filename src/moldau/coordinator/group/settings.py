"""The settings of the group coordinator: those of Kafka's broker keys that its state machine needs."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.broker import BrokerConfig

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A member that joins for the first time cannot send heartbeats yet, and may be gone: Kafka waits five minutes."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    members_max: int = (1 << 31) - 1
    offset_metadata_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    expiry_interval_ms: int = 600_000

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            session_timeout_ms_min=config["group.min.session.timeout.ms"],
            session_timeout_ms_max=config["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            members_max=config["group.max.size"],
            offset_metadata_max=config["offset.metadata.max.bytes"],
            offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
            expiry_interval_ms=config["offsets.retention.check.interval.ms"],
        )
