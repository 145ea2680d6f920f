"""A member's next step towards its target: give up first, then take what is free.

A member whose target lacks partitions that it has is told to give them up, and stays in its epoch until it says that
it did; then it moves to the target's epoch, with what nobody else holds. What others still hold it gets when they have
given it up. So no two members ever have one partition, whatever is lost on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.consumer.member import NOTHING, ConsumerMember, MemberState
from moldau.coordinator.group.consumer.records import Assigned, Target

Owned = Mapping[UUID, Set[int]]


class Reconciliation:
    """`owned` is what the member says that it has, None where it says nothing of it; `subscribed` are the ids of the
    topics that it wants; `holders_of(topic_id)` are those who have a partition of a topic.
    """

    def __init__(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Target,
        *,
        owned: Owned | None,
        subscribed: Set[UUID],
        holders_of: Callable[[UUID], Mapping[int, str]],
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._owned = owned
        self._subscribed = subscribed
        self._holders_of = holders_of

    def step(self, *, has_resubscribed: bool) -> ConsumerMember:
        """The member as it is next; the same where it has to wait."""
        member = self._member
        match member.state:
            case MemberState.STABLE if member.epoch == self._target_epoch:
                return self._without_unsubscribed() if has_resubscribed else member
            case MemberState.UNREVOKED if self._still_owns(member.revoking):
                return self._without_unsubscribed() if has_resubscribed else member
            case MemberState.UNKNOWN if self._owned is None or self._owned:
                raise KafkaError(
                    ErrorCode.fenced_member_epoch,
                    "The consumer group member is in a unknown state. The member must abandon all its "
                    "partitions and rejoin.",
                )
        return self._next()

    def _next(self) -> ConsumerMember:
        member = self._member
        kept: dict[UUID, dict[int, int]] = {}
        to_revoke: dict[UUID, dict[int, int]] = {}
        for topic_id, partitions in member.assigned.items():
            wanted = frozenset(self._wanted(topic_id))
            keep = {one: epoch for one, epoch in partitions.items() if one in wanted}
            if keep:
                kept[topic_id] = keep
            if len(keep) < len(partitions):
                to_revoke[topic_id] = {one: epoch for one, epoch in partitions.items() if one not in wanted}
        if to_revoke and self._still_owns(to_revoke):
            return self._moved(member.epoch, MemberState.UNREVOKED, kept, to_revoke)
        is_complete = self._add_free(kept)
        state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
        return self._moved(self._target_epoch, state, kept)

    def _add_free(self, assigned: dict[UUID, dict[int, int]]) -> bool:
        """Whether all that was missing could be had."""
        is_complete = True
        for topic_id in self._target:
            kept = assigned.get(topic_id, {})
            missing = [partition for partition in self._wanted(topic_id) if partition not in kept]
            held = self._holders_of(topic_id).keys() - self._own(topic_id)
            free = [partition for partition in missing if partition not in held]
            is_complete = is_complete and len(free) == len(missing)
            if free:
                assigned.setdefault(topic_id, {}).update(dict.fromkeys(free, self._target_epoch))
        return is_complete

    def _own(self, topic_id: UUID) -> set[int]:
        """What the member has of a topic, or is about to give up."""
        return {*self._member.assigned.get(topic_id, ()), *self._member.revoking.get(topic_id, ())}

    def _without_unsubscribed(self) -> ConsumerMember:
        """It wants other topics than before: what it does not want any more goes at once, before a new target."""
        member = self._member
        kept = {topic_id: held for topic_id, held in member.assigned.items() if topic_id in self._subscribed}
        if len(kept) == len(member.assigned):
            return member
        revoking = {topic_id: dict(held) for topic_id, held in member.revoking.items()}
        for topic_id, held in member.assigned.items():
            if topic_id not in kept:
                revoking.setdefault(topic_id, {}).update(held)
        if self._still_owns(revoking):
            return self._moved(member.epoch, MemberState.UNREVOKED, kept, revoking)
        return self._moved(member.epoch, member.state, kept, member.revoking)

    def _wanted(self, topic_id: UUID) -> tuple[int, ...]:
        return self._target.get(topic_id, ()) if topic_id in self._subscribed else ()

    def _still_owns(self, partitions: Assigned) -> bool:
        """A member that says nothing is taken to have all."""
        if self._owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, NOTHING)
            for topic_id, held in self._owned.items()
            for partition in held
        )

    def _moved(
        self, epoch: int, state: MemberState, assigned: Assigned, revoking: Assigned = NOTHING
    ) -> ConsumerMember:
        return self._member._replace(
            epoch=epoch,
            previous_epoch=self._member.epoch,
            state=state,
            assigned=assigned,
            revoking=revoking,
        )
