"""How a consumer group goes on: its epoch, what its regular expressions stand for, its target, and a member's step."""

from __future__ import annotations

from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.assignors import ASSIGNORS, MemberSpec
from moldau.coordinator.group.consumer.edit import Edit
from moldau.coordinator.group.consumer.group import NO_TARGET, ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.reconcile import Owned, Reconciliation
from moldau.coordinator.group.consumer.settings import ConsumerSettings
from moldau.coordinator.group.consumer.topics import Topics, metadata_hash
from moldau.coordinator.java import java_order
from moldau.coordinator.re2 import BadExpression, Expression

REGEX_INTERVAL_MS = 10_000
"""Kafka looks for new topics that an expression may stand for at most this often."""


class Evolution:
    def __init__(self, settings: ConsumerSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics

    # ---- the group's epoch ----------------------------------------------------------------------------------

    def refresh(self, edit: Edit, *, is_changed: bool) -> None:
        """Look at the topics that are read; a new epoch where they, or who reads them, have changed."""
        found = metadata_hash(self._topics, edit.group.subscribed_topics())
        if not is_changed and found == edit.group.metadata_hash:
            edit.original.is_outdated = False
            return
        edit.record(records.EpochRecorded(edit.group.group_id, edit.group.epoch + 1, found))
        if edit.group.has_partition_metadata:
            edit.record(records.PartitionMetadataForgotten(edit.group.group_id))

    def bump(self, edit: Edit) -> None:
        found = metadata_hash(self._topics, edit.group.subscribed_topics())
        edit.record(records.EpochRecorded(edit.group.group_id, edit.group.epoch + 1, found))

    # ---- regular expressions --------------------------------------------------------------------------------

    def check_regex(self, regex: str) -> None:
        try:
            Expression(regex)
        except BadExpression as bad:
            raise KafkaError(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {bad}.",
            ) from None

    def resolve_regexes(self, edit: Edit) -> bool:
        """Find the topics of expressions that are new, or that new topics may fit; whether anything changed."""
        wall_ms = edit.draft.moment.wall_ms
        has_changed = False
        for regex in edit.group.wanted_regexes:
            known = edit.group.regexes.get(regex)
            if known is not None:
                is_current = known.version >= self._topics.version
                if is_current or wall_ms - known.timestamp_ms < REGEX_INTERVAL_MS:
                    continue
            topics = self._matching(regex)
            has_changed = has_changed or known is None or known.topics != topics
            edit.record(
                records.RegexRecorded(edit.group.group_id, regex, topics, self._topics.version, wall_ms)
            )
        return has_changed

    def _matching(self, regex: str) -> tuple[str, ...]:
        """Internal topics, too: as in Kafka, it is for the expression to leave them out."""
        try:
            expression = Expression(regex)
        except BadExpression:  # recorded by a coordinator that knows more
            return ()
        return tuple(sorted(name for name in self._topics.topics if expression.matches(name)))

    # ---- the target -----------------------------------------------------------------------------------------

    def assignor_of(self, group: ConsumerGroup) -> str:
        preferred = group.preferred_assignor()
        return preferred if preferred in self._settings.assignors else self._settings.assignors[0]

    def compute_target(self, edit: Edit) -> None:
        """For the group's epoch, unless there is one, or the last one is too young."""
        group, wall_ms = edit.group, edit.draft.moment.wall_ms
        if group.assignment_epoch >= group.epoch:
            return
        interval_ms = self._settings.times_of(group.group_id).assignment_interval_ms
        due_ms = group.assignment_timestamp_ms + interval_ms if group.assignment_timestamp_ms else 0
        if wall_ms < due_ms:
            return
        members = {
            member.member_id: MemberSpec(
                member.instance_id,
                self._ids(group.topics_of(member)),
                group.targets.get(member.member_id, NO_TARGET),
            )
            for member in group.members.values()
        }
        counts: dict[UUID, int] = {}
        for name in java_order(group.subscribed_topics()):
            topic = self._topics.topics.get(name)
            if topic is not None:
                counts[topic.topic_id] = len(topic.partitions)
        assigned = ASSIGNORS[self.assignor_of(group)](members, counts)
        for member_id in members:
            target = assigned.get(member_id, NO_TARGET)
            if group.targets.get(member_id) != target:
                edit.record(records.TargetRecorded(group.group_id, member_id, target))
        edit.record(records.TargetEpochRecorded(group.group_id, group.epoch, wall_ms))

    def reconcile(
        self, edit: Edit, member: ConsumerMember, owned: Owned | None, *, has_resubscribed: bool
    ) -> ConsumerMember:
        group = edit.group
        if not has_resubscribed and member.is_reconciled_to(group.assignment_epoch):
            return member
        return Reconciliation(
            member,
            group.assignment_epoch,
            group.targets.get(member.member_id, NO_TARGET),
            owned=owned,
            subscribed=self._ids(group.topics_of(member)),
            is_held=lambda topic_id, partition: group.holder(topic_id, partition) is not None,
        ).step(has_resubscribed=has_resubscribed)

    def _ids(self, names: frozenset[str]) -> frozenset[UUID]:
        found = (self._topics.topics.get(name) for name in names)
        return frozenset(topic.topic_id for topic in found if topic is not None)
