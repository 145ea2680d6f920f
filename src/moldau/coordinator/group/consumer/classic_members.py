"""The classic protocol's requests in a consumer group: members of both protocols side by side.

To such a member the coordinator is all other members: its join is a heartbeat that tells what it owns and wants, the
generation is its epoch, and it learns by REBALANCE_IN_PROGRESS that it should join again. It asks for its assignment
by SyncGroup; it never leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.fields import BadFields
from moldau.coordinator.group.consumer.edit import Edit
from moldau.coordinator.group.consumer.embedded import Subscription, read_subscription
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState
from moldau.coordinator.group.consumer.migration import Migration
from moldau.coordinator.group.consumer.protocol import CLASSIC_JOIN, CLASSIC_SYNC, ConsumerProtocol
from moldau.coordinator.group.consumer.records import ClassicMetadata
from moldau.coordinator.group.consumer.settings import Migration as Policy
from moldau.coordinator.group.messages import (
    UNKNOWN_MEMBER,
    Heard,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Sync,
    Synced,
)
from moldau.coordinator.group.rebalance import TimerKey
from moldau.coordinator.shard import Moment


class ClassicMembers:
    def __init__(
        self,
        policy: Policy,
        protocol: ConsumerProtocol,
        migration: Migration,
        deadlines: Deadlines[TimerKey],
        new_id: Callable[[], str],
    ) -> None:
        self._policy = policy
        self._protocol = protocol
        self._migration = migration
        self._deadlines = deadlines
        self._new_id = new_id

    # ---- joining --------------------------------------------------------------------------------------------

    def join(self, edit: Edit, join: Join, *, is_last_step: bool) -> Joined:
        """KafkaError where the request is refused. `is_last_step`: a classic group follows."""
        group = edit.group
        if self._policy is Policy.DISABLED:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        self._protocol.check_room(group, join.member_id)
        if not group.supports_classic(join.protocol_type, [name for name, _ in join.protocols]):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        is_unknown = join.member_id == UNKNOWN_MEMBER
        member_id = self._new_id() if is_unknown else join.member_id
        if join.instance_id is None and is_unknown and join.is_id_required:
            return Joined(ErrorCode.member_id_required, member_id)
        subscription = self._subscription(join)
        before = self._find(edit, join, member_id, is_unknown=is_unknown)
        member = _updated(before, join, subscription)
        has_resubscribed = self._protocol.subscribe(edit, before, member)
        edit.sees = join.sees
        owned = {id_: set(numbers) for id_, numbers in self._migration.by_id(subscription.owned).items()}
        member = self._protocol.advance(
            edit, member, owned, has_resubscribed=has_resubscribed, assigns=not is_last_step
        )
        moment = edit.draft.moment
        self._protocol.heard_from(edit.group, member.member_id, moment, join.session_timeout_ms)
        self._deadlines.cancel((CLASSIC_JOIN, group.group_id, member.member_id))
        self._set(CLASSIC_SYNC, group, member, moment)
        return Joined(
            ErrorCode.none, member.member_id, member.epoch, join.protocol_type, join.protocols[0][0]
        )

    @staticmethod
    def _subscription(join: Join) -> Subscription:
        try:
            return read_subscription(join.protocols[0][1])
        except BadFields:
            raise KafkaError(ErrorCode.inconsistent_group_protocol) from None

    def _find(self, edit: Edit, join: Join, member_id: str, *, is_unknown: bool) -> ConsumerMember:
        """Unlike a consumer's, a second instance takes over at once, as among classic members."""
        if join.instance_id is None:
            return edit.group.member_or_new(member_id)
        current = edit.group.static_member(join.instance_id)
        if current is None:
            if not is_unknown:
                raise KafkaError(ErrorCode.unknown_member_id)
            return edit.group.member_or_new(member_id)
        if is_unknown:
            return self._protocol.replace(edit, current, member_id)
        return self._protocol.check_static(current, join.instance_id, member_id)

    # ---- the rest -------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, sync: Sync, moment: Moment) -> Synced:
        member = self._member(group, sync.member_id, sync.instance_id, sync.generation)
        assert member.classic is not None
        protocol = member.classic.protocols[0][0]
        if sync.protocol_type not in (None, "consumer") or sync.protocol not in (None, protocol):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        if _is_behind(group, member) and member.state is not MemberState.UNREVOKED:
            self._expect_join(group, member, moment)
            raise KafkaError(ErrorCode.rebalance_in_progress)
        self._deadlines.cancel((CLASSIC_SYNC, group.group_id, member.member_id))
        self._protocol.heard_from(group, member.member_id, moment, member.classic.session_timeout_ms)
        return Synced(ErrorCode.none, "consumer", protocol, self._migration.assignment(member))

    def heartbeat(self, group: ConsumerGroup, heartbeat: Heartbeat, moment: Moment) -> Heard:
        member = self._member(group, heartbeat.member_id, heartbeat.instance_id, heartbeat.generation)
        assert member.classic is not None
        self._protocol.heard_from(group, member.member_id, moment, member.classic.session_timeout_ms)
        can_go_on = member.state is MemberState.UNRELEASED and not group.is_waiting_for_others(member)
        if _is_behind(group, member) or member.state is MemberState.UNREVOKED or can_go_on:
            self._expect_join(group, member, moment)
            return Heard(ErrorCode.rebalance_in_progress)
        return Heard(ErrorCode.none)

    def leave(
        self, group: ConsumerGroup, leavers: Sequence[Leaver]
    ) -> tuple[list[Left], list[ConsumerMember]]:
        """An answer for each, and who is to be removed."""
        answers, leaving = [], []
        for leaver in leavers:
            error = ErrorCode.none
            try:
                leaving.append(self._leaving(group, leaver))
            except KafkaError as refusal:
                error = refusal.code
            answers.append(Left(leaver.member_id, leaver.instance_id, error))
        return answers, leaving

    def _leaving(self, group: ConsumerGroup, leaver: Leaver) -> ConsumerMember:
        """Whatever it speaks: an administrator takes out members of both protocols, static ones by instance id."""
        if leaver.member_id != UNKNOWN_MEMBER:
            return self._known(group, leaver.member_id, leaver.instance_id)
        member = group.static_member(leaver.instance_id)
        if member is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return member

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember:
        member = self._known(group, member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        if generation != member.epoch:
            raise KafkaError(ErrorCode.illegal_generation)
        return member

    def _known(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            return group.member(member_id)
        current = group.static_member(instance_id)
        return self._protocol.check_static(current, instance_id, member_id)

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember, moment: Moment) -> None:
        if self._deadlines.get((CLASSIC_JOIN, group.group_id, member.member_id)) is None:
            self._set(CLASSIC_JOIN, group, member, moment)

    def _set(self, what: str, group: ConsumerGroup, member: ConsumerMember, moment: Moment) -> None:
        at_ms = moment.ms + member.rebalance_timeout_ms
        self._deadlines.set((what, group.group_id, member.member_id), at_ms)


def _is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a new target to join for. Where nobody is left whose heartbeats compute it, a join does."""
    if member.epoch >= group.epoch:
        return False
    return member.epoch < group.assignment_epoch or group.classic_count == len(group.members)


def _updated(member: ConsumerMember, join: Join, subscription: Subscription) -> ConsumerMember:
    """What the classic protocol has no word for stays as a consumer said it: the assignor, perhaps the rack."""
    return member._replace(
        instance_id=member.instance_id if join.instance_id is None else join.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=join.client_id,
        client_host=join.client_host,
        topics=frozenset(subscription.topics),
        regex="",
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        classic=ClassicMetadata(join.session_timeout_ms, join.protocols),
    )
