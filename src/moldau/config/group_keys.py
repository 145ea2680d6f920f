"""The keys of groups: what a group may set for itself, and the broker keys that give its defaults and bounds.

A group setting `consumer.session.timeout.ms` starts from the broker's `group.consumer.session.timeout.ms` and
must stay between `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`. The
three kinds of groups share that pattern, so the broker keys are made from it. The keys of classic groups and of
committed offsets act, and those of consumer groups; `acts=False`: share and Streams groups are not served yet.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.config.key import (
    Check,
    ConfigError,
    Key,
    ListOf,
    OneOf,
    OneOfAnyCase,
    Range,
    Scope,
    Type,
    Update,
    invalid,
)

INT_MAX = str((1 << 31) - 1)
_BY_DURATION = "by_duration:"


class OffsetReset:
    """`earliest`, `latest`, or `by_duration:` with an ISO-8601 duration of days and smaller units."""

    allowed = "earliest, latest, by_duration:PnDTnHnMn.nS"

    def __call__(self, name: str, value: str) -> None:
        if value in ("earliest", "latest"):
            return
        if value.startswith(_BY_DURATION) and is_duration(value[len(_BY_DURATION) :]):
            return
        raise invalid(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )


def is_duration(text: str) -> bool:
    """Whether the text is an ISO-8601 duration that is not negative: P1D, PT2H30M, PT0.5S."""
    text = text.upper()
    if not text.startswith("P"):
        return False
    days, separator, time = text[1:].partition("T")
    if separator and not time:
        return False
    return bool(days or time) and _has_units(days, "D") and _has_units(time, "HMS")


def _has_units(text: str, units: str) -> bool:
    """Numbers each followed by one of the units, in their order, each at most once."""
    number = ""
    for letter in text:
        if letter in "0123456789.":
            number += letter
            continue
        position = units.find(letter)
        whole, dot, fraction = number.partition(".")
        if position < 0 or not whole.isdecimal() or (dot and (letter != "S" or not fraction.isdecimal())):
            return False
        units, number = units[position + 1 :], ""
    return not number


CONSUMER_PREFIX = "consumer."
"""The group settings that act."""


class Bounded(NamedTuple):
    """A group key whose value must lie between two broker keys."""

    name: str
    least: str | None = None
    most: str | None = None


def _group(name: str, default: str, check: Check | None, doc: str, type_: Type = Type.INT) -> Key:
    acts, synonyms = name.startswith(CONSUMER_PREFIX), (f"group.{name}",)
    return Key(name, type_, default, doc, check, Scope.GROUP, Update.CLUSTER_WIDE, synonyms, acts=acts)


_SESSION = "A member that is silent for this long is taken out of the group."
_HEARTBEAT = "How often members are told to report."
_ASSIGNMENT = "The shortest time between two computed assignments of the group."

GROUP_KEYS_IN_ORDER = (
    _group("consumer.session.timeout.ms", "45000", Range(1), _SESSION),
    _group("consumer.heartbeat.interval.ms", "5000", Range(1), _HEARTBEAT),
    _group("consumer.assignment.interval.ms", "1000", Range(0), _ASSIGNMENT),
    _group("share.session.timeout.ms", "45000", Range(1), _SESSION),
    _group("share.heartbeat.interval.ms", "5000", Range(1), _HEARTBEAT),
    _group("share.assignment.interval.ms", "1000", Range(0), _ASSIGNMENT),
    _group(
        "share.record.lock.duration.ms",
        "30000",
        Range(1000),
        "How long a delivered record stays with its consumer.",
    ),
    _group(
        "share.delivery.count.limit", "5", Range(2), "How often a record is delivered before it is given up."
    ),
    _group(
        "share.partition.max.record.locks",
        "2000",
        Range(100),
        "How many records of a partition may be out at once.",
    ),
    Key(
        "share.auto.offset.reset",
        Type.STRING,
        "latest",
        "Where a share group begins to read.",
        OffsetReset(),
        Scope.GROUP,
        Update.CLUSTER_WIDE,
        acts=False,
    ),
    Key(
        "share.isolation.level",
        Type.STRING,
        "read_uncommitted",
        "Whether a share group sees records of transactions before they are committed.",
        OneOf(("read_committed", "read_uncommitted")),
        Scope.GROUP,
        Update.CLUSTER_WIDE,
        acts=False,
    ),
    Key(
        "share.renew.acknowledge.enable",
        Type.BOOLEAN,
        "true",
        "Whether a consumer may prolong its hold on a record.",
        None,
        Scope.GROUP,
        Update.CLUSTER_WIDE,
        acts=False,
    ),
    _group("streams.session.timeout.ms", "45000", Range(1), _SESSION),
    _group("streams.heartbeat.interval.ms", "5000", Range(1), _HEARTBEAT),
    _group("streams.assignment.interval.ms", "1000", Range(0), _ASSIGNMENT),
    _group(
        "streams.num.standby.replicas",
        "0",
        Range(0),
        "How many warm copies of its state a Streams group keeps.",
    ),
    _group(
        "streams.initial.rebalance.delay.ms",
        "3000",
        Range(0),
        "How long a new Streams group waits for members before its first assignment.",
    ),
)

#: In the order in which Kafka checks them.
GROUP_BOUNDS = (
    Bounded(
        "consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    Bounded(
        "consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    Bounded(
        "consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    Bounded(
        "share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    Bounded(
        "share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"
    ),
    Bounded(
        "share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    Bounded(
        "share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    Bounded(
        "share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    Bounded(
        "share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    Bounded(
        "streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    Bounded(
        "streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    Bounded("streams.num.standby.replicas", None, "group.streams.max.standby.replicas"),
    Bounded(
        "streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
)


def _default_of_groups(key: Key) -> Key:
    (name,) = key.synonyms
    check = _TIGHTER.get(name, key.check)
    update = Update.CLUSTER_WIDE if name.endswith(".assignment.interval.ms") else Update.READ_ONLY
    doc = f"The broker's default for the group key `{key.name}`."
    return Key(name, key.type, key.default, doc, check, update=update, acts=key.acts)


# Where Kafka bounds the broker's default more tightly than what a group may set.
_TIGHTER: dict[str, Check] = {
    "group.share.delivery.count.limit": Range(2, 10),
    "group.share.partition.max.record.locks": Range(100, 10000),
    "group.share.record.lock.duration.ms": Range(1000, 3600000),
}


def _bound(name: str, default: str, check: Check) -> Key:
    kind, _, setting = name.removeprefix("group.").partition(".")
    which, _, setting = setting.partition(".")
    word = "smallest" if which == "min" else "largest"
    target = f"{kind}.{'num.' if setting == 'standby.replicas' else ''}{setting}"
    acts = target.startswith(CONSUMER_PREFIX)
    return Key(name, Type.INT, default, f"The {word} `{target}` that a group may set.", check, acts=acts)


def _setting(
    name: str,
    type_: Type,
    default: str,
    check: Check | None,
    doc: str,
    *,
    acts: bool = False,
    high: bool = False,
) -> Key:
    return Key(name, type_, default, doc, check, acts=acts, importance="high" if high else "medium")


_BOUNDS = (
    ("group.consumer.min.session.timeout.ms", "45000", Range(1)),
    ("group.consumer.max.session.timeout.ms", "60000", Range(1)),
    ("group.consumer.min.heartbeat.interval.ms", "5000", Range(1)),
    ("group.consumer.max.heartbeat.interval.ms", "15000", Range(1)),
    ("group.consumer.min.assignment.interval.ms", "0", Range(0)),
    ("group.consumer.max.assignment.interval.ms", "15000", Range(0)),
    ("group.share.min.session.timeout.ms", "45000", Range(1)),
    ("group.share.max.session.timeout.ms", "60000", Range(1)),
    ("group.share.min.heartbeat.interval.ms", "5000", Range(1)),
    ("group.share.max.heartbeat.interval.ms", "15000", Range(1)),
    ("group.share.min.assignment.interval.ms", "0", Range(0)),
    ("group.share.max.assignment.interval.ms", "15000", Range(0)),
    ("group.share.min.record.lock.duration.ms", "15000", Range(1000, 30000)),
    ("group.share.max.record.lock.duration.ms", "60000", Range(30000, 3600000)),
    ("group.share.min.delivery.count.limit", "2", Range(2, 5)),
    ("group.share.max.delivery.count.limit", "10", Range(5, 25)),
    ("group.share.min.partition.max.record.locks", "100", Range(100, 2000)),
    ("group.share.max.partition.max.record.locks", "4000", Range(2000, 10000)),
    ("group.streams.min.session.timeout.ms", "45000", Range(1)),
    ("group.streams.max.session.timeout.ms", "60000", Range(1)),
    ("group.streams.min.heartbeat.interval.ms", "5000", Range(1)),
    ("group.streams.max.heartbeat.interval.ms", "15000", Range(1)),
    ("group.streams.min.assignment.interval.ms", "0", Range(0)),
    ("group.streams.max.assignment.interval.ms", "15000", Range(0)),
    ("group.streams.max.standby.replicas", "2", Range(0)),
)

_SETTINGS = (
    _setting(
        "group.min.session.timeout.ms",
        Type.INT,
        "6000",
        None,
        "The smallest session time-out of a classic group.",
        acts=True,
    ),
    _setting(
        "group.max.session.timeout.ms",
        Type.INT,
        "1800000",
        None,
        "The largest session time-out of a classic group.",
        acts=True,
    ),
    _setting(
        "group.initial.rebalance.delay.ms",
        Type.INT,
        "3000",
        None,
        "How long a new classic group waits for members before its first assignment.",
        acts=True,
    ),
    _setting(
        "group.max.size", Type.INT, INT_MAX, Range(1), "The most members of a classic group.", acts=True
    ),
    _setting(
        "group.consumer.max.size",
        Type.INT,
        INT_MAX,
        Range(1),
        "The most members of a consumer group.",
        acts=True,
    ),
    _setting(
        "group.consumer.assignors",
        Type.LIST,
        "uniform,range",
        ListOf(("uniform", "range"), empty_allowed=False),
        "The broker's assignors, the default first. Classes of one's own cannot be named.",
        acts=True,
    ),
    _setting(
        "group.consumer.migration.policy",
        Type.STRING,
        "bidirectional",
        OneOfAnyCase(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")),
        "Which changes between the classic and the consumer protocol a group may make while it has members.",
        acts=True,
    ),
    _setting("group.share.max.size", Type.INT, "200", Range(1, 1000), "The most members of a share group."),
    _setting(
        "group.share.max.share.sessions", Type.INT, "2000", Range(1), "The most share sessions of a broker."
    ),
    _setting("group.share.assignors", Type.LIST, "simple", None, "The assignor of share groups."),
    _setting("group.streams.max.size", Type.INT, INT_MAX, Range(1), "The most members of a Streams group."),
    _setting(
        "group.coordinator.rebalance.protocols",
        Type.LIST,
        "classic,consumer,streams",
        ListOf(("consumer", "classic", "share", "streams"), empty_allowed=False),
        "The group protocols that are served: of the newer ones `consumer` only.",
        acts=True,
    ),
)


def _offsets(name: str, type_: Type, default: str, check: Check | None, doc: str) -> Key:
    return _setting(name, type_, default, check, doc, acts=True, high=True)


_OFFSETS = (
    _offsets(
        "offset.metadata.max.bytes",
        Type.INT,
        "4096",
        None,
        "The longest text that a client may commit beside an offset.",
    ),
    _offsets(
        "offsets.commit.timeout.ms",
        Type.INT,
        "5000",
        Range(1),
        "How long a coordinator waits until what it wrote is on all in-sync replicas.",
    ),
    _offsets(
        "offsets.retention.minutes",
        Type.INT,
        "10080",
        Range(1),
        "How long offsets are kept that nobody uses: since the last commit, or since the group has no members.",
    ),
    _offsets(
        "offsets.retention.check.interval.ms",
        Type.LONG,
        "600000",
        Range(1),
        "How often a coordinator looks for offsets that are no longer kept.",
    ),
    _offsets(
        "offsets.topic.num.partitions",
        Type.INT,
        "50",
        Range(1),
        "The partitions of `__consumer_offsets`, when it is created.",
    ),
    _offsets(
        "offsets.topic.replication.factor",
        Type.SHORT,
        "3",
        Range(1),
        "The replicas of `__consumer_offsets`, when it is created; there must be as many brokers. "
        "`moldau up` takes as many as it starts, three at most.",
    ),
    _offsets(
        "offsets.topic.segment.bytes",
        Type.INT,
        "104857600",
        Range(1),
        "The segment size of `__consumer_offsets`, when it is created.",
    ),
    _offsets(
        "offsets.topic.compression.codec",
        Type.INT,
        "0",
        Range(0, 4),
        "How coordinators compress: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    ),
)

GROUP_BROKER_KEYS = (
    _OFFSETS
    + _SETTINGS
    + tuple(_default_of_groups(key) for key in GROUP_KEYS_IN_ORDER if key.synonyms)
    + tuple(_bound(*row) for row in _BOUNDS)
)


class ClientMatch:
    """Patterns `attribute=regular expression` that choose the clients whose metrics are wanted."""

    allowed = "a list of attribute=pattern"

    def __call__(self, name: str, value: list[str]) -> None:
        import re

        for pattern in value:
            attribute, equals, expression = pattern.partition("=")
            try:
                re.compile(expression.strip())
            except re.error:
                equals = ""
            if not equals or attribute.strip() not in CLIENT_ATTRIBUTES:
                raise ConfigError(f"Illegal client matching pattern: {pattern}")


CLIENT_ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_KEYS_IN_ORDER = (
    Key(
        "interval.ms",
        Type.INT,
        "300000",
        "How often clients would report their metrics.",
        None,
        Scope.CLIENT_METRICS,
        acts=False,
    ),
    Key(
        "match",
        Type.LIST,
        "",
        "Which clients would report, as patterns on their attributes.",
        ClientMatch(),
        Scope.CLIENT_METRICS,
        acts=False,
    ),
    Key(
        "metrics",
        Type.LIST,
        "",
        "The prefixes of the metrics that would be reported.",
        None,
        Scope.CLIENT_METRICS,
        acts=False,
    ),
)
