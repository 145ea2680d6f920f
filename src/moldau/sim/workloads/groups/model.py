"""What the members of a group may rely on (DESIGN's promise 5), whatever happens to the broker meanwhile:

- No two members are given one partition in one generation.
- A committed offset is never lost, and never goes back, once its commit was acknowledged: who reads it later finds it,
  or one that was committed after it.
- A member of a generation that is over changes nothing: a commit that was refused is never seen.

Every commit has a number of its own as its offset, so that the model knows whose it is when somebody reads it. The
topic of the coordinator is flushed before it acknowledges, so a power cut is no excuse.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from moldau.sim.model import Model

NOTHING = -1


class Fate(Enum):
    """What the client heard of its commit."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


class Order(NamedTuple):
    """Commits of one partition are ordered by generation, and by number within one: one member commits at a time."""

    generation: int
    number: int


class GroupModel:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._owners: dict[tuple[int, int], str] = {}
        self._commits: dict[int, tuple[int, Order]] = {}  # number -> partition, order
        self._fates: dict[int, Fate] = {}
        self._best: dict[int, Order] = {}

    # Assignments

    def on_assigned(self, generation: int, member_id: str, partitions: tuple[int, ...]) -> None:
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                self._model.fail(
                    None,
                    f"one owner of partition {partition} in generation {generation}, which is {owner}",
                    f"{member_id} was given it too",
                )

    # Commits

    def on_commit_sent(self, partition: int, generation: int) -> int:
        """The number, and offset, of a new commit."""
        number = len(self._commits)
        self._commits[number] = (partition, Order(generation, number))
        self._fates[number] = Fate.UNKNOWN
        return number

    def on_commit_answered(self, number: int, fate: Fate) -> None:
        self._fates[number] = fate
        if fate is Fate.ACKNOWLEDGED:
            partition, order = self._commits[number]
            if partition not in self._best or self._best[partition] < order:
                self._best[partition] = order

    def expected(self, partition: int) -> Order | None:
        """What a reader who asks now must find at least."""
        return self._best.get(partition)

    def on_read(self, partition: int, number: int, at_least: Order | None) -> None:
        """An offset was read by one who asked when `at_least` was acknowledged."""
        if at_least is None and number == NOTHING:
            return
        if number not in self._commits:
            self._fail(partition, at_least, f"{number}, which nobody committed")
            return
        place, order = self._commits[number]
        fate = self._fates[number]
        if place != partition:
            self._fail(partition, at_least, f"{number}, which was committed for partition {place}")
        elif fate is Fate.REFUSED:
            self._fail(partition, at_least, f"{number}, which was refused")
        elif at_least is not None and order < at_least and not self._may_be_late(order, fate, at_least):
            self._fail(partition, at_least, f"{number} of generation {order.generation}, an older one")

    def _may_be_late(self, order: Order, fate: Fate, at_least: Order) -> bool:
        """A commit whose connection was lost may still arrive, after a later one of the same generation."""
        return fate is Fate.UNKNOWN and order.generation == at_least.generation

    def _fail(self, partition: int, at_least: Order | None, found: str) -> None:
        wanted = "a committed offset" if at_least is None else f"{at_least.number} or a later commit"
        self._model.fail(None, f"{wanted} in partition {partition}", found)
