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

from moldau.broker.metrics.text import Sample, Samples, labelled, plain
from moldau.broker.shortage import shortages
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import NO_LEADER
from moldau.replication.leader import UNKNOWN_OFFSET
from moldau.replication.partition import Partition
from moldau.replication.replication import Replication
from moldau.runtime.line import Slices, whole

if TYPE_CHECKING:
    from moldau.broker.node import Broker

NAMED_MAX = 20
"""Partitions that /health names; the others are counted."""
PARTITIONS_PER_PAUSE = 200


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
    return whole(judging(partitions))


def judging(partitions: Iterable[Partition]) -> Slices[Standing]:
    standing = Standing()
    for number, partition in enumerate(partitions, 1):
        if number % PARTITIONS_PER_PAUSE == 0:
            yield
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


def leaderless_in(image: ClusterImage) -> Slices[int]:
    count = 0
    for topic in list(image.topics.values()):
        count += sum(state.leader == NO_LEADER for state in topic.partitions)
        yield
    return count


# For /metrics


def standing_samples(broker: Broker) -> Samples:
    standing = yield from judging(list(broker.partitions.values()))
    yield plain("moldau_partitions_led", standing.leaders)
    yield plain("moldau_partitions_under_replicated", len(standing.under_replicated))
    yield plain("moldau_partitions_under_min_isr", len(standing.under_min_isr))
    yield plain("moldau_partitions_without_leader", len(standing.leaderless))
    yield plain("moldau_writes_waiting", broker.replication.writes_waiting)
    yield plain("moldau_brokers", len(broker.image.brokers))
    yield plain("moldau_active_controller", int(broker.active_controller is not None))
    controller = broker.active_controller
    if controller is not None:
        of_cluster = controller.image
        fenced = len(of_cluster.registered) - len(of_cluster.brokers)
        yield plain("moldau_controller_fenced_brokers", fenced)
        yield plain("moldau_controller_offline_partitions", (yield from leaderless_in(of_cluster)))
    yield from _lag_samples(standing.lags)
    yield from _throttle_samples(broker.replication)
    yield plain("moldau_in_sync_shrinks_total", broker.in_sync.shrinks)
    yield plain("moldau_in_sync_growths_total", broker.in_sync.growths)
    yield plain("moldau_leader_elections_total", broker.replication.elections)
    yield plain("moldau_unclean_leader_elections_total", broker.replication.unclean_elections)
    yield plain("moldau_controller_elections_total", broker.office.elections)
    replicated = broker.fetchers.fetched_bytes if hasattr(broker, "fetchers") else 0
    yield plain("moldau_replicated_bytes_total", replicated)


def _throttle_samples(replication: Replication) -> Samples:
    """KIP-73; Kafka's `LeaderReplication` and `FollowerReplication` byte rates."""
    rates = (
        (labelled(side="leader"), replication.leader_throttle.rate),
        (labelled(side="follower"), replication.follower_throttle.rate),
    )
    yield Sample("moldau_replication_throttled_bytes_per_second", rates)


def _lag_samples(lags: dict[int, Lag]) -> Samples:
    told = [(labelled(follower=str(replica)), lags[replica]) for replica in sorted(lags)]
    yield Sample("moldau_follower_lag_messages", tuple((labels, lag.messages) for labels, lag in told))
    yield Sample(
        "moldau_follower_lag_messages_max", tuple((labels, lag.messages_max) for labels, lag in told)
    )


# For /health


def standing_health(broker: Broker) -> dict[str, Any]:
    """`problems` are sentences for people; what they count is there for programs."""
    standing = standing_of(broker.partitions.values())
    problems = list(_problems(standing))
    if broker.is_ready and broker.node_id not in broker.image.brokers:
        problems.append("the cluster does not count this broker as alive")
    if broker.is_ready:
        problems += [one.text for one in shortages(broker.config, broker.image)]
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
