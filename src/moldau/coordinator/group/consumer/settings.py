"""The settings of consumer groups: the broker's, and what a group has of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from moldau.config.broker import BrokerConfig


class Migration(Enum):
    """Which changes of its protocol a group with members may make."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (Migration.UPGRADE, Migration.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (Migration.DOWNGRADE, Migration.BIDIRECTIONAL)


class Times(NamedTuple):
    """What a group may set for itself."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    times_of: Callable[[str], Times] = lambda _group_id: Times()
    members_max: int = (1 << 31) - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    migration: Migration = Migration.BIDIRECTIONAL

    @classmethod
    def of(cls, config: BrokerConfig, times_of: Callable[[str], Times]) -> ConsumerSettings:
        return cls(
            times_of=times_of,
            members_max=config["group.consumer.max.size"],
            assignors=tuple(config["group.consumer.assignors"]),
            migration=Migration(config["group.consumer.migration.policy"].lower()),
        )


def times_of(config: BrokerConfig, own: Mapping[str, str]) -> Times:
    """As a group has set them for itself, within the broker's bounds, or else as the broker."""
    times = Times(
        config["group.consumer.session.timeout.ms"],
        config["group.consumer.heartbeat.interval.ms"],
        config["group.consumer.assignment.interval.ms"],
    )
    if not own:
        return times
    bounds = (
        (config["group.consumer.min.session.timeout.ms"], config["group.consumer.max.session.timeout.ms"]),
        (
            config["group.consumer.min.heartbeat.interval.ms"],
            config["group.consumer.max.heartbeat.interval.ms"],
        ),
        (
            config["group.consumer.min.assignment.interval.ms"],
            config["group.consumer.max.assignment.interval.ms"],
        ),
    )
    names = (
        "consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.assignment.interval.ms",
    )
    return Times(
        *(
            min(max(int(own[name]), least), most) if name in own else default
            for name, default, (least, most) in zip(names, times, bounds, strict=True)
        )
    )
