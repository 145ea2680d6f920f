"""The group coordinator's state machine: the groups and offsets of one partition of `__consumer_offsets`.

The events of groups come in here, find their group, and go on to `classic_protocol` or `commits`; the records that they
decide on come back through `apply`. Pure: no clock, no chance but `new_id`, no input or output. Groups of the newer
protocol are in the same table; their events are in `consumer.events`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import (
    COORDINATOR_ELEMENTS_PER_STEP,
    GROUPS_INLINE_MAX,
    OFFSETS_INLINE_MAX,
    OFFSETS_PER_TRANSACTION_MAX,
)
from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.group import records
from moldau.coordinator.group.classic import ClassicGroup
from moldau.coordinator.group.classic_protocol import ClassicProtocol
from moldau.coordinator.group.commits import Commits, Group
from moldau.coordinator.group.consumer.events import DOWNGRADED, UNSETTLED, ConsumerEvents, Groups
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.messages import Beat, DescribedGroup, Resolved
from moldau.coordinator.group.consumer.protocol import MEMBER_TIMERS
from moldau.coordinator.group.consumer.settings import ConsumerSettings
from moldau.coordinator.group.consumer.topics import Topics
from moldau.coordinator.group.draft import Draft
from moldau.coordinator.group.messages import (
    UNKNOWN_MEMBER,
    AllLeft,
    Commit,
    Described,
    Fetched,
    Heard,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Listed,
    PartitionWanted,
    Sync,
    Synced,
)
from moldau.coordinator.group.offsets import Committed, Offsets
from moldau.coordinator.group.rebalance import Rebalancing, TimerKey
from moldau.coordinator.group.records import (
    GroupForgotten,
    GroupRecord,
    GroupRecorded,
    OffsetCommitted,
    OffsetForgotten,
)
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import NOTHING, Decision, Moment, Producer

EXPIRY: TimerKey = ("expiry", None, None)
GROUPS_EXPIRED_PER_TURN = 200
OFFSETS_LOOKED_AT_PER_TURN = 5_000


class GroupShard:
    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        topics: Topics,
        consumer: ConsumerSettings | None = None,
    ) -> None:
        self._settings = settings
        self._groups: Groups = {}
        self._offsets = Offsets()
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._rebalancing = Rebalancing(settings, self._deadlines)
        self._classic = ClassicProtocol(settings, self._rebalancing, new_id)
        self._consumer = ConsumerEvents(
            self._groups, settings, consumer or ConsumerSettings(), topics, self._deadlines, new_id
        )
        self._commits = Commits(settings, self._offsets)
        self._to_expire: deque[str] = deque()

    # ---- the log --------------------------------------------------------------------------------------------

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return records.decode(key, value)

    def apply(self, record: GroupRecord, producer: Producer | None) -> None:
        match record:
            case OffsetCommitted():
                if producer is not None:
                    self._offsets.commit_in_transaction(record, producer)
                else:
                    self._offsets.commit(record)
                self._ensure(record.group_id)
            case OffsetForgotten():
                self._offsets.forget(record)
            case GroupRecorded():
                self._ensure_classic(record.group_id).take(record)
            case GroupForgotten():
                if isinstance(self._groups.get(record.group_id), ClassicGroup):
                    del self._groups[record.group_id]
            case _:
                self._consumer.apply(record)

    def apply_marker(self, producer: Producer, *, is_commit: bool) -> None:
        for record in self._offsets.end_transaction(producer, is_commit=is_commit):
            self._ensure(record.group_id)

    def _ensure(self, group_id: str) -> None:
        """A group that is only heard of by its offsets is one without members."""
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id)

    def _ensure_classic(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            group = self._groups[group_id] = ClassicGroup(group_id)
        return group

    # ---- life and time --------------------------------------------------------------------------------------

    def on_loaded(self, moment: Moment) -> Decision:
        """Members of the groups that were loaded have a whole session to report."""
        draft = Draft(moment)
        self._deadlines.set(EXPIRY, moment.ms + self._settings.expiry_interval_ms)
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                self._consumer.on_loaded(group, moment)
                continue
            for member in group.members.values():
                self._rebalancing.heard_from(group, member, draft)
            if len(group.members) > self._settings.members_max:
                self._rebalancing.prepare(group, draft)
        return draft.decision()

    def parked(self) -> list[Reply]:
        replies = []
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                replies += [reply for reply in (member.join_reply, member.sync_reply) if reply is not None]
                member.join_reply = member.sync_reply = None
        return replies

    @property
    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms

    def on_time(self, moment: Moment) -> Iterator[Decision]:
        for what, group_id, member_id in self._deadlines.pop_due(moment.ms):
            if what == EXPIRY[0]:
                yield from self._expire(moment)
                continue
            group = self._groups.get(group_id or "")
            if isinstance(group, ClassicGroup):
                yield self._on_classic_timer(what, group, member_id or UNKNOWN_MEMBER, moment)
            elif group is not None and what in MEMBER_TIMERS:
                yield self._consumer.on_timer(what, group, member_id or UNKNOWN_MEMBER, moment)

    def _on_classic_timer(self, what: str, group: ClassicGroup, member_id: str, moment: Moment) -> Decision:
        draft = Draft(moment)
        if what == "join":
            self._rebalancing.on_join_deadline(group, draft)
        elif what == "sync":
            self._rebalancing.on_sync_deadline(group, draft)
        elif what == "session":
            self._classic.on_session_end(group, member_id, draft)
        elif what in DOWNGRADED:
            self._consumer.on_downgraded(group)
            for member in group.members.values():
                self._rebalancing.heard_from(group, member, draft)
            if what == UNSETTLED:
                self._rebalancing.prepare(group, draft)
        return draft.decision()

    def _expire(self, moment: Moment) -> Iterator[Decision]:
        """Some groups, and some of their offsets, at a time; the rest soon, and all again after the interval."""
        if not self._to_expire:
            self._to_expire.extend(self._groups)
        offsets_left = OFFSETS_LOOKED_AT_PER_TURN
        for _ in range(min(GROUPS_EXPIRED_PER_TURN, len(self._to_expire))):
            group = self._groups.get(self._to_expire.popleft())
            if group is None:
                continue
            offsets_left -= sum(map(len, self._offsets.of_group(group.group_id).values()))
            gone = self._expired(group, moment.wall_ms)
            if gone:
                yield Decision(gone, is_atomic=False)
            if len(gone) == COORDINATOR_ELEMENTS_PER_STEP:
                self._to_expire.appendleft(group.group_id)
                break
            if offsets_left < 0:
                break
        delay_ms = 1 if self._to_expire else self._settings.expiry_interval_ms
        self._deadlines.set(EXPIRY, moment.ms + delay_ms)

    def _expired(self, group: Group, wall_ms: int) -> list[GroupRecord]:
        expired = self._commits.expired(group, wall_ms)
        gone: list[GroupRecord] = [*islice(expired, COORDINATOR_ELEMENTS_PER_STEP)]
        if len(gone) == COORDINATOR_ELEMENTS_PER_STEP:
            return gone  # there may be more
        held = sum(map(len, self._offsets.of_group(group.group_id).values()))
        is_unused = group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_members)
        if is_unused and held == len(gone) and not self._offsets.has_unstable(group.group_id):
            gone += _tombstones(group)
        return gone

    # ---- members --------------------------------------------------------------------------------------------

    def join(self, join: Join, reply: Reply, moment: Moment) -> Decision:
        draft = Draft(moment)
        settings = self._settings
        if not settings.session_timeout_ms_min <= join.session_timeout_ms <= settings.session_timeout_ms_max:
            draft.answer(reply, Joined(ErrorCode.invalid_session_timeout, join.member_id))
            return draft.decision()
        group = self._groups.get(join.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._consumer.join(group, join, reply, moment)
        if not isinstance(group, ClassicGroup):
            if join.member_id != UNKNOWN_MEMBER:
                draft.answer(reply, Joined(ErrorCode.unknown_member_id, join.member_id))
                return draft.decision()
            for record in _tombstones(group) if group is not None else ():
                draft.record(record)
            group = self._groups[join.group_id] = ClassicGroup(join.group_id)
            draft.record(group.as_created(moment.wall_ms))
        self._classic.join(group, join, reply, draft)
        return draft.decision()

    def sync(self, sync: Sync, reply: Reply, moment: Moment) -> Decision:
        draft = Draft(moment)
        group = self._groups.get(sync.group_id)
        if group is None:
            draft.answer(reply, Synced(ErrorCode.unknown_member_id))
        elif isinstance(group, ConsumerGroup):
            return self._consumer.sync(group, sync, reply, moment)
        else:
            self._classic.sync(group, sync, reply, draft)
        return draft.decision()

    def heartbeat(self, heartbeat: Heartbeat, reply: Reply, moment: Moment) -> Decision:
        """Answered whatever waits to be committed: a member must not be lost for a slow disk."""
        group = self._groups.get(heartbeat.group_id)
        heard = Heard(ErrorCode.unknown_member_id)
        if isinstance(group, ConsumerGroup):
            return self._consumer.heartbeat(group, heartbeat, reply, moment)
        if group is not None:
            heard = self._classic.heartbeat(group, heartbeat, Draft(moment))
        return Decision(answers_now=((reply, heard),))

    def leave(self, group_id: str, leavers: Sequence[Leaver], reply: Reply, moment: Moment) -> Decision:
        draft = Draft(moment)
        group = self._groups.get(group_id)
        if group is None:
            unknown = ErrorCode.unknown_member_id
            left = tuple(Left(leaver.member_id, leaver.instance_id, unknown) for leaver in leavers)
            draft.answer(reply, AllLeft(ErrorCode.none, left))
        elif isinstance(group, ConsumerGroup):
            return self._consumer.leave(group, leavers, reply, moment)
        else:
            draft.answer(reply, self._classic.leave(group, leavers, draft))
        return draft.decision()

    def beat(self, beat: Beat, reply: Reply, moment: Moment) -> Decision:
        """A heartbeat of the newer protocol."""
        return self._consumer.beat(beat, reply, moment)

    # ---- what takes long: a thread decides on it ------------------------------------------------------------

    def beat_takes_long(self, beat: Beat) -> bool:
        return self._consumer.takes_long(beat)

    def is_large(self, group_id: str) -> bool:
        """Whether a look at all of a group, or a change of who is in it, takes long."""
        return self._consumer.is_large(group_id)

    def deletion_takes_long(self, topic: str) -> bool:
        if len(self._groups) > GROUPS_INLINE_MAX:
            return True
        return self._offsets.count_of_topic(topic) > OFFSETS_INLINE_MAX

    def marker_takes_long(self, producer: Producer) -> bool:
        return self._offsets.count_open(producer) > OFFSETS_INLINE_MAX

    # ---- what was found aside -------------------------------------------------------------------------------

    def on_resolved(self, resolved: Resolved, moment: Moment) -> Decision:
        """What an expression of a group stands for, found aside (`consumer.resolver`)."""
        return self._consumer.on_resolved(resolved, moment)

    # ---- offsets --------------------------------------------------------------------------------------------

    def commit(self, commit: Commit, reply: Reply, moment: Moment) -> Decision:
        """Answered with an outcome for each offset; KafkaError's code for all of them is a list as well."""
        try:
            self._check_commit(commit, Draft(moment))
        except KafkaError as refusal:
            return Decision(answers=((reply, [refusal.code] * len(commit.offsets)),))
        accepted, errors = self._commits.decide(commit, moment.wall_ms)
        return Decision(accepted, ((reply, errors),))

    def _check_commit(self, commit: Commit, draft: Draft) -> None:
        group = self._groups.get(commit.group_id)
        if group is None:
            if commit.generation >= 0:
                missing = ErrorCode.group_id_not_found if commit.knows_missing_groups else None
                raise KafkaError(missing or ErrorCode.illegal_generation)
            return
        if isinstance(group, ConsumerGroup):
            group.check_commit(commit)
            return
        group.check_commit(commit.member_id, commit.instance_id, commit.generation)
        member = group.members.get(commit.member_id)
        if member is not None:
            self._rebalancing.heard_from(group, member, draft)

    def commit_in_transaction(
        self, commit: Commit, producer: Producer, reply: Reply, moment: Moment
    ) -> Decision:
        """As part of a transaction, which its coordinator knows of. Answered as `commit`."""
        group = self._groups.get(commit.group_id)
        try:
            if isinstance(group, ConsumerGroup):
                group.check_commit(commit, in_transaction=True)
            elif group is not None:
                group.check_commit(
                    commit.member_id, commit.instance_id, commit.generation, in_transaction=True
                )
            elif commit.generation >= 0:
                raise KafkaError(ErrorCode.illegal_generation)
            if self._offsets.count_open(producer) + len(commit.offsets) > OFFSETS_PER_TRANSACTION_MAX:
                raise KafkaError(ErrorCode.unknown_server_error)
        except KafkaError as refusal:
            return Decision(answers=((reply, [refusal.code] * len(commit.offsets)),))
        accepted, errors = self._commits.decide(commit, moment.wall_ms)
        return Decision(accepted, ((reply, errors),), producer=producer)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether one who says to be a member of this epoch may see the group's offsets."""
        group = self._groups.get(group_id)
        try:
            if isinstance(group, ConsumerGroup):
                group.check_fetch(member_id, member_epoch)
        except KafkaError as refusal:
            return refusal.code
        return ErrorCode.none

    def fetch(
        self, group_id: str, wanted: Iterable[PartitionWanted] | None, *, require_stable: bool
    ) -> list[Fetched]:
        """A look: the offsets of some partitions, or of all (None)."""
        if wanted is None:
            return self._commits.fetch_all(group_id, require_stable=require_stable)
        return self._commits.fetch(group_id, wanted, require_stable=require_stable)

    def partitions_of(self, group_id: str) -> dict[str, list[int]]:
        """A look: where a group has committed offsets, by topic."""
        return {topic: list(partitions) for topic, partitions in self._offsets.of_group(group_id).items()}

    def delete_offsets(self, group_id: str, wanted: Sequence[tuple[str, int]], reply: Reply) -> Decision:
        """Answered with an error for all, or an outcome for each."""
        group = self._groups.get(group_id)
        try:
            if group is None:
                raise KafkaError(ErrorCode.group_id_not_found)
            group.check_delete_offsets()
        except KafkaError as refusal:
            return Decision(answers=((reply, (refusal.code, [])),))
        gone, errors = self._commits.delete(group, wanted)
        return Decision(gone, ((reply, (ErrorCode.none, errors)),))

    def on_topics_deleted(self, topics: Iterable[str]) -> Decision:
        names = list(topics)
        self._consumer.on_topics_changed(names)
        return Decision(self._commits.of_topics(names), is_atomic=False)

    def on_topics_changed(self, topics: Iterable[str]) -> Decision:
        """Topics were created, or have more partitions."""
        self._consumer.on_topics_changed(topics)
        return NOTHING

    # ---- groups ---------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> Described | str:
        """A look at a classic group, or why there is nothing to show."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.described()
        return f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."

    def describe_consumer(self, group_id: str) -> DescribedGroup | str:
        """The same of a consumer group."""
        return self._consumer.describe(group_id)

    def list_groups(self) -> list[Listed]:
        """A look at all groups."""
        return [group.listed() for group in self._groups.values()]

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def listed(self, group_id: str) -> Listed | None:
        group = self._groups.get(group_id)
        return None if group is None else group.listed()

    def member_count(self, group_id: str) -> int:
        group = self._groups.get(group_id)
        return 0 if group is None else len(group.members)

    def offsets_of(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """What a group has committed: topic -> partition -> offset."""
        return self._offsets.of_group(group_id)

    def delete(self, group_id: str, reply: Reply) -> Decision:
        """A group without members goes with its offsets; where they are many, some of them, and the answer is None."""
        group = self._groups.get(group_id)
        try:
            if group is None:
                raise KafkaError(ErrorCode.group_id_not_found)
            group.check_delete()
        except KafkaError as refusal:
            return Decision(answers=((reply, refusal.code),))
        some = self._commits.some_of(group_id, COORDINATOR_ELEMENTS_PER_STEP)
        if len(some) == COORDINATOR_ELEMENTS_PER_STEP:
            return Decision(some, ((reply, None),), is_atomic=False)
        return Decision([*some, *_tombstones(group)], ((reply, ErrorCode.none),), is_atomic=False)


def _tombstones(group: Group) -> list[GroupRecord]:
    """Take back a group, without its offsets."""
    if isinstance(group, ConsumerGroup):
        return [*group.tombstones()]
    return [GroupForgotten(group.group_id)]
