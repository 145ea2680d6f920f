"""A classic group: its generation, its members, and what a request of a member deserves.

The group has two sides. What was recorded (`take`) survives: the generation, its protocol and leader, the members
and their assignments. What happens between two generations does not, by Kafka's design: who has joined the next
one, whose requests wait, who left. After a fail-over the members of the last recorded generation are there again,
and whoever was in the middle of something begins anew.

The decisions (when to rebalance, whom to answer) are in `rebalance`; this class keeps the group consistent.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.member import Member
from moldau.coordinator.group.messages import Described, Join, Listed
from moldau.coordinator.group.offsets import Committed
from moldau.coordinator.group.records import NO_TIMESTAMP, GroupRecorded
from moldau.coordinator.group.subscription import CONSUMER, subscribed_topics
from moldau.coordinator.java import java_order
from moldau.coordinator.reply import Reply


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    kind = "classic"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """None for a group that never had members: it only keeps offsets."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.state_timestamp_ms: int | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending_members: dict[str, None] = {}
        """Ids that were given out, and have not joined yet."""
        self.pending_sync: dict[str, None] = {}
        """Members of the new generation that have not asked for their assignment yet."""
        self.subscribed: frozenset[str] | None = None
        self.is_initial = False
        """The rebalance under way is the first one of a group that was empty."""
        self.has_grown = False
        """A member was added since the initial rebalance was last put off."""
        self.initial_remaining_ms = 0
        self.joining_count = 0
        self._supporters: Counter[str] = Counter()  # protocol -> members that know it

    # ---- what is recorded -----------------------------------------------------------------------------------

    def take(self, record: GroupRecorded) -> None:
        """A recorded generation is the group's state, but for one whose next generation is in the making."""
        if self.state is GroupState.PREPARING:
            return
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = record.protocol
        self.leader = record.leader
        known = record.state_timestamp_ms != NO_TIMESTAMP
        self.state_timestamp_ms = record.state_timestamp_ms if known else None
        members = {}
        for row in record.members:
            member = self.members.get(row.member_id) or Member.recorded(row, record.protocol or "")
            member.assignment = row.assignment
            members[row.member_id] = member
        self.members = members
        self._supporters = Counter(name for member in members.values() for name in member.protocol_names)
        self.static_members = {
            m.instance_id: m.member_id for m in members.values() if m.instance_id is not None
        }
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.find_subscribed()

    def as_recorded(self, assignments: dict[str, bytes], wall_ms: int) -> GroupRecorded:
        """The generation that is complete with these assignments."""
        protocol = self.protocol or ""
        members = (m.as_recorded(protocol, assignments.get(m.member_id, b"")) for m in self.members.values())
        return GroupRecorded(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            wall_ms,
            tuple(members),
        )

    def as_emptied(self, wall_ms: int) -> GroupRecorded:
        """The generation that follows when nobody is left."""
        return GroupRecorded(
            self.group_id, self.protocol_type or "", self.generation + 1, None, None, wall_ms, ()
        )

    def as_created(self, wall_ms: int) -> GroupRecorded:
        """A group to which the first member is about to come."""
        return GroupRecorded(self.group_id, "", 0, None, None, wall_ms, ())

    # ---- members --------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_members and self.joining_count == len(self.members)

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._supporters.update(member.protocol_names)
        self.pending_members.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """A member, or an id that was only given out. Its waiting requests were taken before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supporters.subtract(member.protocol_names)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def update(self, member: Member, join: Join) -> None:
        """What the member can do may have changed since it last joined."""
        self._supporters.subtract(member.protocol_names)
        member.update(join)
        self._supporters.update(member.protocol_names)

    def park_join(self, member: Member, reply: Reply) -> None:
        member.join_reply = reply
        self.joining_count += 1

    def take_join(self, member: Member) -> Reply | None:
        """The member's join request that waits, which is to be answered now."""
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self.joining_count -= 1
        return reply

    def replace_static(self, old_id: str, new_id: str) -> tuple[Member, Member]:
        """A second instance takes over: the member of before, and the one that it is now, in the same place."""
        old = self.members[old_id]
        new = old.with_id(new_id)
        self.members = {m.member_id: m for m in (new if m is old else m for m in self.members.values())}
        assert old.instance_id is not None
        self.static_members[old.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return old, new

    def elect_joined_leader(self) -> bool:
        """The leader of the next generation is one who has joined it; False where nobody has."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader = member.member_id
                return True
        return False

    def begin_generation(self) -> None:
        """Everyone who is there has joined: choose the protocol, and wait for the leader's assignment."""
        self.generation += 1
        self.protocol = self.select_protocol()
        self.state = GroupState.COMPLETING
        self.pending_sync = dict.fromkeys(self.members)
        self.find_subscribed()

    # ---- protocols ------------------------------------------------------------------------------------------

    def supports(self, join: Join) -> bool:
        """Whether the group stays able to work together when a member with these protocols joins."""
        if self.is_empty:
            return bool(join.protocol_type and join.protocols)
        if join.protocol_type != self.protocol_type:
            return False
        return any(self._supporters[name] == len(self.members) for name, _ in join.protocols)

    def select_protocol(self) -> str:
        """Every member votes for the one it likes best, of those that all of them know.

        Of those with equal votes it is the same as in Kafka, whatever the order of the members.
        """
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(java_order(votes), key=lambda name: votes[name])

    def find_subscribed(self) -> None:
        """Which topics the group reads, as far as its members are consumers and can be understood."""
        if self.protocol_type != CONSUMER:
            self.subscribed = None
        elif not self.members:
            self.subscribed = frozenset()
        elif self.protocol is not None:
            self.subscribed = subscribed_topics(m.metadata(self.protocol) for m in self.members.values())

    # ---- checks of requests ---------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """KafkaError where this is no member, or another one has its instance id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.unknown_member_id)
            if current != member_id:
                raise KafkaError(ErrorCode.fenced_instance_id)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.unknown_member_id)

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(ErrorCode.illegal_generation)

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool = False
    ) -> None:
        """Who may commit offsets: members of this generation, and anyone while there are no members."""
        if generation < 0 and self.is_empty:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation)
        elif not in_transaction and not self.is_empty:
            raise KafkaError(ErrorCode.unknown_member_id)
        if not in_transaction and self.state is GroupState.COMPLETING:
            raise KafkaError(ErrorCode.rebalance_in_progress)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.non_empty_group)

    def check_delete_offsets(self) -> None:
        """Offsets of a group with members go only where the coordinator knows which topics they read."""
        if not self.is_empty and self.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.non_empty_group)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed

    def kept_since_ms(self, committed: Committed) -> int | None:
        """Since when the retention of an offset runs; None while the group needs it."""
        if self.protocol_type is None:
            return committed.commit_timestamp_ms
        if self.is_empty:
            # All offsets of a group that lost its members live equally long from then on.
            since = self.state_timestamp_ms
            return committed.commit_timestamp_ms if since is None else since
        if self.protocol_type == CONSUMER and self.subscribed is not None and self.state is GroupState.STABLE:
            return committed.commit_timestamp_ms
        return None

    # ---- how it is shown ------------------------------------------------------------------------------------

    def described(self) -> Described:
        """The metadata of members means something only while one protocol is agreed on."""
        stable = self.state is GroupState.STABLE
        shown = self.protocol if stable else None
        return Described(
            self.group_id,
            self.state.value,
            self.protocol_type or "",
            shown or "",
            tuple(member.as_described(shown) for member in self.members.values()),
        )

    def listed(self) -> Listed:
        return Listed(self.group_id, self.protocol_type or "", self.state.value, self.kind)
