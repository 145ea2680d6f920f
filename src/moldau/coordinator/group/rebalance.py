"""The rebalance of a classic group: from the first sign of a change to the next generation.

    Stable, Empty --prepare--> PreparingRebalance --complete_join--> CompletingRebalance --the leader's sync--> Stable

Members join anew until all have, or until the longest rebalance time-out of any of them has passed; who has not joined
by then is out, unless it is static. A group that was empty waits `group.initial.rebalance.delay.ms` for more members
instead, again and again while they come. Then every member is told the generation, and the leader all members. Who does
not ask for its assignment within the time-out is out too, and the group rebalances again.
"""

from __future__ import annotations

from typing import Literal

from moldau.base.errors import ErrorCode
from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.group.classic import ClassicGroup, GroupState
from moldau.coordinator.group.draft import Draft
from moldau.coordinator.group.member import Member
from moldau.coordinator.group.messages import UNKNOWN_MEMBER, Joined, Synced
from moldau.coordinator.group.settings import GroupSettings

TimerKey = tuple[str, str | None, str | None]
"""What a deadline is about: a group and a member (a session), a group (its phase), or the shard itself."""


class Rebalancing:
    """The steps, over any group; they keep no state but the deadlines."""

    def __init__(self, settings: GroupSettings, deadlines: Deadlines[TimerKey]) -> None:
        self._settings = settings
        self._deadlines = deadlines

    # ---- sessions -------------------------------------------------------------------------------------------

    def heard_from(
        self, group: ClassicGroup, member: Member, draft: Draft, timeout_ms: int | None = None
    ) -> None:
        """The member is alive: its session begins anew."""
        at_ms = draft.moment.ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        self._deadlines.set(("session", group.group_id, member.member_id), at_ms)

    def heard_from_pending(self, group: ClassicGroup, member_id: str, draft: Draft, timeout_ms: int) -> None:
        """An id was given out; it is to be used before this time has passed."""
        group.pending_members[member_id] = None
        self._deadlines.set(("session", group.group_id, member_id), draft.moment.ms + timeout_ms)

    def drop(self, group: ClassicGroup, member_id: str, draft: Draft) -> None:
        """Take a member, or an id that was given out, from the group. What it waits for ends here."""
        member = group.members.get(member_id)
        if member is not None:
            draft.answer(group.take_join(member), Joined(ErrorCode.unknown_member_id, UNKNOWN_MEMBER))
            reply, member.sync_reply = member.sync_reply, None
            draft.answer(reply, Synced(ErrorCode.unknown_member_id))
        group.remove(member_id)
        self._deadlines.cancel(("session", group.group_id, member_id))

    def on_change(self, group: ClassicGroup, draft: Draft) -> None:
        """Members came, left or changed: rebalance, or look whether the rebalance under way is complete."""
        if group.state is GroupState.PREPARING:
            if group.has_all_joined and not group.is_initial:
                self.complete_join(group, draft)
        else:
            self.prepare(group, draft)

    # ---- phases ---------------------------------------------------------------------------------------------

    def prepare(self, group: ClassicGroup, draft: Draft) -> None:
        """All members are to join again. They learn it by their heartbeats, or as answers that they wait for."""
        if group.state is GroupState.COMPLETING:
            self.end_syncs(group, draft, ErrorCode.rebalance_in_progress)
            for member in group.members.values():
                member.assignment = b""
        self._cancel("sync", group)
        group.is_initial = group.is_empty
        group.state = GroupState.PREPARING
        if group.is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.has_grown = False
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._set("join", group, draft, delay_ms)
        elif group.has_all_joined:
            self.complete_join(group, draft)
        else:
            self._set("join", group, draft, group.rebalance_timeout_ms)

    def on_join_deadline(self, group: ClassicGroup, draft: Draft) -> None:
        if group.state is not GroupState.PREPARING:
            return
        if group.is_initial and group.has_grown and group.initial_remaining_ms:
            group.has_grown = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms -= delay_ms
            self._set("join", group, draft, delay_ms)
        else:
            self.complete_join(group, draft)

    def complete_join(self, group: ClassicGroup, draft: Draft) -> None:
        """Those who have joined are the next generation."""
        self._cancel("join", group)
        for member in list(group.members.values()):
            if member.join_reply is None and member.instance_id is None:
                self.drop(group, member.member_id, draft)
        if not group.members:
            group.state = GroupState.EMPTY
            draft.record(group.as_emptied(draft.moment.wall_ms))
        elif not group.elect_joined_leader():
            # Only static members are left, and none has come back yet: their sessions decide.
            self._set("join", group, draft, group.rebalance_timeout_ms)
        else:
            group.begin_generation()
            self._set("sync", group, draft, group.rebalance_timeout_ms)
            for member in group.members.values():
                draft.answer(group.take_join(member), joined(group, member))
                member.is_new = False
                self.heard_from(group, member, draft)

    def on_sync_deadline(self, group: ClassicGroup, draft: Draft) -> None:
        """Who has not asked for its assignment by now is not coming."""
        if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            self.drop(group, member_id, draft)
        self.prepare(group, draft)

    def has_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            self._cancel("sync", group)

    def end_syncs(
        self,
        group: ClassicGroup,
        draft: Draft,
        error: ErrorCode = ErrorCode.none,
        assignments: dict[str, bytes] | None = None,
    ) -> None:
        """Answer everyone who waits for an assignment. The session of a member begins again with its answer."""
        for member in group.members.values():
            reply, member.sync_reply = member.sync_reply, None
            if reply is not None:
                if error:
                    draft.answer(reply, Synced(error))
                else:
                    given = (assignments or {}).get(member.member_id, b"")
                    draft.answer(reply, Synced(error, group.protocol_type, group.protocol, given))
                self.heard_from(group, member, draft)

    def _set(self, phase: Literal["join", "sync"], group: ClassicGroup, draft: Draft, delay_ms: int) -> None:
        self._deadlines.set((phase, group.group_id, None), draft.moment.ms + delay_ms)

    def _cancel(self, phase: Literal["join", "sync"], group: ClassicGroup) -> None:
        self._deadlines.cancel((phase, group.group_id, None))


def joined(group: ClassicGroup, member: Member) -> Joined:
    """What a member is told of the generation that it is in; the leader learns who else is."""
    is_leader = group.leader == member.member_id
    return Joined(
        ErrorCode.none,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or UNKNOWN_MEMBER,
        members=tuple(m.as_joined(group.protocol) for m in group.members.values()) if is_leader else (),
    )
