"""Throttles of moves: which replicas and brokers they concern, and what is left of them. Pure; KIP-73.

A move's leaders are all replicas that it copies from, since any of them may come to lead; its followers are the new
ones. Lists are settings of topics, rates of brokers, so that several moves share a broker's rate. Kafka's
`ReassignPartitionsCommand`, which overwrites the lists; here they are added to and taken from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import click

from moldau.base.ids import TopicPartition
from moldau.cli.output import count_of, human_bytes
from moldau.cli.partition_health import listed

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
LISTS = (LEADERS, FOLLOWERS)
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATES = (LEADER_RATE, FOLLOWER_RATE)
EVERY = "*"
NO_THROTTLE = 0
"""`--throttle none`; a rate of nothing is not taken."""

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "KI": 1024, "MI": 1024**2, "GI": 1024**3}
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(|[KMG]I?)B?(?:/S|PS)?", re.IGNORECASE)


class Rate(click.ParamType):  # type: ignore[type-arg]
    """Bytes a second: `50MB/s`, `512KiB`, `1000000`; or `none`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value == "none":
            return NO_THROTTLE
        found = _RATE.fullmatch(value.strip())
        if found is None:
            self.fail(f"'{value}' is not a rate, such as 50MB/s, 512KiB/s or none.", param, ctx)
        rate = int(float(found[1]) * _UNITS[found[2].upper()])
        if not 1 <= rate < 1 << 63:
            self.fail(f"'{value}' is not at least one byte a second.", param, ctx)
        return rate


class Copy(NamedTuple):
    """From where to where one partition is copied."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


class Throttles(NamedTuple):
    """What the throttles of some moves consist of."""

    lists: dict[str, dict[str, list[str]]]
    """By topic and setting: partition:broker."""
    brokers: tuple[int, ...]


class Standing(NamedTuple):
    """What is throttled in the cluster now."""

    lists: dict[str, dict[str, list[str]]]
    rates: dict[int, dict[str, int]]
    """Of brokers, by setting."""

    def __bool__(self) -> bool:
        return bool(self.lists or self.rates)


def planned_copies(
    before: Mapping[TopicPartition, Collection[int]], wanted: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, Copy]:
    """Of the partitions that get a replica where they had none."""
    copies = {}
    for place, replicas in wanted.items():
        sources = tuple(before.get(place, ()))
        if targets := tuple(sorted(set(replicas) - set(sources))):
            copies[place] = Copy(sources, targets)
    return copies


def throttles_of(copies: Mapping[TopicPartition, Copy]) -> Throttles:
    lists: dict[str, dict[str, list[str]]] = {}
    brokers: set[int] = set()
    for place, (sources, targets) in sorted(copies.items()):
        of_topic = lists.setdefault(place.topic, {LEADERS: [], FOLLOWERS: []})
        of_topic[LEADERS] += [f"{place.partition}:{broker}" for broker in sources]
        of_topic[FOLLOWERS] += [f"{place.partition}:{broker}" for broker in targets]
        brokers |= {*sources, *targets}
    return Throttles(lists, tuple(sorted(brokers)))


def added(standing: Standing, throttles: Throttles) -> dict[str, dict[str, str | None]]:
    """The settings of topics with these replicas throttled as well."""
    changes: dict[str, dict[str, str | None]] = {}
    for topic, lists in throttles.lists.items():
        for name, items in lists.items():
            now = standing.lists.get(topic, {}).get(name, [])
            both = list(dict.fromkeys([*now, *items]))
            if EVERY not in now and len(both) > len(now):
                changes.setdefault(topic, {})[name] = ",".join(both)
    return changes


def removed(standing: Standing, throttles: Throttles) -> dict[str, dict[str, str | None]]:
    """The settings of topics with these replicas not throttled any more; None where the setting goes."""
    changes: dict[str, dict[str, str | None]] = {}
    for topic, lists in throttles.lists.items():
        for name, items in lists.items():
            now = standing.lists.get(topic, {}).get(name, [])
            ended = set(items)
            left = [item for item in now if item not in ended]
            if len(left) < len(now):
                changes.setdefault(topic, {})[name] = ",".join(left) or None
    return changes


def all_removed(standing: Standing) -> dict[str, dict[str, str | None]]:
    return {topic: dict.fromkeys(lists) for topic, lists in standing.lists.items()}


def text_of(standing: Standing) -> str:
    """In a line: what is throttled, and to what."""
    rates = sorted({rate for of_broker in standing.rates.values() for rate in of_broker.values()})
    parts = []
    if rates:
        span = " to ".join(f"{human_bytes(rate)}/s" for rate in dict.fromkeys((rates[0], rates[-1])))
        parts.append(f"{listed(sorted(standing.rates))} at {span}")
    if standing.lists:
        parts.append(f"replicas of {topics_text(standing.lists)}")
    return ", ".join(parts)


def topics_text(topics: Iterable[str]) -> str:
    names = sorted(topics)
    return names[0] if len(names) == 1 else count_of(len(names), "topic")
