"""Bugs on purpose in the group coordinator and its runtime: each must be found by the workload of groups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from moldau.coordinator.driver import Driver
from moldau.coordinator.group.classic import ClassicGroup
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.group.rebalance import Rebalancing
from moldau.coordinator.journal import PartitionJournal
from moldau.sim.planting import Plants, patched

plant = GROUP_PLANTS = Plants()


@plant("assignment-given-to-all", promise=5)
def assignment_given_to_all() -> Iterator[None]:
    """Everyone who waits for its part gets the leader's."""
    end_syncs = Rebalancing.end_syncs

    def generous(self: Rebalancing, group: Any, draft: Any, error: Any = 0, assignments: Any = None) -> None:
        if assignments is not None:
            assignments = dict.fromkeys(assignments, assignments.get(group.leader, b""))
        end_syncs(self, group, draft, error, assignments)

    with patched(Rebalancing, "end_syncs", generous):
        yield


@plant("generation-not-checked", promise=6)
def generation_not_checked() -> Iterator[None]:
    """A member may sync and commit in whatever generation it believes to be in."""
    with patched(ClassicGroup, "check_generation", lambda *_: None):
        yield


@plant("commit-answered-before-it-is-written", promise=5)
def commit_answered_before_it_is_written() -> Iterator[None]:
    """The coordinator answers without waiting for the high watermark."""
    everything: Any = property(lambda _self: 1 << 62)
    with patched(PartitionJournal, "committed_offset", everything):
        yield


@plant("load-ends-too-early", promise=5)
def load_ends_too_early() -> Iterator[None]:
    """Replay forgets the last records of the log."""
    replay_entry = Driver._replay_entry

    def hasty(self: Driver[Any], entry: Any) -> None:
        if entry.offset < self._journal.next_offset - 3:
            replay_entry(self, entry)

    with patched(Driver, "_replay_entry", hasty):
        yield


@plant("commit-lost-now-and-then", promise=5)
def commit_lost_now_and_then() -> Iterator[None]:
    """One commit in a while does not reach the memory of the coordinator."""
    commit, turns = Offsets.commit, count(1)

    def forgetful(self: Offsets, record: Any) -> None:
        if next(turns) % 20:
            commit(self, record)

    with patched(Offsets, "commit", forgetful):
        yield
