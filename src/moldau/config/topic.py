"""The settings of one topic, parsed: what the log and the partitions look at.

`topic_config` takes the broker's defaults and the topic's own settings. Topics that set nothing share one
object. `check_topic_overrides` is what CreateTopics and the alter requests ask before anything is written,
with Kafka's texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from moldau.config.key import ConfigError
from moldau.config.table import TOPIC_KEYS

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

TOPIC_CONFIGS_KEPT_MAX = 1000


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The attributes are the topic keys with `_` for `.`."""

    #: `internal.segment.bytes` where it is set, else `segment.bytes`.
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    flush_messages: int
    flush_ms: int
    retention_bytes: int
    retention_ms: int
    max_message_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    file_delete_delay_ms: int
    min_cleanable_dirty_ratio: float
    cleanup_policy: tuple[str, ...]
    unclean_leader_election_enable: bool
    min_insync_replicas: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    preallocate: bool
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]
    remote_storage_enable: bool
    local_retention_ms: int
    local_retention_bytes: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """When the active segment is closed at the latest: compaction must come to its records in time."""
        lag_ms = self.max_compaction_lag_ms
        return min(lag_ms, self.segment_ms) if self.compact and lag_ms > 0 else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


def topic_defaults(broker: BrokerConfig) -> TopicConfig:
    """What a topic with no settings of its own gets."""
    return TopicConfig(
        **{
            _attribute(key): _frozen(broker.topic_default(key))
            for key in TOPIC_KEYS
            if not TOPIC_KEYS[key].hidden
        }
    )


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The topic's settings over the broker's. ConfigError where a value is not one; unknown names are
    passed over.
    """
    if not overrides:
        return broker.topic_defaults
    changes = {
        _attribute(name): _frozen(TOPIC_KEYS[name].parse(text))
        for name, text in overrides.items()
        if name in TOPIC_KEYS
    }
    if (bytes_ := changes.pop("internal_segment_bytes", None)) is not None:
        changes["segment_bytes"] = bytes_
    return replace(broker.topic_defaults, **changes)


class TopicConfigs:
    """Settings of topics that were parsed already: thousands of partitions of a topic are opened with the same
    ones, and the list of its throttled replicas may be long."""

    def __init__(self) -> None:
        self._broker: BrokerConfig | None = None
        self._known: dict[str, tuple[Mapping[str, str], TopicConfig]] = {}

    def of(self, broker: BrokerConfig, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        if not overrides:
            return broker.topic_defaults
        if broker is not self._broker or len(self._known) > TOPIC_CONFIGS_KEPT_MAX:
            self._broker = broker
            self._known.clear()
        known = self._known.get(topic)
        if known is None or known[0] is not overrides:
            known = self._known[topic] = (overrides, topic_config(broker, overrides))
        return known[1]


def check_topic_overrides(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Raises ConfigError with Kafka's text for the first thing that is wrong, in Kafka's order."""
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise ConfigError(f"Unknown topic config name: {name}")
    for name, key in TOPIC_KEYS.items():
        if name in overrides:
            key.parse(overrides[name])
    config = topic_config(broker, overrides)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.remote_storage_enable:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
