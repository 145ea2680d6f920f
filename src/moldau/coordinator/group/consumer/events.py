"""The events of consumer groups in a shard: heartbeats, the classic protocol's requests, time, and changes of topics.

Finds the group, makes it or brings it over from the other protocol, and has the steps decide (`protocol`,
`classic_members`, `migration`). A change of protocol is complete when its records are applied; what follows from it in
the classic group (sessions, a rebalance) comes with a deadline that is due at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import CONSUMER_GROUP_INLINE_MAX
from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.group.classic import ClassicGroup
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.classic_members import ClassicMembers
from moldau.coordinator.group.consumer.describe import described
from moldau.coordinator.group.consumer.edit import Edit
from moldau.coordinator.group.consumer.evolution import Evolution
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState
from moldau.coordinator.group.consumer.messages import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    Beat,
    Beaten,
    DescribedGroup,
    Resolved,
)
from moldau.coordinator.group.consumer.migration import Migration
from moldau.coordinator.group.consumer.protocol import CLASSIC_JOIN, REVOCATION, SESSION, ConsumerProtocol
from moldau.coordinator.group.consumer.records import ConsumerRecord
from moldau.coordinator.group.consumer.settings import ConsumerSettings
from moldau.coordinator.group.consumer.topics import Topics
from moldau.coordinator.group.draft import Draft
from moldau.coordinator.group.messages import (
    UNKNOWN_MEMBER,
    AllLeft,
    Heard,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Sync,
    Synced,
)
from moldau.coordinator.group.rebalance import TimerKey
from moldau.coordinator.group.records import GroupForgotten
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import NOTHING, Decision, Moment

STEADY, UNSETTLED = DOWNGRADED = ("downgraded", "downgraded and unsettled")
"""A classic group again: everyone has what it is to have, or there is something to assign anew."""
RETRY_MS = 1_000
"""When a member that is out of time is looked at again: that it is out may not have been recorded."""
Groups = dict[str, ClassicGroup | ConsumerGroup]


class ConsumerEvents:
    """Over the groups of a shard, which it shares."""

    def __init__(
        self,
        groups: Groups,
        settings: GroupSettings,
        consumer: ConsumerSettings,
        topics: Topics,
        deadlines: Deadlines[TimerKey],
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._deadlines = deadlines
        self._evolution = Evolution(consumer, topics)
        self._protocol = ConsumerProtocol(consumer, self._evolution, deadlines, new_id)
        self._migration = Migration(settings, consumer, topics)
        self._classic = ClassicMembers(consumer.migration, self._protocol, self._migration, deadlines, new_id)

    # ---- the log and time -----------------------------------------------------------------------------------

    def apply(self, record: ConsumerRecord) -> None:
        """A group that was only known by its offsets, or as a classic one, is a consumer group from now on."""
        group = self._groups.get(record.group_id)
        if isinstance(record, records.EpochForgotten):
            if isinstance(group, ConsumerGroup):
                del self._groups[record.group_id]
            return
        if not isinstance(group, ConsumerGroup):
            if type(record).__name__.endswith("Forgotten"):
                return
            group = self._groups[record.group_id] = ConsumerGroup(record.group_id)
        group.take(record)

    def on_loaded(self, group: ConsumerGroup, moment: Moment) -> None:
        group.is_outdated = True
        self._protocol.on_loaded(group, moment)

    def on_timer(self, what: str, group: ConsumerGroup, member_id: str, moment: Moment) -> Decision:
        """A member was silent for too long, or did not do in time what it was asked to."""
        draft = Draft(moment)
        member = group.members.get(member_id)
        if member is not None and _is_late(what, group, member):
            self._remove(Edit(group, draft), [member])
            self._deadlines.set((what, group.group_id, member_id), moment.ms + RETRY_MS)
        return draft.decision()

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """The next heartbeat in a group that reads one of them looks at what has become of it."""
        changed = tuple(names)
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup) and any(map(group.is_subscribed_to, changed)):
                group.is_outdated = True

    def on_resolved(self, resolved: Resolved, moment: Moment) -> Decision:
        """The topics of an expression were found aside."""
        group = self._groups.get(resolved.group_id)
        if not isinstance(group, ConsumerGroup):
            return NOTHING
        edit = Edit(group, Draft(moment))
        self._evolution.resolved(edit, resolved)
        return edit.draft.decision()

    # ---- what takes long ------------------------------------------------------------------------------------

    def takes_long(self, beat: Beat) -> bool:
        """Whether a heartbeat has to look at very many topics or partitions: it does not if nothing has changed."""
        group = self._groups.get(beat.group_id)
        if not isinstance(group, ConsumerGroup):
            return self._is_much(beat.topics or ())
        member = group.members.get(beat.member_id)
        is_steady = member is not None and not group.is_outdated and member.is_reconciled_to(group.epoch)
        if is_steady and beat.is_plain and beat.epoch >= JOINING:
            return False
        return self.is_large(beat.group_id) or self._is_much(beat.topics or ())

    def is_large(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return False
        return group.subscriptions > CONSUMER_GROUP_INLINE_MAX or self._is_much(group.subscribed_topics())

    def _is_much(self, names: Collection[str]) -> bool:
        if len(names) > CONSUMER_GROUP_INLINE_MAX:
            return True
        topics = map(self._topics.topics.get, names)
        partitions = sum(len(topic.partitions) for topic in topics if topic is not None)
        return len(names) + partitions > CONSUMER_GROUP_INLINE_MAX

    # ---- heartbeats -----------------------------------------------------------------------------------------

    def beat(self, beat: Beat, reply: Reply, moment: Moment) -> Decision:
        draft = Draft(moment)
        try:
            if beat.epoch < JOINING:
                answer = self._leave(beat, draft)
            else:
                answer = self._beat(beat, draft)
        except KafkaError as refusal:
            return Decision(answers=((reply, Beaten(refusal.code, refusal.message)),))
        draft.answer(reply, answer)
        return draft.decision()

    def _beat(self, beat: Beat, draft: Draft) -> Beaten:
        edit = self._edit(beat, draft)
        edit.sees = beat.sees
        answer = self._protocol.beat(edit, beat)
        before = self._groups.get(beat.group_id)
        if isinstance(before, ClassicGroup):
            # Only now, when nothing can be refused any more: what is taken from the classic group is not put back.
            self._migration.release(before, draft)
            for member in edit.group.members.values():
                if member.classic is not None:
                    timeout_ms = member.classic.session_timeout_ms
                    self._protocol.heard_from(edit.group, member.member_id, draft.moment, timeout_ms)
        return answer

    def _edit(self, beat: Beat, draft: Draft) -> Edit:
        """The group of a heartbeat; whoever joins makes it, or brings it over from the classic protocol."""
        group = self._groups.get(beat.group_id)
        if isinstance(group, ConsumerGroup):
            return Edit(group, draft)
        if beat.epoch != JOINING:
            missing = self._missing(beat.group_id)
            if group is None:
                missing = KafkaError(missing.code, f"Consumer group {beat.group_id} not found.")
            raise missing
        if group is None:
            return Edit(ConsumerGroup(beat.group_id), draft)
        if group.is_empty:
            draft.record(GroupForgotten(beat.group_id))
            return Edit(ConsumerGroup(beat.group_id), draft)
        self._migration.check_upgrade(group)
        return self._migration.upgrade(group, draft)

    def _leave(self, beat: Beat, draft: Draft) -> Beaten:
        group = self._groups.get(beat.group_id)
        if not isinstance(group, ConsumerGroup):
            raise self._missing(beat.group_id)
        edit = Edit(group, draft)
        answer, leaving = self._protocol.leave(edit, beat)
        self._remove(edit, leaving)
        return answer

    def _remove(self, edit: Edit, leaving: Collection[ConsumerMember]) -> None:
        """Members go; where only classic ones are left, the group goes with them."""
        if not leaving:
            return
        if self._migration.may_downgrade(edit.group, leaving):
            self._downgrade(edit, leaving, UNSETTLED)
        else:
            self._protocol.remove(edit, leaving)

    def _downgrade(self, edit: Edit, leaving: Collection[ConsumerMember], what: str) -> None:
        self._migration.downgrade(edit, leaving)
        self._deadlines.set((what, edit.group.group_id, ""), edit.draft.moment.ms)

    def on_downgraded(self, group: ClassicGroup) -> None:
        """The records are applied: its members are those of a classic group."""
        for member_id in group.members:
            self._protocol.forget_timers(group.group_id, member_id)

    def _missing(self, group_id: str) -> KafkaError:
        is_other = group_id in self._groups
        text = "is not a consumer group." if is_other else "not found."
        return KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} {text}")

    # ---- the classic protocol -------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, join: Join, reply: Reply, moment: Moment) -> Decision:
        edit = Edit(group, Draft(moment))
        is_last = self._migration.may_replace(group, join.instance_id)
        try:
            answer = self._classic.join(edit, join, is_last_step=is_last)
        except KafkaError as refusal:
            return Decision(answers=((reply, Joined(refusal.code, UNKNOWN_MEMBER)),))
        if is_last:
            self._downgrade(edit, (), STEADY if self._migration.is_settled(edit.group) else UNSETTLED)
        edit.draft.answer(reply, answer)
        return edit.draft.decision()

    def sync(self, group: ConsumerGroup, sync: Sync, reply: Reply, moment: Moment) -> Decision:
        try:
            answer = self._classic.sync(group, sync, moment)
        except KafkaError as refusal:
            answer = Synced(refusal.code)
        return Decision(answers=((reply, answer),))

    def heartbeat(self, group: ConsumerGroup, heartbeat: Heartbeat, reply: Reply, moment: Moment) -> Decision:
        try:
            answer = self._classic.heartbeat(group, heartbeat, moment)
        except KafkaError as refusal:
            answer = Heard(refusal.code)
        return Decision(answers_now=((reply, answer),))

    def leave(
        self, group: ConsumerGroup, leavers: Sequence[Leaver], reply: Reply, moment: Moment
    ) -> Decision:
        edit = Edit(group, Draft(moment))
        answers, leaving = self._classic.leave(group, leavers)
        self._remove(edit, leaving)
        edit.draft.answer(reply, AllLeft(ErrorCode.none, tuple(answers)))
        return edit.draft.decision()

    # ---- looks ----------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup | str:
        """Or why there is nothing to show."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return self._missing(group_id).message or ""
        return described(group, self._topics, self._evolution.assignor_of(group))


def _is_late(what: str, group: ConsumerGroup, member: ConsumerMember) -> bool:
    if what == REVOCATION:  # one who is away has given up what it was asked to
        return member.state is MemberState.UNREVOKED and member.epoch != LEAVING_FOR_A_WHILE
    if what == SESSION:
        return True
    if what == CLASSIC_JOIN:
        return member.classic is not None and member.epoch != LEAVING_FOR_A_WHILE
    return member.classic is not None
