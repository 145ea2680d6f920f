"""What the members of a group may rely on of its offsets (promises 5 and 6), and how they are read.

- A committed offset is never lost, and never goes back, once its commit was acknowledged: who reads it later finds it,
  or one that was committed after it.
- A member that has lost its partitions changes nothing: a commit that was refused is never seen.

Every commit has a number of its own as its offset, so that it is known whose it is when somebody reads it. The topic
of the coordinator is flushed before it acknowledges, so a power cut is no excuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from types import SimpleNamespace
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import Client
from moldau.sim.model import Model
from moldau.sim.routes import group_coordinator
from moldau.sim.stage import Stage

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
OFFSET_COMMIT_VERSION = 10
OFFSET_FETCH_VERSION = 10
NOTHING = -1

#: After these nothing was committed. After others (the coordinator moved, or could not wait) nobody knows.
REFUSALS = (
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    ErrorCode.stale_member_epoch,
    ErrorCode.fenced_member_epoch,
    ErrorCode.fenced_instance_id,
    ErrorCode.rebalance_in_progress,
    ErrorCode.group_id_not_found,
    ErrorCode.coordinator_load_in_progress,
)


class Fate(Enum):
    """What the client heard of its commit."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"

    @classmethod
    def of(cls, error: ErrorCode) -> Fate:
        if error is ErrorCode.none:
            return cls.ACKNOWLEDGED
        return cls.REFUSED if error in REFUSALS else cls.UNKNOWN


class Order(NamedTuple):
    """Commits of one partition are ordered by generation (or the epoch in which the member was given it), and by
    number within one: one member commits at a time.
    """

    generation: int
    number: int


class CommitModel:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._commits: dict[int, tuple[TopicPartition, Order]] = {}
        self._fates: dict[int, Fate] = {}
        self._best: dict[TopicPartition, Order] = {}

    def on_sent(self, place: TopicPartition, generation: int) -> int:
        """The number, and offset, of a new commit."""
        number = len(self._commits)
        self._commits[number] = (place, Order(generation, number))
        self._fates[number] = Fate.UNKNOWN
        return number

    def on_answered(self, number: int, fate: Fate) -> None:
        self._fates[number] = fate
        if fate is Fate.ACKNOWLEDGED:
            place, order = self._commits[number]
            if place not in self._best or self._best[place] < order:
                self._best[place] = order

    def expected(self, place: TopicPartition) -> Order | None:
        """What a reader who asks now must find at least."""
        return self._best.get(place)

    def on_read(self, place: TopicPartition, number: int, at_least: Order | None) -> None:
        """An offset was read by one who asked when `at_least` was acknowledged."""
        if at_least is None and number == NOTHING:
            return
        if number not in self._commits:
            self._fail(place, at_least, f"{number}, which nobody committed")
            return
        committed_for, order = self._commits[number]
        fate = self._fates[number]
        if committed_for != place:
            self._fail(place, at_least, f"{number}, which was committed for {committed_for}")
        elif fate is Fate.REFUSED:
            self._fail(place, at_least, f"{number}, which was refused")
        elif at_least is not None and order < at_least and not self._may_be_late(order, fate, at_least):
            self._fail(place, at_least, f"{number} of generation {order.generation}, an older one")

    def _may_be_late(self, order: Order, fate: Fate, at_least: Order) -> bool:
        """A commit whose connection was lost may still arrive, after a later one of the same generation."""
        return fate is Fate.UNKNOWN and order.generation == at_least.generation

    def _fail(self, place: TopicPartition, at_least: Order | None, found: str) -> None:
        wanted = "a committed offset" if at_least is None else f"{at_least.number} or a later commit"
        self._model.fail(place, wanted, found)


async def read_offsets(
    client: Client, commits: CommitModel, group_id: str, places: Sequence[TopicPartition]
) -> bool:
    """Read a group's offsets, and hold them against what was acknowledged; False where it could not be."""
    is_linear = client.model.is_linear
    expected = {place: commits.expected(place) if is_linear else None for place in places}
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    group = SimpleNamespace(
        group_id=group_id,
        member_id=None,
        member_epoch=-1,
        topics=tuple(
            client.topic(name, partition_indexes=tuple(indexes)) for name, indexes in topics.items()
        ),
    )
    request = SimpleNamespace(groups=(group,), require_stable=False)
    coordinator = group_coordinator(group_id)
    (found,) = (await client.ask(OFFSET_FETCH, OFFSET_FETCH_VERSION, request, coordinator)).groups
    if found.error_code is not ErrorCode.none:
        client.mistrust(coordinator)
        return False
    for topic in found.topics:
        for row in topic.partitions:
            if row.error_code is ErrorCode.none:
                place = client.partition_of(topic, row.partition_index)
                commits.on_read(place, row.committed_offset, expected[place])
    client.count("offsets read", len(places))
    return True


async def check_offsets(
    stage: Stage, name: str, commits: CommitModel, group_id: str, places: Sequence[TopicPartition]
) -> None:
    """Read them by a client of that name, which tries until it can: in a quiet world that comes in the end."""
    client = stage.client(name)

    async def read() -> None:
        while not await read_offsets(client, commits, group_id, places):
            await client.pause()

    await stage.in_host(client, read(), "offsets to be readable in a quiet world")
