"""What the classic group protocol asks and answers, as values apart from any version of the wire.

Answers have the attribute names of kio's newest response classes, so that a handler returns them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode

UNKNOWN_MEMBER = ""
NO_GENERATION = -1
NO_OFFSET = -1
NO_EPOCH = -1
Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of the assignors that a member knows, the one it likes best first."""


Sees = Callable[[str], bool]
"""Which topics a client may know of."""


class Join(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    is_id_required: bool = True
    """A new member is told its id first, and joins with it (KIP-394): since version 4."""
    can_skip_assignment: bool = True
    """A leader can be told that there is nothing to assign (KIP-814): since version 9."""
    sees: Sees | None = None


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    error_code: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    throttle_time: int = 0


class Sync(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class Synced(NamedTuple):
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    throttle_time: int = 0


class Heartbeat(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class Heard(NamedTuple):
    error_code: ErrorCode
    throttle_time: int = 0


class Leaver(NamedTuple):
    member_id: str
    instance_id: str | None = None


class Left(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class AllLeft(NamedTuple):
    error_code: ErrorCode
    members: tuple[Left, ...] = ()
    throttle_time: int = 0


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID | None = None


class Commit(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    """Or the member's epoch, in the newer protocol; negative for one who is no member."""
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    knows_missing_groups: bool = True
    """Since version 9 a group that is not there has an error of its own."""


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class Described(NamedTuple):
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: tuple[DescribedMember, ...]


class Listed(NamedTuple):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class PartitionWanted(NamedTuple):
    topic: str
    partition: int
    topic_id: UUID | None = None


class Fetched(NamedTuple):
    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.none
