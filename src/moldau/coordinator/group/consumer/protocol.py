"""The heartbeat of the newer group protocol (KIP-848): joining, staying, changing a subscription, leaving.

One request does all of it. A heartbeat that changes what the group reads raises the group's epoch; once the epoch has
gone up, the next heartbeat of any member computes a new target for all, at most once in an assignment interval; and
every heartbeat takes its own member one step towards its target (`reconcile`). Members that fall silent, or do not give
up what they were asked to within their rebalance time-out, are out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.edit import Edit
from moldau.coordinator.group.consumer.evolution import Evolution
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState
from moldau.coordinator.group.consumer.messages import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    NOT_SAID_MS,
    Assignment,
    Beat,
    Beaten,
    TopicPartitions,
)
from moldau.coordinator.group.consumer.reconcile import Owned
from moldau.coordinator.group.consumer.records import Assigned
from moldau.coordinator.group.consumer.settings import ConsumerSettings
from moldau.coordinator.group.rebalance import TimerKey
from moldau.coordinator.shard import Moment

SESSION = "member session"
REVOCATION = "member revocation"


class ConsumerProtocol:
    """Over any consumer group; it keeps no state but the deadlines. `new_id()` makes ids for old clients."""

    def __init__(
        self,
        settings: ConsumerSettings,
        evolution: Evolution,
        deadlines: Deadlines[TimerKey],
        new_id: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._evolution = evolution
        self._deadlines = deadlines
        self._new_id = new_id

    # ---- heartbeats -----------------------------------------------------------------------------------------

    def beat(self, edit: Edit, beat: Beat) -> Beaten:
        """KafkaError where the request is refused."""
        self.check_room(edit.group, beat.member_id)
        member_id = beat.member_id or self._new_id()
        before = self._find(edit, beat, member_id)
        member = _updated(before, beat)
        has_resubscribed = self.subscribe(edit, before, member)
        member = self.advance(edit, member, beat.owned, has_resubscribed=has_resubscribed)
        times = self._settings.times_of(beat.group_id)
        self.heard_from(edit.group, member.member_id, edit.draft.moment, times.session_timeout_ms)
        tells = beat.epoch == JOINING or beat.is_full or member.assigned != before.assigned
        return Beaten(
            ErrorCode.none,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval=times.heartbeat_interval_ms,
            assignment=assignment_of(member.assigned) if tells else None,
        )

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        count_max = self._settings.members_max
        if len(group.members) >= count_max and member_id not in group.members:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {count_max} members.",
            )

    def _find(self, edit: Edit, beat: Beat, member_id: str) -> ConsumerMember:
        """The member that this heartbeat is of; one who joins may be new."""
        group = edit.group
        if beat.instance_id is not None:
            return self._find_static(edit, beat, beat.instance_id, member_id)
        member = group.member_or_new(member_id) if beat.epoch == JOINING else group.member(member_id)
        _check_epoch(member, beat)
        return member

    def _find_static(self, edit: Edit, beat: Beat, instance_id: str, member_id: str) -> ConsumerMember:
        current = edit.group.static_member(instance_id)
        if beat.epoch != JOINING:
            current = self.check_static(current, instance_id, member_id)
            _check_epoch(current, beat)
            return current
        if current is None:
            return edit.group.member_or_new(member_id)
        if current.epoch != LEAVING_FOR_A_WHILE and current.classic is None:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {current.member_id} member.",
            )
        return self.replace(edit, current, member_id)

    def replace(self, edit: Edit, current: ConsumerMember, member_id: str) -> ConsumerMember:
        """Another instance with the same instance id takes the place of the one before, and what it had."""
        group_id = edit.group.group_id
        target = edit.group.targets.get(current.member_id)
        successor = current._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
        self._remove(edit, current)
        edit.record(successor.as_subscribed(group_id))
        if target is not None:
            edit.record(records.TargetRecorded(group_id, member_id, target))
        edit.record(successor.as_assigned(group_id))
        return successor

    def check_static(
        self, current: ConsumerMember | None, instance_id: str, member_id: str
    ) -> ConsumerMember:
        if current is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        if current.member_id != member_id:
            raise KafkaError(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{current.member_id}.",
            )
        return current

    def subscribe(self, edit: Edit, before: ConsumerMember, member: ConsumerMember) -> bool:
        """Record what the member wants, if it is something else than before; whether it wants other topics."""
        is_new = member.member_id not in edit.group.members
        has_resubscribed = member.topics != before.topics
        regex_before, regex = before.regex, member.regex
        if regex != regex_before and regex and not edit.group.subscribers(regex):
            self._evolution.check_regex(regex)
        if is_new or member != before:
            edit.record(member.as_subscribed(edit.group.group_id))
        if regex != regex_before:
            if regex_before and not edit.group.subscribers(regex_before):
                edit.record(records.RegexForgotten(edit.group.group_id, regex_before))
            has_resubscribed = True
        return has_resubscribed

    # ---- the way to the target ------------------------------------------------------------------------------

    def advance(
        self,
        edit: Edit,
        member: ConsumerMember,
        owned: Owned | None,
        *,
        has_resubscribed: bool,
        assigns: bool = True,
    ) -> ConsumerMember:
        """Raise the epoch if something has changed, compute the target if it is time, take the member's next step.

        Where the group does not assign any more, the step is for a target that still counts, or none.
        """
        evolution = self._evolution
        has_resolved = evolution.resolve_regexes(edit)
        if has_resubscribed or has_resolved or edit.original.is_outdated:
            evolution.refresh(edit, is_changed=has_resubscribed or has_resolved)
        if assigns:
            evolution.compute_target(edit)
        elif edit.group.assignment_epoch < edit.group.epoch:
            return member
        moved = evolution.reconcile(edit, member, owned, has_resubscribed=has_resubscribed or has_resolved)
        if moved != member:
            edit.record(moved.as_assigned(edit.group.group_id))
            if moved.classic is None:
                self._watch_revocation(edit, moved)
        return moved

    def _watch_revocation(self, edit: Edit, member: ConsumerMember) -> None:
        key = (REVOCATION, edit.group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED:
            self._deadlines.set(key, edit.draft.moment.ms + member.rebalance_timeout_ms)
        else:
            self._deadlines.cancel(key)

    # ---- leaving --------------------------------------------------------------------------------------------

    def leave(self, edit: Edit, beat: Beat) -> tuple[Beaten, list[ConsumerMember]]:
        """The answer, and who is to be removed: a static member that says that it comes back is not."""
        left = Beaten(ErrorCode.none, member_id=beat.member_id, member_epoch=beat.epoch)
        if beat.instance_id is None:
            return left, [edit.group.member(beat.member_id)]
        current = edit.group.static_member(beat.instance_id)
        member = self.check_static(current, beat.instance_id, beat.member_id)
        if beat.epoch != LEAVING_FOR_A_WHILE:
            return left, [member]
        away = member._replace(
            epoch=LEAVING_FOR_A_WHILE,
            assigned={topic: dict.fromkeys(held, 0) for topic, held in member.assigned.items()},
            revoking={},
        )
        edit.record(away.as_assigned(edit.group.group_id))
        return left, []

    def remove(self, edit: Edit, members: Iterable[ConsumerMember]) -> None:
        """They are out, and the group goes on without them in a new epoch."""
        for member in members:
            self._remove(edit, member)
            if member.regex in edit.group.regexes and not edit.group.subscribers(member.regex):
                edit.record(records.RegexForgotten(edit.group.group_id, member.regex))
        self._evolution.bump(edit)

    def _remove(self, edit: Edit, member: ConsumerMember) -> None:
        """Its timers stay: they mean nothing once it is gone, and are needed if this cannot be recorded."""
        group_id, member_id = edit.group.group_id, member.member_id
        edit.record(records.CurrentForgotten(group_id, member_id))
        edit.record(records.TargetForgotten(group_id, member_id))
        edit.record(records.MemberForgotten(group_id, member_id))

    # ---- time -----------------------------------------------------------------------------------------------

    def heard_from(self, group: ConsumerGroup, member_id: str, moment: Moment, timeout_ms: int) -> None:
        self._deadlines.set((SESSION, group.group_id, member_id), moment.ms + timeout_ms)

    def on_loaded(self, group: ConsumerGroup, moment: Moment) -> None:
        """Everyone has a whole session to report, and a whole time-out to give up what it is to."""
        for member in group.members.values():
            if member.classic is not None:
                timeout_ms = member.classic.session_timeout_ms
            else:
                timeout_ms = self._settings.times_of(group.group_id).session_timeout_ms
                if member.state is MemberState.UNREVOKED:
                    key = (REVOCATION, group.group_id, member.member_id)
                    self._deadlines.set(key, moment.ms + member.rebalance_timeout_ms)
            self.heard_from(group, member.member_id, moment, timeout_ms)

    def forget_timers(self, group_id: str, member_id: str) -> None:
        for what in (SESSION, REVOCATION, CLASSIC_JOIN, CLASSIC_SYNC):
            self._deadlines.cancel((what, group_id, member_id))


CLASSIC_JOIN = "member join"
CLASSIC_SYNC = "member sync"
"""Of members that speak the classic protocol: until when they are to join again, and to ask for their assignment."""
MEMBER_TIMERS = (SESSION, REVOCATION, CLASSIC_JOIN, CLASSIC_SYNC)


def assignment_of(assigned: Assigned) -> Assignment:
    return Assignment(
        tuple(TopicPartitions(topic_id, tuple(sorted(held))) for topic_id, held in assigned.items())
    )


def _updated(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """With what the heartbeat says anew: the same, not a copy, where that is nothing, as in nearly all of them."""
    is_same_client = beat.client_id == member.client_id and beat.client_host == member.client_host
    if beat.is_plain and is_same_client and member.classic is None:
        return member
    return member._replace(
        instance_id=member.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=member.topics if beat.topics is None else frozenset(beat.topics),
        regex=member.regex if beat.regex is None else beat.regex,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if beat.rebalance_timeout_ms == NOT_SAID_MS
            else beat.rebalance_timeout_ms
        ),
        assignor=member.assignor if beat.assignor is None else beat.assignor,
        classic=None,
    )


def _check_epoch(member: ConsumerMember, beat: Beat) -> None:
    """An older epoch is that of an answer that was lost, if the member has no more than it was given."""
    if beat.epoch == JOINING or beat.epoch == member.epoch:
        return
    is_older = beat.epoch < member.epoch
    if is_older and beat.epoch == member.previous_epoch and _is_part(beat, member):
        return
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {'smaller' if is_older else 'greater'} member epoch ({beat.epoch}) "
        f"than the one known by the group coordinator ({member.epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _is_part(beat: Beat, member: ConsumerMember) -> bool:
    if beat.owned is None:
        return False
    return all(held <= member.assigned.get(topic_id, {}).keys() for topic_id, held in beat.owned.items())
