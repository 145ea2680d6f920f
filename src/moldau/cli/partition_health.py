"""Partitions as people look at them: led or not, whole or not, writable or not. One rule for every command.

Offline: no leader, nothing can be read or written. Under min ISR: fewer replicas in sync than `min.insync.replicas`, so
that writes with acks=all are refused. Under-replicated: a replica is not in sync; all works, with less in reserve.
These are the words of Kafka's metrics and of `kafka-topics.sh --under-replicated-partitions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from moldau.cli.findings import Finding, ok, problem, remark, warning
from moldau.cli.output import count_of

NAMED_MAX = 5


class PartitionView(NamedTuple):
    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int = 1

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_under_min_isr(self) -> bool:
        """`min.insync.replicas` can ask for no more than there are replicas (Kafka's Partition.effectiveMinIsr)."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        return not set(self.replicas) <= set(self.isr)

    @property
    def is_led_by_another(self) -> bool:
        """Than by its preferred leader, which could lead it."""
        preferred = self.replicas[0] if self.replicas else None
        return self.leader is not None and self.leader != preferred and preferred in self.isr

    @property
    def state(self) -> str:
        """The worst that can be said of it."""
        if self.is_offline:
            return "offline"
        if self.is_under_min_isr:
            return "under min ISR"
        return "under-replicated" if self.is_under_replicated else "ok"


def of_metadata(topic: str, partition: Any, min_isr: int) -> PartitionView:
    """A partition of confluent-kafka's metadata."""
    leader = partition.leader if partition.leader >= 0 else None
    return PartitionView(
        topic, partition.id, leader, tuple(partition.replicas), tuple(partition.isrs), min_isr
    )


def findings(partitions: Sequence[PartitionView]) -> Iterator[Finding]:
    """Each kind of trouble once, the worst first; a partition is named under the worst that it has."""
    groups: dict[str, list[PartitionView]] = {}
    for partition in partitions:
        groups.setdefault(partition.state, []).append(partition)
    if offline := groups.get("offline"):
        holders = sorted({replica for partition in offline for replica in partition.replicas})
        yield problem(
            "offline",
            f"{some(offline)} without a leader: nothing can be read or written",
            f"Start the brokers that hold their in-sync replicas (of {listed(holders)}).",
        )
    if under := groups.get("under min ISR"):
        missing = sorted({r for partition in under for r in partition.replicas if r not in partition.isr})
        yield problem(
            "min ISR",
            f"{some(under)} under min ISR: writes with acks=all are refused",
            f"Not in sync: {listed(missing)}. Start what is down, or look at its log.",
        )
    if lagging := groups.get("under-replicated"):
        missing = sorted({r for partition in lagging for r in partition.replicas if r not in partition.isr})
        yield warning(
            "replicas",
            f"{some(lagging)} under-replicated: not in sync on {listed(missing)}",
            "Nothing to do if a broker has just come back or data is being moved; else look at its log.",
        )
    if partitions and set(groups) == {"ok"}:
        yield ok("partitions", "all led, all replicas in sync")
    elsewhere = [partition for partition in partitions if partition.is_led_by_another]
    if elsewhere:
        yield remark(
            "leaders",
            f"{some(elsewhere)} led by another broker than the preferred one",
            "`moldau cluster elect` gives the lead back; brokers do so by themselves every few minutes.",
        )


def some(partitions: Sequence[PartitionView]) -> str:
    shown = ", ".join(partition.name for partition in partitions[:NAMED_MAX])
    return (
        f"{count_of(len(partitions), 'partition')} ({shown}{', ...' if len(partitions) > NAMED_MAX else ''})"
    )


def listed(brokers: Sequence[int]) -> str:
    return f"broker{'' if len(brokers) == 1 else 's'} {', '.join(map(str, brokers))}"
