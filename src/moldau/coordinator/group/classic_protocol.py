"""The requests of the classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Kafka's rules for each state of a group: dynamic members get their id before they join (KIP-394), static ones take over
from the instance before them and fence it (KIP-345), and a static leader that comes back to a stable group need not
assign anew (KIP-814). What follows from a change is in `rebalance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import GROUP_PROTOCOLS_MAX
from moldau.coordinator.group.classic import ClassicGroup, GroupState
from moldau.coordinator.group.draft import Draft
from moldau.coordinator.group.member import Member
from moldau.coordinator.group.messages import (
    UNKNOWN_MEMBER,
    AllLeft,
    Heard,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Sync,
    Synced,
)
from moldau.coordinator.group.rebalance import Rebalancing, joined
from moldau.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from moldau.coordinator.reply import Reply

CLIENT_ID_LENGTH_MAX = 8_000
"""Of a client id in a member's id: a member's id must fit into 32,767 bytes."""


class ClassicProtocol:
    """`new_id()` makes the part of a member's id that no other has."""

    def __init__(self, settings: GroupSettings, rebalancing: Rebalancing, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._rebalancing = rebalancing
        self._new_id = new_id

    # ---- joining --------------------------------------------------------------------------------------------

    def join(self, group: ClassicGroup, join: Join, reply: Reply, draft: Draft) -> None:
        """Answered in the draft, or parked with the member until the generation is complete."""
        is_unknown = join.member_id == UNKNOWN_MEMBER
        if not self._has_room(group, join.member_id):
            self._rebalancing.drop(group, join.member_id, draft)
            draft.answer(reply, Joined(ErrorCode.group_max_size_reached, UNKNOWN_MEMBER))
            if group.state is GroupState.PREPARING:
                self._rebalancing.on_change(group, draft)
        elif len(join.protocols) > GROUP_PROTOCOLS_MAX or not group.supports(join):
            draft.answer(reply, Joined(ErrorCode.inconsistent_group_protocol, join.member_id))
        elif not is_unknown:
            self._join_known(group, join, reply, draft)
        elif join.instance_id is not None:
            self._join_static(group, join, join.instance_id, reply, draft)
        else:
            self._join_dynamic(group, join, reply, draft)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """While members join, those who have already are counted: the last to come are left out."""
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING:
            has_joined = member is not None and member.join_reply is not None
            return has_joined or group.joining_count < self._settings.members_max
        return member is not None or len(group.members) < self._settings.members_max

    def _join_dynamic(self, group: ClassicGroup, join: Join, reply: Reply, draft: Draft) -> None:
        member_id = f"{join.client_id[:CLIENT_ID_LENGTH_MAX]}-{self._new_id()}"
        if join.is_id_required:
            self._rebalancing.heard_from_pending(group, member_id, draft, join.session_timeout_ms)
            draft.answer(reply, Joined(ErrorCode.member_id_required, member_id))
        else:
            self._add(group, member_id, join, reply, draft)

    def _join_static(
        self, group: ClassicGroup, join: Join, instance_id: str, reply: Reply, draft: Draft
    ) -> None:
        member_id = f"{instance_id[:CLIENT_ID_LENGTH_MAX]}-{self._new_id()}"
        current_id = group.static_members.get(instance_id)
        if current_id is None:
            self._add(group, member_id, join, reply, draft)
        else:
            self._replace_static(group, current_id, member_id, join, reply, draft)

    def _join_known(self, group: ClassicGroup, join: Join, reply: Reply, draft: Draft) -> None:
        member_id = join.member_id
        if member_id in group.pending_members and join.instance_id is None:
            self._add(group, member_id, join, reply, draft)
            return
        try:
            group.check_member(member_id, join.instance_id)
        except KafkaError as refusal:
            draft.answer(reply, Joined(refusal.code, member_id))
            return
        member = group.members[member_id]
        is_same = member.protocols == join.protocols
        if group.state is GroupState.COMPLETING and is_same:
            # It did not get the answer to its last join.
            draft.answer(reply, joined(group, member))
        elif group.state is GroupState.STABLE and is_same and group.leader != member_id:
            draft.answer(reply, joined(group, member))
        else:
            self._rejoin(group, member, join, reply, draft)

    def _add(self, group: ClassicGroup, member_id: str, join: Join, reply: Reply, draft: Draft) -> None:
        member = Member.joining(member_id, join)
        member.is_new = True
        if group.state is GroupState.PREPARING and group.is_initial:
            group.has_grown = True
        group.add(member, join.protocol_type)
        group.park_join(member, reply)
        self._rebalancing.heard_from(group, member, draft, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancing.on_change(group, draft)

    def _rejoin(self, group: ClassicGroup, member: Member, join: Join, reply: Reply, draft: Draft) -> None:
        # A retry on another connection; nobody listens to the first one any more.
        draft.answer(group.take_join(member), Joined(ErrorCode.rebalance_in_progress, member.member_id))
        group.update(member, join)
        group.park_join(member, reply)
        self._rebalancing.on_change(group, draft)

    def _replace_static(
        self, group: ClassicGroup, old_id: str, new_id: str, join: Join, reply: Reply, draft: Draft
    ) -> None:
        """Another instance with the same instance id: the one before is fenced, and its place is kept."""
        leader_before = group.leader
        old, member = group.replace_static(old_id, new_id)
        draft.answer(group.take_join(old), Joined(ErrorCode.fenced_instance_id, old_id))
        waiting, old.sync_reply = old.sync_reply, None
        draft.answer(waiting, Synced(ErrorCode.fenced_instance_id))
        group.update(member, join)
        self._rebalancing.heard_from(group, member, draft)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            group.park_join(member, reply)
            self._rebalancing.on_change(group, draft)
            return
        # Nothing changes for the others: only the new id is recorded.
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        draft.record(group.as_recorded(assignments, group.state_timestamp_ms or draft.moment.wall_ms))
        told = joined(group, member)
        if join.can_skip_assignment:
            told = told._replace(skip_assignment=group.leader == new_id)
        else:
            # An old client that learns that it leads would assign, and the group would not listen. So it is told
            # that the one before it leads.
            told = told._replace(leader=leader_before or UNKNOWN_MEMBER, members=())
        draft.answer(reply, told)

    # ---- syncing --------------------------------------------------------------------------------------------

    def sync(self, group: ClassicGroup, sync: Sync, reply: Reply, draft: Draft) -> None:
        try:
            self._check_sync(group, sync)
        except KafkaError as refusal:
            draft.answer(reply, Synced(refusal.code))
            return
        member = group.members[sync.member_id]
        self._rebalancing.has_synced(group, sync.member_id)
        if group.state is GroupState.STABLE:
            self._rebalancing.heard_from(group, member, draft)
            draft.answer(
                reply, Synced(ErrorCode.none, group.protocol_type, group.protocol, member.assignment)
            )
            return
        draft.answer(member.sync_reply, Synced(ErrorCode.rebalance_in_progress))  # of a retry's first attempt
        member.sync_reply = reply
        if group.leader == sync.member_id:
            assignments = dict.fromkeys(group.members, b"") | dict(sync.assignments)
            draft.record(group.as_recorded(assignments, draft.moment.wall_ms))
            self._rebalancing.end_syncs(group, draft, assignments=assignments)

    def _check_sync(self, group: ClassicGroup, sync: Sync) -> None:
        group.check_member(sync.member_id, sync.instance_id)
        group.check_generation(sync.generation)
        for claimed, actual in ((sync.protocol_type, group.protocol_type), (sync.protocol, group.protocol)):
            if claimed is not None and claimed != actual:
                raise KafkaError(ErrorCode.inconsistent_group_protocol)
        if group.state is GroupState.PREPARING:
            raise KafkaError(ErrorCode.rebalance_in_progress)

    # ---- staying and leaving --------------------------------------------------------------------------------

    def heartbeat(self, group: ClassicGroup, heartbeat: Heartbeat, draft: Draft) -> Heard:
        try:
            group.check_member(heartbeat.member_id, heartbeat.instance_id)
            group.check_generation(heartbeat.generation)
        except KafkaError as refusal:
            return Heard(refusal.code)
        self._rebalancing.heard_from(group, group.members[heartbeat.member_id], draft)
        is_preparing = group.state is GroupState.PREPARING
        return Heard(ErrorCode.rebalance_in_progress if is_preparing else ErrorCode.none)

    def leave(self, group: ClassicGroup, leavers: Sequence[Leaver], draft: Draft) -> AllLeft:
        answers = [self._leave(group, leaver, draft) for leaver in leavers]
        if any(not answer.error_code for answer in answers) and not group.is_empty:
            self._rebalancing.on_change(group, draft)
        return AllLeft(ErrorCode.none, tuple(answers))

    def _leave(self, group: ClassicGroup, leaver: Leaver, draft: Draft) -> Left:
        """By its id; an administrator takes out a static member by its instance id alone."""
        member_id: str | None = leaver.member_id
        error = ErrorCode.none
        if leaver.member_id == UNKNOWN_MEMBER:
            member_id = group.static_members.get(leaver.instance_id or "")
            error = ErrorCode.unknown_member_id if member_id is None else error
        elif leaver.member_id not in group.pending_members:
            try:
                group.check_member(leaver.member_id, leaver.instance_id)
            except KafkaError as refusal:
                error = refusal.code
        if not error and member_id is not None:
            self._rebalancing.drop(group, member_id, draft)
        return Left(leaver.member_id, leaver.instance_id, error)

    def on_session_end(self, group: ClassicGroup, member_id: str, draft: Draft) -> None:
        """Nothing was heard from a member, or of an id that was given out, for the time that it may be silent."""
        member = group.members.get(member_id)
        if member is not None and member.is_waiting and not member.is_new:
            return  # it cannot speak while it waits; its session begins again with the answer
        if member is None and member_id not in group.pending_members:
            return
        self._rebalancing.drop(group, member_id, draft)
        if member is not None or group.state is GroupState.PREPARING:
            self._rebalancing.on_change(group, draft)
