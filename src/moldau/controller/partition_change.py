"""One partition's next state: who leads, who is in sync, who is eligible, what a reassignment has come to. Pure.

Everything that changes a partition goes through `changed`, so that what must hold holds after each change: a leader is
taken from the in-sync set, else from the eligible replicas (KIP-966), and from the others only where an unclean
election was asked for; a reassignment ends when the in-sync set allows; while the in-sync set is below
min.insync.replicas, who falls out of it stays eligible, since the high watermark stands still then. (Kafka's
PartitionChangeBuilder, with PartitionReassignmentReplicas.)

One thing differs: Kafka elects the last known leader by itself when nobody is eligible. Here the last eligible replica
stays eligible, whatever has happened to it (`brokers`), so that only unclean elections look at the last known leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from moldau.metadata.records import NO_LEADER, PartitionState

MayLead = Callable[[int], bool]
Ids = tuple[int, ...]


class Election(Enum):
    ONLINE = "keep the leader; where it cannot lead, elect one that has everything"
    PREFERRED = "the first replica where it has everything"
    UNCLEAN = "where nobody has everything, elect whom there is"


class Target(NamedTuple):
    """What is to be different; None leaves a field as it is."""

    isr: Ids | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    recovering: bool | None = None
    ineligible: Collection[int] = ()
    """They may have lost records, and cannot be eligible any more."""
    offline: Ids | None = None


NOTHING = Target()


def changed(
    state: PartitionState,
    target: Target,
    may_lead: MayLead,
    min_isr: int,
    election: Election = Election.ONLINE,
) -> PartitionState | None:
    """The state with its epochs raised; None where nothing changes."""
    isr = state.isr if target.isr is None else target.isr
    replicas = state.replicas if target.replicas is None else target.replicas
    adding = state.adding if target.adding is None else target.adding
    removing = state.removing if target.removing is None else target.removing
    if adding or removing:
        isr, replicas, adding, removing = _completed(isr, replicas, adding, removing)
    elr = _eligible(state, target, isr, replicas, min_isr)
    offline = state.offline if target.offline is None else target.offline
    if offline:
        offline = tuple(replica for replica in offline if replica in replicas)
    leader, is_unclean = _elect(state, isr, elr, replicas, may_lead, election)
    recovering = state.recovering if target.recovering is None else target.recovering
    if is_unclean:
        isr, elr, recovering = (leader,), (), True
    elif leader in elr:
        # Where it is enough by itself (min.insync.replicas was lowered meanwhile), the others miss what it commits.
        is_enough = min(min_isr, len(replicas)) <= 1
        isr, elr = (leader,), () if is_enough else tuple(replica for replica in elr if replica != leader)
    # A leader that loses a replica by reassignment goes on in a new epoch: the one that left must notice.
    bumps = leader != state.leader or (
        replicas != state.replicas and not set(state.replicas) <= set(replicas)
    )
    after = PartitionState(
        leader,
        state.leader_epoch + bumps,
        replicas,
        isr,
        state.partition_epoch + 1,
        elr,
        _last_known(state, isr, leader),
        adding,
        removing,
        recovering,
        offline,
    )
    return None if after[5:] == state[5:] and after[:4] == state[:4] else after


def is_reassigning(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def _completed(isr: Ids, replicas: Ids, adding: Ids, removing: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """The end of a reassignment, where all who stay are in sync."""
    staying_isr = tuple(replica for replica in isr if replica not in removing)
    staying = tuple(replica for replica in replicas if replica not in removing)
    if staying_isr and staying and set(staying) <= set(staying_isr):
        return staying_isr, staying, (), ()
    return isr, replicas, adding, removing


def _eligible(state: PartitionState, target: Target, isr: Ids, replicas: Ids, min_isr: int) -> Ids:
    if len(isr) >= min(min_isr, len(replicas)):
        return ()
    candidates = dict.fromkeys(state.elr + state.isr)
    return tuple(
        replica
        for replica in candidates
        if replica not in isr and replica in replicas and replica not in target.ineligible
    )


def _elect(
    state: PartitionState, isr: Ids, elr: Ids, replicas: Ids, may_lead: MayLead, election: Election
) -> tuple[int, bool]:
    """The leader, and whether it may lack something that was acknowledged."""
    whole = isr or elr
    order = (state.leader, *replicas)
    if election is Election.PREFERRED:
        order = (replicas[0], *order)
    for replica in order:
        if replica in whole and may_lead(replica):
            return replica, False
    if election is Election.UNCLEAN:
        for replica in (*state.last_known_elr, *replicas):
            if replica in replicas and may_lead(replica):
                return replica, True
    return NO_LEADER, False


def _last_known(state: PartitionState, isr: Ids, leader: int) -> Ids:
    """Who led last, from the moment at which nobody is in sync until somebody leads again."""
    if leader != NO_LEADER:
        return ()
    if not isr and state.leader != NO_LEADER:
        return (state.leader,)
    return state.last_known_elr
