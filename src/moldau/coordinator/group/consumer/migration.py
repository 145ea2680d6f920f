"""A group between the two protocols: from classic to consumer when a member of the newer protocol joins, and back when
the last one of them leaves.

Both ways the members go on with what they have. An upgrade takes the generation as the epoch and every member's
assignment as its target; a downgrade takes the epoch as the generation, and the members join anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.fields import BadFields
from moldau.coordinator.group.classic import ClassicGroup, GroupState
from moldau.coordinator.group.consumer import records as consumer_records
from moldau.coordinator.group.consumer.edit import Edit
from moldau.coordinator.group.consumer.embedded import (
    CONSUMER,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.records import ClassicMetadata
from moldau.coordinator.group.consumer.settings import ConsumerSettings
from moldau.coordinator.group.consumer.topics import Topics, metadata_hash
from moldau.coordinator.group.draft import Draft
from moldau.coordinator.group.member import Member
from moldau.coordinator.group.messages import Joined, Synced
from moldau.coordinator.group.records import GroupForgotten, GroupRecorded, MemberRecorded
from moldau.coordinator.group.settings import GroupSettings


class Migration:
    def __init__(self, settings: GroupSettings, consumer: ConsumerSettings, topics: Topics) -> None:
        self._classic_members_max = settings.members_max
        self._settings = consumer
        self._topics = topics

    # ---- classic to consumer --------------------------------------------------------------------------------

    def check_upgrade(self, group: ClassicGroup) -> None:
        """KafkaError where a group with members stays what it is."""
        reason = None
        if not self._settings.migration.allows_upgrade:
            reason = "online upgrade is disabled"
        elif group.protocol_type != CONSUMER:
            reason = "the group does not use the consumer embedded protocol"
        elif len(group.members) > self._settings.members_max:
            reason = "the group size exceeds the consumer group maximum size"
        if reason is not None:
            raise _not_upgraded(group, f"{reason}.")

    def upgrade(self, group: ClassicGroup, draft: Draft) -> Edit:
        """The classic group ends and the consumer group begins, in one decision with what follows."""
        try:
            members = [self._upgraded(group, member) for member in group.members.values()]
        except BadFields:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed.") from None
        members = self._with_claims(group, members)
        draft.record(GroupForgotten(group.group_id))
        edit = Edit(ConsumerGroup(group.group_id), draft)
        subscribed = set().union(*(member.topics for member in members))
        for row in members:
            edit.record(row.as_subscribed(group.group_id))
        found = metadata_hash(self._topics, subscribed)
        edit.record(consumer_records.EpochRecorded(group.group_id, group.generation, found))
        for row in members:
            target = {topic_id: tuple(sorted(held)) for topic_id, held in row.assigned.items()}
            edit.record(consumer_records.TargetRecorded(group.group_id, row.member_id, target))
        edit.record(consumer_records.TargetEpochRecorded(group.group_id, group.generation))
        for row in members:
            edit.record(row.as_assigned(group.group_id))
        return edit

    @staticmethod
    def release(group: ClassicGroup, draft: Draft) -> None:
        """Whoever waits in a classic group that was upgraded is to join the consumer group."""
        again = ErrorCode.rebalance_in_progress
        for member in group.members.values():
            draft.answer(group.take_join(member), Joined(again, member.member_id))
            reply, member.sync_reply = member.sync_reply, None
            draft.answer(reply, Synced(again))

    def _with_claims(self, group: ClassicGroup, rows: list[ConsumerMember]) -> list[ConsumerMember]:
        """A rebalance that begins before the last one is over takes all assignments back, but a cooperative member
        keeps what it has meanwhile: it says so when it joins. In Kafka this could be given to another at once.
        """
        if group.state is GroupState.STABLE:
            return rows
        held = {
            (topic_id, number)
            for row in rows
            for topic_id, numbers in row.assigned.items()
            for number in numbers
        }
        claiming = []
        for row in rows:
            member = group.members[row.member_id]
            claims = {} if member.assignment else self.by_id(_subscription(group, member).owned)
            assigned: dict[UUID, dict[int, int]] = {}
            for place in ((topic_id, number) for topic_id, numbers in claims.items() for number in numbers):
                if place not in held:
                    held.add(place)
                    assigned.setdefault(place[0], {})[place[1]] = group.generation
            claiming.append(row._replace(assigned=assigned) if assigned else row)
        return claiming

    def _upgraded(self, group: ClassicGroup, member: Member) -> ConsumerMember:
        subscription = _subscription(group, member)
        partitions, user_data = read_assignment(member.assignment)
        if user_data:
            raise _not_upgraded(
                group,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                "default assignor before re-attempting the upgrade.",
            )
        assigned = {
            topic_id: dict.fromkeys(numbers, group.generation)
            for topic_id, numbers in self.by_id(partitions).items()
            if numbers
        }
        return ConsumerMember(
            member.member_id,
            member.instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=assigned,
        )

    # ---- consumer to classic --------------------------------------------------------------------------------

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[ConsumerMember]) -> bool:
        """Whether only members of the classic protocol would be left, and the group may follow them."""
        gone = {member.member_id: member.classic is not None for member in leaving}
        left = len(group.members) - len(gone)
        classic_left = group.classic_count - sum(gone.values())
        is_classic = 0 < left == classic_left <= self._classic_members_max
        return is_classic and self._settings.migration.allows_downgrade

    def may_replace(self, group: ConsumerGroup, instance_id: str | None) -> bool:
        """Whether a classic instance takes the place of the only consumer, and the group may follow."""
        replaced = group.static_member(instance_id)
        if replaced is None or replaced.classic is not None:
            return False
        count = len(group.members)
        is_classic = group.classic_count == count - 1 and count <= self._classic_members_max
        return is_classic and self._settings.migration.allows_downgrade

    @staticmethod
    def is_settled(group: ConsumerGroup) -> bool:
        """Everyone has what it is to have. Otherwise the classic group assigns anew, or partitions would be nobody's.

        Kafka does so where there is no target for the last epoch, but not where members are on their way to it.
        """
        epoch = group.assignment_epoch
        return epoch >= group.epoch and all(one.is_reconciled_to(epoch) for one in group.members.values())

    def downgrade(self, edit: Edit, leaving: Collection[ConsumerMember]) -> None:
        """Records only; the members' timers and the rebalance follow when they are applied.

        Members know the epoch from before this decision, so that is the generation in which they go on.
        """
        group, draft = edit.group, edit.draft
        gone = {member.member_id for member in leaving}
        left = [member for member in group.members.values() if member.member_id not in gone]
        for record in group.tombstones():
            draft.record(record)
        scratch = ClassicGroup(group.group_id)
        for member in left:
            scratch.add(self._downgraded(member), CONSUMER)
        protocol = scratch.select_protocol()
        rows = tuple(self._row(member, protocol) for member in left)
        draft.record(
            GroupRecorded(
                group.group_id,
                CONSUMER,
                edit.original.epoch,
                protocol,
                scratch.leader,
                draft.moment.wall_ms,
                rows,
            )
        )

    def _downgraded(self, member: ConsumerMember) -> Member:
        assert member.classic is not None
        return Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            member.classic.protocols,
        )

    def _row(self, member: ConsumerMember, protocol: str) -> MemberRecorded:
        """With what it has not given up yet: it goes to nobody else, should the group be upgraded before it has."""
        return self._downgraded(member).as_recorded(
            protocol, self.assignment(member._replace(assigned=member.held))
        )

    # ---- names and ids --------------------------------------------------------------------------------------

    def assignment(self, member: ConsumerMember) -> bytes:
        """What a member has, as the classic protocol tells it, in the version in which the member speaks."""
        assert member.classic is not None
        try:
            version = read_subscription(member.classic.protocols[0][1]).version
        except BadFields:
            version = 0
        named = {
            self._topics.topic_by_id[topic_id].name: tuple(sorted(held))
            for topic_id, held in member.assigned.items()
            if topic_id in self._topics.topic_by_id
        }
        return write_assignment(version, named)

    def by_id(self, partitions: Mapping[str, tuple[int, ...]]) -> dict[UUID, tuple[int, ...]]:
        """Topics that are not there have no id, and nobody owns anything of them."""
        return {
            self._topics.topics[name].topic_id: numbers
            for name, numbers in partitions.items()
            if name in self._topics.topics
        }


def _subscription(group: ClassicGroup, member: Member) -> Subscription:
    """In the protocol that was chosen; before there is one, in the one that the member likes best."""
    return read_subscription(member.metadata(group.protocol) or member.protocols[0][1])


def _not_upgraded(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}",
    )
