"""The coordinator's own assignors, as Kafka's: `uniform` and `range`.

They give the same results, but where members of `uniform` read different topics: who gets an odd partition then may be
another one than in Kafka.

Both take the members with the topics that each reads and what each had as its target, and give each its partitions.
`range` lays the partitions of every topic out over its members in their order, so that equal numbers of two topics
meet in one member. `uniform` gives every member the same number of partitions, but for one, and moves as few as it can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from moldau.coordinator.group.consumer.records import Target
from moldau.coordinator.java import java_order


class MemberSpec(NamedTuple):
    instance_id: str | None
    topic_ids: frozenset[UUID]
    target: Target
    """What it had before."""


Members = Mapping[str, MemberSpec]
PartitionCounts = Mapping[UUID, int]
"""Of every topic that is read and exists, in the order in which they are to be dealt out."""
Assignor = Callable[[Members, PartitionCounts], dict[str, Target]]


# ---- range --------------------------------------------------------------------------------------------------


def assign_range(members: Members, counts: PartitionCounts) -> dict[str, Target]:
    ordered = sorted(members, key=lambda one: _range_order(one, members[one]))
    assigned: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in members}
    read_by = _readers(ordered, members, counts)
    for topic_id, count in counts.items():
        readers = read_by[topic_id]
        start = 0
        for position, member_id in enumerate(islice(readers, count)):  # the others get none
            stop = start + count // len(readers) + (position < count % len(readers))
            assigned[member_id][topic_id] = tuple(range(start, stop))
            start = stop
    return dict(assigned)


def _readers(ordered: Sequence[str], members: Members, counts: PartitionCounts) -> dict[UUID, list[str]]:
    """Of each topic, in order. Topics that the same members read, as nearly all do, share one list."""
    kinds: dict[frozenset[UUID], list[str]] = {}
    for member_id in ordered:
        kinds.setdefault(members[member_id].topic_ids, []).append(member_id)
    if len(kinds) == 1:
        ((topic_ids, readers),) = kinds.items()
        return {topic_id: readers if topic_id in topic_ids else [] for topic_id in counts}
    positions = {member_id: position for position, member_id in enumerate(ordered)}
    known: dict[tuple[int, ...], list[str]] = {}
    found: dict[UUID, list[str]] = {}
    for topic_id in counts:
        groups = [readers for topic_ids, readers in kinds.items() if topic_id in topic_ids]
        key = tuple(map(id, groups))
        if key not in known:
            known[key] = sorted((one for readers in groups for one in readers), key=positions.__getitem__)
        found[topic_id] = known[key]
    return found


def _range_order(member_id: str, spec: MemberSpec) -> tuple[bool, str]:
    """Static members first, by their lasting names."""
    return spec.instance_id is None, member_id if spec.instance_id is None else spec.instance_id


# ---- uniform ------------------------------------------------------------------------------------------------

Place = tuple[UUID, int]
Run = tuple[UUID, list[int]]
"""Partitions of one topic."""


def assign_uniform(members: Members, counts: PartitionCounts) -> dict[str, Target]:
    if not members:
        return {}
    if len({spec.topic_ids for spec in members.values()}) == 1:
        return _Homogeneous(members, counts).assign()
    return _Heterogeneous(members, counts).assign()


class _Homogeneous:
    """All members read the same topics. Partitions are handled in runs of one topic, not one by one."""

    def __init__(self, members: Members, counts: PartitionCounts) -> None:
        self._members = members
        self._counts = counts
        self._order = java_order(members)
        total = sum(counts.values())
        self._quota = total // len(members)
        self._extras = total % len(members)  # members that get one more
        had: dict[UUID, set[int]] = {}
        for spec in members.values():
            for topic_id, partitions in spec.target.items():
                had.setdefault(topic_id, set()).update(partitions)
        self._free = deque(
            (topic_id, iter([one for one in range(count) if one not in had.get(topic_id, ())]))
            for topic_id, count in counts.items()
        )

    def assign(self) -> dict[str, Target]:
        kept: dict[str, list[Run]] = {}
        missing: list[tuple[str, int]] = []
        for index, member_id in enumerate(self._order):
            kept[member_id], quota = self._keep(member_id, len(self._order) - index)
            if quota > 0:
                missing.append((member_id, quota))
        for member_id, quota in missing:
            kept[member_id] += self._take(quota)
        return {member_id: _joined(kept[member_id]) for member_id in self._members}

    def _keep(self, member_id: str, members_left: int) -> tuple[list[Run], int]:
        """What a member keeps of what it had, up to its quota, and how many it may still get."""
        has_extra = self._extras > 0
        quota = self._quota + has_extra
        kept: list[Run] = []
        for topic_id, partitions in self._members[member_id].target.items():
            count = self._counts.get(topic_id, 0)  # none where the topic is not read any more, or is gone
            there = [partition for partition in partitions if partition < count]
            if quota:
                kept.append((topic_id, there[:quota]))
            self._free.append((topic_id, iter(there[quota:])))
            quota = max(0, quota - len(there))
        if quota > 0 and has_extra and members_left > self._extras:
            quota -= 1  # the odd partition stays with those who have it, or goes to the last
            has_extra = False
        self._extras -= has_extra
        return kept, quota

    def _take(self, quota: int) -> Iterable[Run]:
        """So many of those that nobody keeps."""
        while quota and self._free:
            topic_id, partitions = self._free[0]
            taken = list(islice(partitions, quota))
            yield topic_id, taken
            quota -= len(taken)
            if quota:
                self._free.popleft()


def _joined(runs: Iterable[Run]) -> Target:
    topics: dict[UUID, list[int]] = {}
    for topic_id, partitions in runs:
        if partitions:
            topics.setdefault(topic_id, []).extend(partitions)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in topics.items()}


class _Heterogeneous:
    """Members read different topics: keep, deal out to whoever has least, then even out."""

    def __init__(self, members: Members, counts: PartitionCounts) -> None:
        self._members = members
        self._counts = counts
        self._readers = _readers(java_order(members), members, counts)
        self._held: dict[str, list[Place]] = {member_id: [] for member_id in members}

    def assign(self) -> dict[str, Target]:
        taken = self._keep()
        # The topics that fewest members read are dealt out first: the others can make up for it.
        for topic_id in sorted(self._counts, key=lambda one: len(self._readers[one])):
            places = ((topic_id, partition) for partition in range(self._counts[topic_id]))
            self._deal_out([place for place in places if place not in taken], self._readers[topic_id])
        while self._even_out():
            pass
        return {member_id: _target(places) for member_id, places in self._held.items()}

    def _keep(self) -> set[Place]:
        taken: set[Place] = set()
        for member_id, spec in self._members.items():
            for topic_id, partition in _places(spec.target):
                is_read = topic_id in spec.topic_ids and partition < self._counts.get(topic_id, 0)
                if is_read and (topic_id, partition) not in taken:
                    taken.add((topic_id, partition))
                    self._held[member_id].append((topic_id, partition))
        return taken

    def _deal_out(self, places: Sequence[Place], readers: Sequence[str]) -> None:
        """Of one topic: each to whoever has least, the first of them in order."""
        if not places or not readers:
            return
        waiting = [(len(self._held[member_id]), order) for order, member_id in enumerate(readers)]
        heapify(waiting)
        for place in places:
            count, order = waiting[0]
            self._held[readers[order]].append(place)
            heapreplace(waiting, (count + 1, order))

    def _least(self, topic_id: UUID) -> str:
        return min(self._readers[topic_id], key=lambda one: len(self._held[one]))

    def _even_out(self) -> bool:
        """Move one partition from a member that has at least two more than another that reads its topic."""
        moved = False
        least_of: dict[UUID, str] = {}  # until something moves
        fewest = min(map(len, self._held.values()))  # nobody has less from now on
        for member_id in sorted(self._held, key=lambda one: -len(self._held[one])):
            for place in list(reversed(self._held[member_id])):
                if len(self._held[member_id]) - fewest < 2:
                    break
                least = least_of.get(place[0])
                if least is None:
                    least = least_of[place[0]] = self._least(place[0])
                if len(self._held[member_id]) - len(self._held[least]) < 2:
                    continue
                self._held[member_id].remove(place)
                self._held[least].append(place)
                least_of.clear()
                moved = True
        return moved


def _places(target: Target) -> Iterable[Place]:
    return ((topic_id, partition) for topic_id, partitions in target.items() for partition in partitions)


def _target(places: Sequence[Place]) -> Target:
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in places:
        topics.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in topics.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
