"""A group coordinator without a broker: events in, answers out, time as the test says, and a log to fail over with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.coordinator.group import records
from moldau.coordinator.group.consumer.settings import ConsumerSettings
from moldau.coordinator.group.messages import (
    Commit,
    Described,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    OffsetToCommit,
    Sync,
    Synced,
)
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment, Producer

START_MS = 1_000_000
WALL_OFFSET_MS = 1_700_000_000_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
CONSUMER_SETTINGS = ConsumerSettings()
RANGE = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x01t"),)


class SomeTopic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: tuple[int, ...]


class ClusterTopics:
    """The cluster's topics, as the test makes them."""

    def __init__(self) -> None:
        self.topics: dict[str, SomeTopic] = {}
        self.topic_by_id: dict[UUID, SomeTopic] = {}
        self.version = 1
        self._numbers = count(1)

    def make(self, name: str, partitions: int) -> UUID:
        """A topic, or one with more partitions than before."""
        known = self.topics.get(name)
        topic_id = UUID(int=next(self._numbers)) if known is None else known.topic_id
        topic = SomeTopic(name, topic_id, tuple(range(partitions)))
        self.topics[name] = self.topic_by_id[topic_id] = topic
        self.version += 1
        return topic_id

    def delete(self, name: str) -> None:
        del self.topic_by_id[self.topics.pop(name).topic_id]
        self.version += 1


class Coordinator:
    """One shard. `log` has what was recorded, as bytes; `refusal` makes appends fail."""

    def __init__(
        self, settings: GroupSettings = SETTINGS, consumer: ConsumerSettings = CONSUMER_SETTINGS
    ) -> None:
        self.settings = settings
        self.consumer = consumer
        self.topics = ClusterTopics()
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.effects: list[Any] = []
        self.refusal: ErrorCode | None = None
        self.is_behind = False
        """A record was refused, and none of the group has followed since: the log is older than the group."""
        self._ids = count(1)
        self.shard = self._new_shard()
        self.carry_out(self.shard.on_loaded(self.moment))

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, lambda: f"id{next(self._ids)}", self.topics, self.consumer)

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms + WALL_OFFSET_MS)

    def carry_out(self, decision: Decision) -> None:
        """As the driver does it; records go through their bytes."""
        if decision.records and self.refusal is not None:
            self.is_behind = True
            for reply, _ in [*decision.answers_now, *decision.answers]:
                reply.fail(self.refusal)
            return
        for record in decision.records:
            key, value = self.shard.encode(record)
            self.log.append((key, value))
            decoded = self.shard.decode(key, value)
            assert decoded == record
            self.shard.apply(decoded, decision.producer)
            if isinstance(record, records.GroupRecorded):
                self.is_behind = False
        for reply, response in [*decision.answers_now, *decision.answers]:
            reply.answer(response)
        self.effects += decision.effects

    def sleep(self, ms: int) -> None:
        """Time passes, deadline by deadline."""
        until_ms = self.now_ms + ms
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            for decision in self.shard.on_time(self.moment):
                self.carry_out(decision)
        self.now_ms = until_ms

    def fail_over(self) -> list[Reply]:
        """Another broker takes over: all that it knows is the log. Returns the answers that were given up."""
        parked = self.shard.parked()
        self.shard = self.replayed()
        self.carry_out(self.shard.on_loaded(self.moment))
        return parked

    def replayed(self) -> GroupShard:
        shard = self._new_shard()
        for key, value in self.log:
            record = shard.decode(key, value)
            assert record is not None
            shard.apply(record, None)
        return shard

    # Events

    def join(self, group_id: str = "g", member_id: str = "", **fields: Any) -> Reply:
        values = {
            "instance_id": None,
            "client_id": "client",
            "client_host": "/host",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "is_id_required": False,
        }
        reply = new_reply()
        join = Join(group_id, member_id, **(values | fields))
        self.carry_out(self.shard.join(join, reply, self.moment))
        return reply

    def sync(self, member: Joined, assignments: Sequence[tuple[str, bytes]] = (), **fields: Any) -> Reply:
        values: dict[str, Any] = {"group_id": "g", "generation": member.generation_id}
        reply = new_reply()
        sync = Sync(**(values | {"member_id": member.member_id, "assignments": tuple(assignments)} | fields))
        self.carry_out(self.shard.sync(sync, reply, self.moment))
        return reply

    def heartbeat(self, member: Joined, instance_id: str | None = None) -> ErrorCode:
        reply = new_reply()
        heartbeat = Heartbeat("g", member.generation_id, member.member_id, instance_id)
        self.carry_out(self.shard.heartbeat(heartbeat, reply, self.moment))
        error: ErrorCode = reply.response.error_code
        return error

    def leave(self, *leavers: tuple[str, str | None], group_id: str = "g") -> list[ErrorCode]:
        reply = new_reply()
        self.carry_out(self.shard.leave(group_id, [Leaver(*one) for one in leavers], reply, self.moment))
        if isinstance(reply.response, ErrorCode):
            return [reply.response] * len(leavers)
        return [left.error_code for left in reply.response.members]

    def commit(
        self, offset: int, *, topic: str = "t", partition: int = 0, group_id: str = "g", **fields: Any
    ) -> ErrorCode:
        values = {"member_id": "", "instance_id": None, "generation": -1}
        metadata = fields.pop("metadata", "")
        offsets = (OffsetToCommit(topic, partition, offset, -1, metadata),)
        reply = new_reply()
        commit = Commit(group_id, **(values | fields), offsets=offsets)
        self.carry_out(self.shard.commit(commit, reply, self.moment))
        if isinstance(reply.response, ErrorCode):
            return reply.response
        (error,) = reply.response
        return ErrorCode(error)

    def commit_as(self, member: Joined, offset: int, **fields: Any) -> ErrorCode:
        return self.commit(offset, member_id=member.member_id, generation=member.generation_id, **fields)

    def commit_in_transaction(self, offset: int, producer: Producer) -> None:
        record = records.OffsetCommitted("g", "t", 0, offset, -1, "", self.moment.wall_ms)
        self.carry_out(Decision([record], producer=producer))

    def delete(self, group_id: str = "g") -> ErrorCode:
        reply = new_reply()
        self.carry_out(self.shard.delete(group_id, reply))
        error: ErrorCode = reply.response
        return error

    # Looks

    def committed(self, topic: str = "t", partition: int = 0, group_id: str = "g") -> int | None:
        """None where nothing is committed."""
        for found in self.shard.fetch(group_id, None, require_stable=False):
            if (found.topic, found.partition) == (topic, partition):
                return found.offset
        return None

    def described(self, group_id: str = "g") -> Described:
        found = self.shard.describe(group_id)
        assert isinstance(found, Described), found
        return found

    def state(self, group_id: str = "g") -> str:
        found = self.shard.describe(group_id)
        return found.group_state if isinstance(found, Described) else "Dead"

    # Whole stories

    def stable(self, count: int = 1, **fields: Any) -> list[Joined]:
        """A group whose members have their assignments; the first member leads."""
        first = self.join(**fields)
        self.sleep(0)
        present: list[Joined] = [first.response]
        self.sync(present[0], [(present[0].member_id, b"all")])
        for _ in range(count - 1):
            newcomer = self.join(**fields)
            joining = [self.join(member_id=member.member_id, **fields) for member in present]
            present = [reply.response for reply in [*joining, newcomer]]
            self.assign(present)
        return present

    def assign(self, members: Sequence[Joined]) -> list[Synced]:
        """Everyone asks for its part, the leader last; each gets a part of its own."""
        leader = next(member for member in members if member.member_id == member.leader)
        rows = [(member.member_id, f"part {number}".encode()) for number, member in enumerate(members)]
        replies = {member.member_id: self.sync(member) for member in members if member is not leader}
        replies[leader.member_id] = self.sync(leader, rows)
        return [replies[member.member_id].response for member in members]


def new_reply() -> Reply:
    return Reply(lambda error: error)
