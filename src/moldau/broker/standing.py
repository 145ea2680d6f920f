"""How this broker's partitions and its cluster stand: for /metrics and for /health.

Kafka's words and rules: under-replicated is a partition led here of which an assigned replica is not in sync (those
that a reassignment adds do not count), under min ISR one that refuses acks=all. Without a leader are partitions that
are held here; the controller counts those of the whole cluster (its OfflinePartitionsCount). All of it is found out
when it is asked for: nothing here costs the data path anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.broker.metrics import Sample
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import NO_LEADER
from moldau.replication.leader import UNKNOWN_OFFSET
from moldau.replication.partition import Partition
from moldau.replication.replication import Replication

if TYPE_CHECKING:
    from moldau.broker.node import Broker

NAMED_MAX = 20
"""Partitions that /health names; the others are counted."""


@dataclass(slots=True)
class Lag:
    """How far a follower is behind this leader, over all partitions that it follows here."""

    messages: int = 0
    messages_max: int = 0


@dataclass(slots=True)
class Standing:
    leaders: int = 0
    under_replicated: list[Partition] = field(default_factory=list)
    under_min_isr: list[Partition] = field(default_factory=list)
    leaderless: list[Partition] = field(default_factory=list)
    lags: dict[int, Lag] = field(default_factory=dict)
    """By the follower's broker id."""


def standing_of(partitions: Iterable[Partition]) -> Standing:
    standing = Standing()
    for partition in partitions:
        leader, state = partition.leader, partition.state
        if leader is None:
            if state.leader == NO_LEADER:
                standing.leaderless.append(partition)
            continue
        standing.leaders += 1
        if leader.is_alone:
            continue
        isr, adding = state.isr, state.adding
        if any(replica not in isr and replica not in adding for replica in state.replicas):
            standing.under_replicated.append(partition)
        if not leader.has_enough_in_sync:
            standing.under_min_isr.append(partition)
        _add_lags(standing.lags, partition)
    return standing


def _add_lags(lags: dict[int, Lag], partition: Partition) -> None:
    assert partition.leader is not None
    next_offset, start_offset = partition.log.next_offset, partition.log.log_start_offset
    for replica, follower in partition.leader.followers.items():
        is_known = follower.next_offset != UNKNOWN_OFFSET
        behind = max(0, next_offset - (follower.next_offset if is_known else start_offset))
        lag = lags.setdefault(replica, Lag())
        lag.messages += behind
        lag.messages_max = max(lag.messages_max, behind)


def leaderless_in(image: ClusterImage) -> int:
    return sum(state.leader == NO_LEADER for topic in image.topics.values() for state in topic.partitions)


# For /metrics


def standing_samples(broker: Broker) -> Iterator[Sample]:
    standing = standing_of(broker.partitions.values())
    image = broker.image
    gauges: list[tuple[str, str, float]] = [
        ("moldau_partitions_led", "Partitions that this broker leads.", standing.leaders),
        (
            "moldau_partitions_under_replicated",
            "Partitions led here of which a replica is not in sync.",
            len(standing.under_replicated),
        ),
        (
            "moldau_partitions_under_min_isr",
            "Partitions led here that refuse acks=all for lack of replicas in sync.",
            len(standing.under_min_isr),
        ),
        (
            "moldau_partitions_without_leader",
            "Partitions held here that nobody leads.",
            len(standing.leaderless),
        ),
        ("moldau_writes_waiting", "Writes that wait for replicas now.", broker.replication.writes_waiting),
        ("moldau_brokers", "Brokers that are alive, as this one knows.", len(image.brokers)),
        ("moldau_active_controller", "1 on the controller.", int(broker.active_controller is not None)),
    ]
    controller = broker.active_controller
    if controller is not None:
        of_cluster = controller.image
        fenced = len(of_cluster.registered) - len(of_cluster.brokers)
        gauges += [
            ("moldau_controller_fenced_brokers", "Registered brokers that are not alive.", fenced),
            (
                "moldau_controller_offline_partitions",
                "Partitions of the cluster that nobody leads.",
                leaderless_in(of_cluster),
            ),
        ]
    for name, text, value in gauges:
        yield Sample(name, "gauge", text, (("", value),))
    yield from _lag_samples(standing.lags)
    yield from _throttle_samples(broker.replication)
    yield from _counters(broker)


def _throttle_samples(replication: Replication) -> Iterator[Sample]:
    """KIP-73; Kafka's `LeaderReplication` and `FollowerReplication` byte rates."""
    rates = (
        ('side="leader"', replication.leader_throttle.rate),
        ('side="follower"', replication.follower_throttle.rate),
    )
    yield Sample(
        "moldau_replication_throttled_bytes_per_second",
        "gauge",
        "Bytes of throttled replicas, of late.",
        rates,
    )


def _lag_samples(lags: dict[int, Lag]) -> Iterator[Sample]:
    for name, text, attribute in (
        (
            "moldau_follower_lag_messages",
            "Offsets by which a follower is behind, over all partitions led here.",
            "messages",
        ),
        (
            "moldau_follower_lag_messages_max",
            "Offsets by which a follower is behind in its slowest partition.",
            "messages_max",
        ),
    ):
        values = tuple(
            (f'follower="{replica}"', getattr(lags[replica], attribute)) for replica in sorted(lags)
        )
        yield Sample(name, "gauge", text, values)


def _counters(broker: Broker) -> Iterator[Sample]:
    replicated = broker.fetchers.fetched_bytes if hasattr(broker, "fetchers") else 0
    for name, text, value in (
        ("moldau_in_sync_shrinks_total", "In-sync sets that have lost a replica.", broker.in_sync.shrinks),
        ("moldau_in_sync_growths_total", "In-sync sets that have won a replica.", broker.in_sync.growths),
        (
            "moldau_leader_elections_total",
            "Times that this broker has begun to lead a partition.",
            broker.replication.elections,
        ),
        (
            "moldau_unclean_leader_elections_total",
            "Of these, those in which committed records may have been lost.",
            broker.replication.unclean_elections,
        ),
        (
            "moldau_controller_elections_total",
            "Times that this broker has become the controller.",
            broker.office.elections,
        ),
        ("moldau_replicated_bytes_total", "Bytes fetched from leaders.", replicated),
    ):
        yield Sample(name, "counter", text, (("", value),))


# For /health


def standing_health(broker: Broker) -> dict[str, Any]:
    """`problems` are sentences for people; what they count is there for programs."""
    standing = standing_of(broker.partitions.values())
    problems = list(_problems(standing))
    if broker.is_ready and broker.node_id not in broker.image.brokers:
        problems.append("the cluster does not count this broker as alive")
    return {
        "leaders": standing.leaders,
        "controller_id": broker.image.controller_id,
        "under_replicated": len(standing.under_replicated),
        "under_min_isr": len(standing.under_min_isr),
        "without_leader": len(standing.leaderless),
        "problems": problems,
    }


def _problems(standing: Standing) -> Iterator[str]:
    if standing.leaderless:
        yield f"nobody leads {_named(standing.leaderless)}"
    if standing.under_min_isr:
        yield f"writes with acks=all are refused, below min.insync.replicas: {_named(standing.under_min_isr)}"
    if standing.under_replicated:
        yield f"replicas are not in sync: {_named(standing.under_replicated)}"


def _named(partitions: Sequence[Partition]) -> str:
    names = sorted(str(partition.topic_partition) for partition in partitions)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
