"""Bugs on purpose in the coordinator of consumer groups (KIP-848): each must be found by their workload."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.holders import Holders
from moldau.coordinator.group.consumer.protocol import ConsumerProtocol
from moldau.coordinator.group.consumer.reconcile import Reconciliation
from moldau.sim.planting import Plants, patched
from moldau.sim.workloads.groups.plants import GROUP_PLANTS

plant = CONSUMER_GROUP_PLANTS = Plants()
for _name in ("load-ends-too-early", "commit-lost-now-and-then"):  # one runtime carries both protocols
    CONSUMER_GROUP_PLANTS[_name] = GROUP_PLANTS[_name]


@plant("given-before-it-is-released", promise=5)
def given_before_it_is_released() -> Iterator[None]:
    """A member gets its target at once, whoever has the partitions still."""
    with patched(Holders, "of", lambda *_: {}):
        yield


@plant("taken-to-be-given-up", promise=5)
def taken_to_be_given_up() -> Iterator[None]:
    """Members are asked to give partitions up, and not waited for."""
    with patched(Reconciliation, "_still_owns", lambda *_: False):
        yield


@plant("a-silent-member-stays", promise=5)
def a_silent_member_stays() -> Iterator[None]:
    """Sessions never end, so that what a dead member had stays without an owner."""
    with patched(ConsumerProtocol, "heard_from", lambda *_: None):
        yield


@plant("member-epoch-not-checked", promise=6)
def member_epoch_not_checked() -> Iterator[None]:
    """Whoever was a member once may commit."""
    with patched(ConsumerGroup, "check_commit", lambda *_, **__: None):
        yield
