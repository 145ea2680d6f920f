"""A consumer group: its epochs, its members, the target of each, and who holds which partition.

    Empty --a member joins--> Assigning --a target is computed--> Reconciling --every member has its target--> Stable

Everything in it was recorded (`take`); but for `is_outdated`, which says that topics may have changed. The group's
epoch rises when members, subscriptions or topics change; the assignment's follows when a target was computed for it;
a member's epoch follows when it has given up what it is not to have in the target. A partition that someone holds, or
was asked to give up, goes to nobody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, MutableMapping
from enum import Enum
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.embedded import CONSUMER
from moldau.coordinator.group.consumer.holders import Holders
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.overlay import Overlay
from moldau.coordinator.group.consumer.records import ConsumerRecord, RegexRecorded, Target
from moldau.coordinator.group.messages import Commit, Listed
from moldau.coordinator.group.offsets import Committed

INITIAL_EPOCH = 1
NO_TARGET: Target = {}


class ConsumerState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    kind = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: MutableMapping[str, ConsumerMember] = {}
        self.static_members: MutableMapping[str, str] = {}  # instance id -> member id
        self.targets: MutableMapping[str, Target] = {}
        self.regexes: MutableMapping[str, RegexRecorded] = {}
        self.has_partition_metadata = False
        """A record is there that Kafka wrote before 4.1."""
        self.is_outdated = True
        """What is known of the subscribed topics may have changed. After a fail-over it may, too."""
        self.holders = Holders()
        self.classic_count = 0
        """Members that speak the classic protocol."""
        self.subscriptions = 0
        """Topics that members name, counted as often as they are named."""
        self._topic_readers: Counter[str] = Counter()  # of those who name them
        self._regex_readers: Counter[str] = Counter()

    def draft(self) -> ConsumerGroup:
        """The group as a decision of several steps sees it: what they record is in it, and not in this one."""
        other = ConsumerGroup(self.group_id)
        other.epoch, other.metadata_hash = self.epoch, self.metadata_hash
        other.assignment_epoch = self.assignment_epoch
        other.assignment_timestamp_ms = self.assignment_timestamp_ms
        other.members, other.static_members = Overlay(self.members), Overlay(self.static_members)
        other.targets, other.regexes = Overlay(self.targets), Overlay(self.regexes)
        other.has_partition_metadata, other.is_outdated = self.has_partition_metadata, self.is_outdated
        other.holders, other.classic_count = self.holders.draft(), self.classic_count
        other.subscriptions = self.subscriptions
        other._topic_readers, other._regex_readers = self._topic_readers.copy(), self._regex_readers.copy()
        return other

    # ---- what is recorded -----------------------------------------------------------------------------------

    def take(self, record: ConsumerRecord) -> None:
        match record:
            case records.EpochRecorded():
                self.epoch, self.metadata_hash = record.epoch, record.metadata_hash
                self.is_outdated = False
            case records.PartitionMetadataRecorded():
                self.has_partition_metadata = True
            case records.PartitionMetadataForgotten():
                self.has_partition_metadata = False
            case records.TargetEpochRecorded():
                self.assignment_epoch, self.assignment_timestamp_ms = record.epoch, record.timestamp_ms
            case records.TargetEpochForgotten():
                self.assignment_epoch, self.assignment_timestamp_ms = 0, 0
            case records.TargetRecorded():
                self.targets[record.member_id] = record.target
            case records.TargetForgotten():
                self.targets.pop(record.member_id, None)
            case records.RegexRecorded():
                self.regexes[record.regex] = record
            case records.RegexForgotten():
                self.regexes.pop(record.regex, None)
            case _:
                self._take_of_member(record)

    def _take_of_member(self, record: ConsumerRecord) -> None:
        match record:
            case records.MemberRecorded():
                member = self.member_or_new(record.member_id)
                self._count_member(member, -1)
                member = self.members[record.member_id] = member.subscribed_as(record)
                self._count_member(member, 1)
                if record.instance_id is not None:
                    self.static_members[record.instance_id] = record.member_id
            case records.MemberForgotten():
                gone = self.members.pop(record.member_id, None)
                if gone is not None:
                    self._count_member(gone, -1)
                    self._release(gone)
                    if self.static_members.get(gone.instance_id or "") == gone.member_id:
                        del self.static_members[gone.instance_id or ""]
            case records.CurrentRecorded():
                self._hold(self.member_or_new(record.member_id).assigned_as(record))
            case records.CurrentForgotten():
                if record.member_id in self.members:
                    self._hold(self.members[record.member_id].unassigned())

    def _count_member(self, member: ConsumerMember, change: int) -> None:
        self.subscriptions += change * len(member.topics)
        for topic in member.topics:
            _count(self._topic_readers, topic, change)
        if member.regex:
            _count(self._regex_readers, member.regex, change)
        if member.classic is not None:
            self.classic_count += change

    def _hold(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before)
        self.members[member.member_id] = member
        self.holders.hold(member.member_id, member.assigned)
        self.holders.hold(member.member_id, member.revoking)

    def _release(self, member: ConsumerMember) -> None:
        self.holders.release(member.member_id, member.assigned)
        self.holders.release(member.member_id, member.revoking)

    # ---- looks ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def holder(self, topic_id: UUID, partition: int) -> str | None:
        return self.holders.of(topic_id).get(partition)

    def member(self, member_id: str) -> ConsumerMember:
        """KafkaError where it is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def member_or_new(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return self.members.get(self.static_members.get(instance_id or "", ""))

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """By name, and by what its expression stands for."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics.union(resolved.topics)

    def subscribed_topics(self) -> Collection[str]:
        """By name or by an expression. Counted as members come and go, since every join asks for it."""
        topics = dict.fromkeys(self._topic_readers)
        for regex in self._regex_readers:
            if regex in self.regexes:
                topics.update(dict.fromkeys(self.regexes[regex].topics))
        return topics.keys()

    def subscribers(self, regex: str) -> int:
        return self._regex_readers[regex]

    @property
    def wanted_regexes(self) -> list[str]:
        return sorted(self._regex_readers)

    def preferred_assignor(self) -> str | None:
        """The one that most members name."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else None

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of its target is still another's."""
        return any(
            self.holder(topic_id, partition) not in (None, member.member_id)
            for topic_id, partitions in self.targets.get(member.member_id, NO_TARGET).items()
            for partition in partitions
        )

    # ---- members that speak the classic protocol ------------------------------------------------------------

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can be understood by the members that may follow it back."""
        if protocol_type != CONSUMER:
            return False
        known = [
            {name for name, _ in member.classic.protocols}
            for member in self.members.values()
            if member.classic is not None
        ]
        return any(all(name in protocols for protocols in known) for name in names)

    # ---- checks of requests ---------------------------------------------------------------------------------

    def check_commit(self, commit: Commit, *, in_transaction: bool = False) -> None:
        """Members commit with their epoch, or an older one for what they have had since (KIP-1251); anyone may while
        there are no members. The commit is refused as a whole.
        """
        epoch = commit.generation
        if epoch < 0 and self.is_empty:
            return
        if in_transaction and epoch < 0 and not commit.member_id and commit.instance_id is None:
            return
        member = self.member(commit.member_id)
        if not in_transaction and member.classic is None and not commit.knows_missing_groups:
            raise KafkaError(ErrorCode.unsupported_version)
        if epoch == member.epoch:
            return
        old_error = in_transaction or member.classic is not None
        stale = KafkaError(ErrorCode.illegal_generation if old_error else ErrorCode.stale_member_epoch)
        if epoch > member.epoch:
            raise stale
        for one in commit.offsets:
            since = None if one.topic_id is None else member.assignment_epoch(one.topic_id, one.partition)
            if since is None or epoch < since:
                raise stale

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            classic = member.classic is not None
            raise KafkaError(ErrorCode.illegal_generation if classic else ErrorCode.stale_member_epoch)

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.non_empty_group)

    def check_delete_offsets(self) -> None:
        """Which topics it reads is always known."""

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self._topic_readers:
            return True
        resolved = (self.regexes.get(regex) for regex in self._regex_readers)
        return any(topic in found.topics for found in resolved if found is not None)

    def kept_since_ms(self, committed: Committed) -> int | None:
        return committed.commit_timestamp_ms

    def listed(self) -> Listed:
        return Listed(self.group_id, CONSUMER, self.state.value, self.kind)

    def tombstones(self) -> list[ConsumerRecord]:
        """Takes back all that was recorded of the group, in the order that Kafka's replay asks for."""
        group_id = self.group_id
        gone: list[ConsumerRecord] = [records.CurrentForgotten(group_id, member) for member in self.members]
        gone += [records.TargetForgotten(group_id, member) for member in self.targets]
        gone.append(records.TargetEpochForgotten(group_id))
        gone += [records.MemberForgotten(group_id, member) for member in self.members]
        gone += [records.RegexForgotten(group_id, regex) for regex in self.regexes]
        if self.has_partition_metadata:
            gone.append(records.PartitionMetadataForgotten(group_id))
        return [*gone, records.EpochForgotten(group_id)]


def _count(readers: Counter[str], key: str, change: int) -> None:
    readers[key] += change
    if not readers[key]:
        del readers[key]
