"""How a consumer group goes on: its epoch, what its regular expressions stand for, its target, and a member's step."""

from __future__ import annotations

from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import (
    EXPRESSION_NAMES_ASKED_INLINE_MAX,
    EXPRESSION_NAMES_INLINE_MAX,
    EXPRESSION_STEPS_INLINE_MAX,
    EXPRESSIONS_INLINE_MAX,
)
from moldau.coordinator.expressions import BadExpression, expression
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.assignors import ASSIGNORS, MemberSpec
from moldau.coordinator.group.consumer.edit import Edit
from moldau.coordinator.group.consumer.group import NO_TARGET, ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.messages import Resolved, Unresolved
from moldau.coordinator.group.consumer.reconcile import Owned, Reconciliation
from moldau.coordinator.group.consumer.resolver import matcher_of
from moldau.coordinator.group.consumer.settings import ConsumerSettings
from moldau.coordinator.group.consumer.topics import Topics, metadata_hash
from moldau.coordinator.java import java_order

REGEX_INTERVAL_MS = 10_000
"""Kafka looks for new topics that an expression may stand for at most this often."""
REGEX_ASKED_INTERVAL_MS = 600_000
"""Where there are ACLs, how long what an expression stands for is kept: nothing tells of another ACL. As in Kafka."""


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
            expression(regex)
        except BadExpression as bad:
            raise KafkaError(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {bad}.",
            ) from None

    def resolve_regexes(self, edit: Edit) -> bool:
        """Find the topics of expressions that are new, or that new topics may fit; whether anything changed.

        What would take long is left to the resolver; until it is done, the group goes on with what it knows.
        """
        outdated = self._outdated(edit)
        if not outdated:
            return False
        has_changed = False
        put_off: list[str] = []
        names = list(self._topics.topics)
        names_max = EXPRESSION_NAMES_INLINE_MAX if edit.sees is None else EXPRESSION_NAMES_ASKED_INLINE_MAX
        letters = sum(map(len, names)) if len(names) <= names_max else None
        steps_left = EXPRESSION_STEPS_INLINE_MAX
        for tried, regex in enumerate(outdated):
            matcher = None
            if letters is not None and tried < EXPRESSIONS_INLINE_MAX:
                matcher = matcher_of(regex)
                steps_left -= matcher.size * letters if matcher is not None else 0
                if steps_left < 0:
                    matcher = None
            if matcher is None:
                put_off.append(regex)
            else:
                matching = matcher.matching(names)
                found = tuple(sorted(matching if edit.sees is None else filter(edit.sees, matching)))
                resolved = Resolved(edit.group.group_id, regex, found, self._topics.version)
                has_changed = self._take(edit, resolved) or has_changed
        if put_off:
            edit.draft.ask_for(Unresolved(edit.group.group_id, tuple(put_off), edit.sees))
        return has_changed

    def _outdated(self, edit: Edit) -> list[str]:
        wall_ms, version, known = edit.draft.moment.wall_ms, self._topics.version, edit.group.regexes
        return [
            regex
            for regex in edit.group.wanted_regexes
            if regex not in known
            or (known[regex].version < version and wall_ms - known[regex].timestamp_ms >= REGEX_INTERVAL_MS)
            or (edit.sees is not None and wall_ms - known[regex].timestamp_ms >= REGEX_ASKED_INTERVAL_MS)
        ]

    def resolved(self, edit: Edit, resolved: Resolved) -> None:
        """What the resolver has found; the members hear of it with their next heartbeats."""
        if edit.group.subscribers(resolved.regex) and self._take(edit, resolved):
            self.refresh(edit, is_changed=True)

    def _take(self, edit: Edit, resolved: Resolved) -> bool:
        """Whether it stands for something else than before."""
        known = edit.group.regexes.get(resolved.regex)
        edit.record(records.RegexRecorded(*resolved, edit.draft.moment.wall_ms))
        return known is None or known.topics != resolved.topics

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
        members = self._specs(group)
        names = group.subscribed_topics()
        seen = {name: topic for name in names if (topic := self._topics.topics.get(name)) is not None}
        counts: dict[UUID, int] = {}
        for name in java_order(seen, among=len(names)):
            counts[seen[name].topic_id] = len(seen[name].partitions)
        assigned = ASSIGNORS[self.assignor_of(group)](members, counts)
        for member_id in members:
            target = assigned.get(member_id, NO_TARGET)
            if group.targets.get(member_id) != target:
                edit.record(records.TargetRecorded(group.group_id, member_id, target))
        edit.record(records.TargetEpochRecorded(group.group_id, group.epoch, wall_ms))

    def _specs(self, group: ConsumerGroup) -> dict[str, MemberSpec]:
        """Members that read the same topics, as nearly all do, share their ids."""
        ids: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
        specs = {}
        for member in group.members.values():
            wanted = member.topics, member.regex
            if wanted not in ids:
                ids[wanted] = self._ids(group.topics_of(member))
            target = group.targets.get(member.member_id, NO_TARGET)
            specs[member.member_id] = MemberSpec(member.instance_id, ids[wanted], target)
        return specs

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
            holders_of=group.holders.of,
        ).step(has_resubscribed=has_resubscribed)

    def _ids(self, names: frozenset[str]) -> frozenset[UUID]:
        found = (self._topics.topics.get(name) for name in names)
        return frozenset(topic.topic_id for topic in found if topic is not None)
