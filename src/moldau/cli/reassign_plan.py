"""Which replicas to move so that brokers hold evenly many, and as few move as possible. Pure.

A replica that may stay where it is stays, unless its broker has more than its share. What must move goes to the broker
that has the fewest of the topic, then the fewest of all, in a rack where the partition is not yet, if there is one.
Preferred leaders are then evened out by the order of the replicas: no data move for that. The throughput and the size
of partitions are not looked at.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from moldau.base.ids import TopicPartition
from moldau.cli.partition_health import PartitionView

Replicas = tuple[int, ...]
Racks = Mapping[int, str | None]
"""Of the brokers that replicas may be on, by id."""


class NotEnoughBrokers(Exception):
    """A partition has more replicas than there are brokers for them."""

    def __init__(self, place: TopicPartition, wanted: int, brokers: Sequence[int]) -> None:
        super().__init__(place, wanted, brokers)
        self.place = place
        self.wanted = wanted
        self.brokers = brokers


def spread(
    partitions: Sequence[PartitionView], chosen: Iterable[str], racks: Racks, copies: int | None = None
) -> dict[TopicPartition, Replicas]:
    """Spread the partitions of the chosen topics over the brokers of `racks`, with so many copies each, or as many as
    they have; the partitions that change.
    """
    topics = set(chosen)
    plan = _Plan(partitions, racks)
    mine = [partition for partition in partitions if partition.topic in topics]
    for partition in mine:
        plan.fit(partition, len(partition.replicas) if copies is None else copies)
    places = [place_of(partition) for partition in mine]
    plan.even_out(places)
    plan.even_out_leaders(places)
    return plan.changes()


def drain(partitions: Sequence[PartitionView], broker: int, racks: Racks) -> dict[TopicPartition, Replicas]:
    """Move everything off a broker, to those of `racks`, and nothing else."""
    plan = _Plan(partitions, {number: rack for number, rack in racks.items() if number != broker})
    for partition in partitions:
        if broker in partition.replicas:
            plan.replace(partition, broker)
    plan.even_out_leaders(plan.moving())
    return plan.changes()


def place_of(partition: PartitionView) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


class _Plan:
    def __init__(self, partitions: Sequence[PartitionView], racks: Racks) -> None:
        self._racks = racks
        self._before = {place_of(partition): partition.replicas for partition in partitions}
        self._now = {place: list(replicas) for place, replicas in self._before.items()}
        self._total: Counter[int] = Counter()
        self._of_topic: Counter[tuple[str, int]] = Counter()
        for place, replicas in self._now.items():
            for broker in replicas:
                self._count(place, broker, 1)

    def fit(self, partition: PartitionView, copies: int) -> None:
        """So many replicas, all on brokers that may have them."""
        place = place_of(partition)
        replicas = self._now[place]
        self._check(place, copies)
        for broker in [broker for broker in replicas if broker not in self._racks]:
            self._swap(place, broker, self._best(place) if len(replicas) <= copies else None)
        while len(replicas) > copies:
            self._swap(place, self._fullest(place, replicas), None)
        while len(replicas) < copies:
            self._swap(place, None, self._best(place))

    def replace(self, partition: PartitionView, broker: int) -> None:
        place = place_of(partition)
        self._check(place, len(partition.replicas))
        self._swap(place, broker, self._best(place))

    def even_out(self, places: Sequence[TopicPartition]) -> None:
        """Move from brokers with more than their share, first of each topic, then of all."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for place in places:
            by_topic.setdefault(place.topic, []).append(place)
        for topic, own in by_topic.items():
            while self._relieve(own, {broker: self._of_topic[topic, broker] for broker in self._racks}):
                pass
        while self._relieve(
            places, {broker: self._total[broker] for broker in self._racks}, keeps_topics=True
        ):
            pass

    def even_out_leaders(self, places: Sequence[TopicPartition]) -> None:
        """Let another replica be the first, and so the preferred leader, where a broker leads at least two less."""
        leads = Counter(replicas[0] for replicas in self._now.values() if replicas)
        changed = True
        while changed:
            changed = False
            for place in places:
                replicas = self._now[place]
                least = min(replicas, key=lambda broker: leads[broker])
                if leads[replicas[0]] - leads[least] >= 2:
                    leads[replicas[0]] -= 1
                    leads[least] += 1
                    replicas.remove(least)
                    replicas.insert(0, least)
                    changed = True

    def moving(self) -> list[TopicPartition]:
        return [
            place for place, replicas in self._now.items() if sorted(replicas) != sorted(self._before[place])
        ]

    def changes(self) -> dict[TopicPartition, Replicas]:
        return {
            place: tuple(replicas)
            for place, replicas in self._now.items()
            if tuple(replicas) != self._before[place]
        }

    def _check(self, place: TopicPartition, copies: int) -> None:
        if copies > len(self._racks):
            raise NotEnoughBrokers(place, copies, sorted(self._racks))

    def _best(self, place: TopicPartition) -> int:
        """Where another replica of a partition is best placed."""
        replicas = self._now[place]
        used = Counter(self._racks[broker] for broker in replicas if broker in self._racks)
        free = [broker for broker in sorted(self._racks) if broker not in replicas]
        return min(
            free,
            key=lambda broker: (
                used[self._racks[broker]],
                self._of_topic[place.topic, broker],
                self._total[broker],
            ),
        )

    def _fullest(self, place: TopicPartition, replicas: Sequence[int]) -> int:
        """Which replica to give up: never the first, which leads."""
        return max(
            replicas[1:], key=lambda broker: (self._of_topic[place.topic, broker], self._total[broker])
        )

    def _relieve(
        self, places: Sequence[TopicPartition], load: Mapping[int, int], *, keeps_topics: bool = False
    ) -> bool:
        """Moves from the broker with the most to one that has at least two less, up to what either should have;
        whether there were any.
        """
        share = sum(load.values()) // len(load)
        for full in sorted(load, key=lambda broker: (-load[broker], broker)):
            for spare in sorted(load, key=lambda broker: (load[broker], broker)):
                if load[full] - load[spare] < 2:
                    break
                surplus = max(1, min(load[full] - share - 1, share - load[spare]))
                movable = (place for place in places if self._may_move(place, full, spare, keeps_topics))
                moved = list(itertools.islice(self._moved(movable, full, spare), surplus))
                if moved:
                    return True
        return False

    def _moved(self, places: Iterable[TopicPartition], full: int, spare: int) -> Iterator[TopicPartition]:
        for place in places:
            self._swap(place, full, spare)
            yield place

    def _may_move(self, place: TopicPartition, full: int, spare: int, keeps_topics: bool) -> bool:
        replicas = self._now[place]
        if full not in replicas or spare in replicas:
            return False
        if keeps_topics and self._of_topic[place.topic, full] <= self._of_topic[place.topic, spare]:
            return False
        others = [self._racks.get(broker) for broker in replicas if broker != full]
        return self._racks[spare] not in others or self._racks[full] in others

    def _swap(self, place: TopicPartition, old: int | None, new: int | None) -> None:
        replicas = self._now[place]
        if old is not None and new is not None:
            replicas[replicas.index(old)] = new
        elif old is not None:
            replicas.remove(old)
        elif new is not None:
            replicas.append(new)
        for broker, change in ((old, -1), (new, 1)):
            if broker is not None:
                self._count(place, broker, change)

    def _count(self, place: TopicPartition, broker: int, change: int) -> None:
        self._total[broker] += change
        self._of_topic[place.topic, broker] += change
