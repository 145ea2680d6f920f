"""What a broker's logs know of their broker: who it is, what they ask it and tell it, and its settings for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig
    from moldau.config.topic import TopicConfig
    from moldau.log.log import Log

CHECKPOINT_INTERVAL_S = 60.0
"""Kafka's `log.flush.offset.checkpoint.interval.ms`."""
RETENTION_CHECK_INTERVAL_S = 300.0
"""Kafka's `log.retention.check.interval.ms`."""
PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's `producer.id.expiration.ms`."""


class Owner(NamedTuple):
    """Whose data folders they are."""

    cluster_id: str
    node_id: int
    process_id: int
    known_folders: Mapping[str, uuid.UUID] = MappingProxyType({})
    """The directory ids, by path, that this broker had before: a folder that is gone is not begun anew."""


@dataclass(frozen=True, slots=True)
class LogHost:
    """The broker, as its logs see it."""

    config_of: Callable[[str], TopicConfig]
    """By the topic's name."""
    high_watermark_of: Callable[[Log], int] = lambda log: log.next_offset
    topic_id_of: Callable[[str], uuid.UUID | None] = lambda topic: None
    on_failure: Callable[[Log, OSError], object] = lambda log, error: None
    """A log is offline from now on."""
    on_all_failed: Callable[[OSError], object] = lambda error: None
    """No folder is left."""
    on_made: Callable[[Log], object] = lambda log: None
    """A log that there was no room for when it was created is there now."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The broker's settings, asked for anew each time that they count."""

    recovery_threads: int = 2
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S
    retention_interval_s: float = RETENTION_CHECK_INTERVAL_S
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    move_bytes_per_s: int | None = None
    moves_at_once: int | None = None
    """As many as there are folders, where it is not set."""

    @classmethod
    def of(cls, config: BrokerConfig) -> LogSettings:
        return cls(
            recovery_threads=config["num.recovery.threads.per.data.dir"],
            checkpoint_interval_s=config["log.flush.offset.checkpoint.interval.ms"] / 1000,
            retention_interval_s=config["log.retention.check.interval.ms"] / 1000,
            producer_expiration_ms=config["producer.id.expiration.ms"],
            move_bytes_per_s=config["replica.alter.log.dirs.io.max.bytes.per.second"],
            moves_at_once=config["num.replica.alter.log.dirs.threads"],
        )
