"""A member of a classic group: who it is, what it can do, what it was given, and which of its requests wait."""

from __future__ import annotations

from moldau.coordinator.group.messages import DescribedMember, Join, JoinedMember, Protocols
from moldau.coordinator.group.records import MemberRecorded
from moldau.coordinator.reply import Reply


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """It has not been told its first generation yet, so it cannot send heartbeats."""
        self.join_reply: Reply | None = None
        self.sync_reply: Reply | None = None

    @classmethod
    def joining(cls, member_id: str, join: Join) -> Member:
        return cls(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
            join.protocols,
        )

    @classmethod
    def recorded(cls, row: MemberRecorded, protocol: str) -> Member:
        return cls(
            row.member_id,
            row.instance_id,
            row.client_id,
            row.client_host,
            row.rebalance_timeout_ms,
            row.session_timeout_ms,
            ((protocol, row.subscription),),
            row.assignment,
        )

    def with_id(self, member_id: str) -> Member:
        """The same static member under a new id; what waited for the old one does not come along."""
        return Member(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
        )

    def update(self, join: Join) -> None:
        self.protocols = join.protocols
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.session_timeout_ms = join.session_timeout_ms

    @property
    def is_waiting(self) -> bool:
        """For an answer, so that it cannot send heartbeats."""
        return self.join_reply is not None or self.sync_reply is not None

    @property
    def protocol_names(self) -> set[str]:
        """Each once, however often a client names it."""
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Of the protocols that all members know, the one that this member likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    # How it is shown

    def as_recorded(self, protocol: str, assignment: bytes) -> MemberRecorded:
        return MemberRecorded(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def as_joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))

    def as_described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol),
            self.assignment,
        )
