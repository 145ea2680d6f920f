"""What /metrics has of groups and transactions: those that this broker coordinates.

A group is told by its coordinator alone, so that brokers add up. Its lag is what lies between its committed offsets and
the high watermarks: of partitions held here as this broker knows them (followers up to half a second late), of others
as their leaders have said when they were asked (`ends`), from the second look on. What is not known is counted apart.

It is a look at what was applied, whether or not it is committed. A partition of __consumer_offsets that cannot be
looked at now (a thread decides on something large there) is told as it was at the last look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.base.ids import TopicPartition
from moldau.base.limits import METRIC_ENDS_MAX, METRIC_GROUP_LETTERS_MAX, METRIC_GROUP_TOPICS_MAX
from moldau.broker.metrics.text import Sample, Samples, labelled
from moldau.replication.fetch_session import TopicRef
from moldau.replication.partition import Partition
from moldau.replication.traffic import OTHER
from moldau.runtime.line import Slices

if TYPE_CHECKING:  # loaded when the broker has started
    from moldau.coordinator.group.offsets import Committed
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime
    from moldau.coordinator.transaction.shard import TransactionShard

ELEMENTS_PER_PAUSE = 500
GROUPS_PER_PAUSE = 50

Place = tuple[str, str]
"""Group and topic."""
THE_OTHERS: Place = OTHER, OTHER


@dataclass(slots=True)
class Progress:
    """Of a group in a topic."""

    committed: int = 0
    lag: int = 0
    lag_max: int = 0
    unknown: int = 0
    """Partitions whose lag is not known here."""

    def add(self, more: Progress) -> None:
        self.committed += more.committed
        self.lag += more.lag
        self.lag_max = max(self.lag_max, more.lag_max)
        self.unknown += more.unknown


@dataclass(slots=True)
class View:
    """Of one partition of __consumer_offsets."""

    states: Counter[tuple[str, str]] = field(default_factory=Counter)
    progress: dict[Place, Progress] = field(default_factory=dict)
    members: Counter[str] = field(default_factory=Counter)
    """By group, with those of the groups that are not named in `progress` under OTHER."""


class GroupFigures:
    def __init__(
        self,
        partitions_of: Mapping[TopicRef, Mapping[int, Partition]],
        end_of: Callable[[TopicPartition], int | None],
    ) -> None:
        """`end_of`: of a partition that is not held here."""
        self._partitions_of = partitions_of
        self._end_of = end_of
        self.elsewhere: dict[TopicPartition, None] = {}
        """Partitions that groups have read and that are not held here, by the last look."""
        self._named: dict[Place, None] = {}
        self._views: dict[int, View] = {}

    def samples(self, groups: CoordinatorRuntime[GroupShard]) -> Samples:
        led = groups.led
        self.elsewhere = {}
        for index in led:
            view = yield from self._view(groups, index)
            if view is not None:
                self._views[index] = view
        self._views = {index: view for index, view in self._views.items() if index in led}
        states: Counter[tuple[str, str]] = Counter()
        members: Counter[str] = Counter()
        progress: dict[Place, Progress] = {}
        for view in self._views.values():
            states.update(view.states)
            members.update(view.members)
            for place, more in view.progress.items():
                progress.setdefault(place, Progress()).add(more)
        self._named = {place: None for place in self._named if place in progress}
        yield Sample(
            "moldau_groups",
            tuple(
                (labelled(type=kind, state=state), count) for (kind, state), count in sorted(states.items())
            ),
        )
        yield Sample(
            "moldau_group_members", tuple((labelled(group=group), count) for group, count in members.items())
        )
        yield None
        told = [(labelled(group=group, topic=topic), found) for (group, topic), found in progress.items()]
        for name, attribute in (
            ("moldau_group_committed_offsets", "committed"),
            ("moldau_group_lag_messages", "lag"),
            ("moldau_group_lag_messages_max", "lag_max"),
            ("moldau_group_lag_unknown_partitions", "unknown"),
        ):
            yield Sample(name, tuple((labels, getattr(found, attribute)) for labels, found in told))

    def _view(self, groups: CoordinatorRuntime[GroupShard], index: int) -> Slices[View | None]:
        """None where it cannot be looked at now."""
        shard = groups.shard(index)
        if shard is None:
            return None
        view = View()
        for number, group_id in enumerate(shard.group_ids(), 1):
            if number % GROUPS_PER_PAUSE == 0:
                yield
                if groups.shard(index) is not shard:
                    return None
            listed = shard.listed(group_id)
            if listed is None:
                continue
            view.states[listed.group_type, listed.group_state] += 1
            name = OTHER
            for topic, offsets in list(shard.offsets_of(group_id).items()):
                found = yield from self._progress(topic, list(offsets.items()))
                place = self._place(group_id, topic)
                view.progress.setdefault(place, Progress()).add(found)
                if place is not THE_OTHERS:
                    name = group_id
                if groups.shard(index) is not shard:
                    return None
            view.members[name] += shard.member_count(group_id)
        return view

    def _progress(self, topic: str, offsets: list[tuple[int, Committed]]) -> Slices[Progress]:
        held = self._partitions_of.get(topic, {})
        found = Progress()
        for number, (index, committed) in enumerate(offsets, 1):
            if number % ELEMENTS_PER_PAUSE == 0:
                yield
            found.committed += committed.offset
            partition = held.get(index)
            if partition is not None and not partition.is_offline:
                end: int | None = partition.high_watermark
            else:
                place = TopicPartition(topic, index)
                end = self._end_of(place)
                if len(self.elsewhere) < METRIC_ENDS_MAX:
                    self.elsewhere[place] = None
            if end is None:
                found.unknown += 1
                continue
            lag = max(0, end - committed.offset)
            found.lag += lag
            found.lag_max = max(found.lag_max, lag)
        return found

    def _place(self, group_id: str, topic: str) -> Place:
        """Where it is told: the first that come have figures of their own as long as they are there."""
        place = group_id, topic
        if place in self._named:
            return place
        if len(self._named) >= METRIC_GROUP_TOPICS_MAX or OTHER in place:
            return THE_OTHERS
        if len(group_id) > METRIC_GROUP_LETTERS_MAX:
            return THE_OTHERS
        self._named[place] = None
        return place


def transaction_samples(transactions: CoordinatorRuntime[TransactionShard]) -> Samples:
    states: Counter[str] = Counter()
    for index in transactions.led:
        shard = transactions.shard(index)
        for number, (_, transaction) in enumerate(shard.list_transactions() if shard else (), 1):
            if number % ELEMENTS_PER_PAUSE == 0:
                yield None
            states[transaction.state.label] += 1
    yield Sample(
        "moldau_transactions",
        tuple((labelled(state=state), count) for state, count in sorted(states.items())),
    )


def coordinator_samples(*coordinators: CoordinatorRuntime[Any]) -> Samples:
    values = (
        (labelled(topic=coordinator.topic, state=state), count)
        for coordinator in coordinators
        for state, count in sorted(coordinator.states().items())
    )
    yield Sample("moldau_coordinators", tuple(values))
