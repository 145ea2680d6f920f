"""What the newer group protocol asks and answers, as values apart from any version of the wire.

Answers have the attribute names of kio's newest response classes, so that a handler returns them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.messages import Sees

NOT_SAID_MS = -1
JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""Member epochs with a meaning. The last is a static member's: it will be back, and keeps its place until then."""


class Beat(NamedTuple):
    """A heartbeat: joins, stays and leaves by its epoch. None is: as before."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID_MS
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Mapping[UUID, Set[int]] | None = None
    sees: Sees | None = None

    @property
    def is_plain(self) -> bool:
        """It says no more than that the member is there, and perhaps what it has."""
        has_settings = self.instance_id or self.rack_id or self.rebalance_timeout_ms != NOT_SAID_MS
        return not has_settings and self.topics is None and self.regex is None and self.assignor is None

    @property
    def is_full(self) -> bool:
        """It says everything, as after a failure: then the answer does, too."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != NOT_SAID_MS and has_subscription and self.owned is not None


class TopicPartitions(NamedTuple):
    topic_id: UUID
    partitions: tuple[int, ...]
    topic_name: str = ""


class Assignment(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...] = ()


class Beaten(NamedTuple):
    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval: int = 0
    assignment: Assignment | None = None
    throttle_time: int = 0


class Unresolved(NamedTuple):
    """Expressions of a group whose topics take too long to find within a heartbeat: work for `resolver`."""

    group_id: str
    regexes: tuple[str, ...]
    sees: Sees | None = None


class Resolved(NamedTuple):
    """What an expression stands for, as of a version of the cluster's topics."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    assignment: Assignment
    target_assignment: Assignment
    member_type: int


class DescribedGroup(NamedTuple):
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedMember, ...]
