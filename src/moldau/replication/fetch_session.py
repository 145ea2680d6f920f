"""Incremental fetch sessions (KIP-227, with topic ids of KIP-516): what a reader asked for, remembered between fetches.

A session holds the reader's partitions in the order in which they are to be read; a partition that gave data moves to
the end, so that none starves. An incremental answer leaves out partitions with nothing new. The number of sessions is
bounded (`max.incremental.fetch.session.cache.slots`), and so is the number of partitions in all of them: a new one may
push out one that has not been used for two minutes, else the reader gets no session and sends full requests. Sessions
that nobody has used for ten minutes are dropped (`drop_unused`).

Pure: no I/O; time is passed in. What touches all partitions of a request is made in slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.base.errors import ErrorCode
from moldau.base.limits import FETCH_SESSION_PARTITIONS_MAX
from moldau.runtime.line import Slices, whole
from moldau.runtime.ports import Random

if TYPE_CHECKING:
    from moldau.replication.follower_session import FollowerSession

NO_SESSION = 0
NO_REPLICA = -1
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
EVICTION_S = 120.0
UNUSED_S_MAX = 600.0
NEVER_SENT = -1

TOPIC_IDS_SINCE_VERSION = 13
NO_TOPIC_ID = bytes(16)
PARTITIONS_PER_PAUSE = 256

TopicRef = str | bytes
"""A topic as the request named it: its name, or from version 13 on the bytes of its id."""


class WantedPartition:
    """One partition as a reader wants it, and what the last answer told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicRef, index: int) -> None:
        self.topic = topic
        self.index = index
        self.sent_high_watermark = NEVER_SENT
        self.sent_log_start_offset = NEVER_SENT

    def update(self, wanted: Any) -> None:
        self.fetch_offset: int = wanted.fetch_offset
        self.max_bytes: int = wanted.partition_max_bytes
        self.current_leader_epoch: int = getattr(wanted, "current_leader_epoch", -1)
        self.last_fetched_epoch: int = getattr(wanted, "last_fetched_epoch", -1)
        self.log_start_offset: int = getattr(wanted, "log_start_offset", -1)

    def has_news(
        self,
        error: int,
        has_records: bool,
        high_watermark: int,
        log_start_offset: int,
        is_sent_away: bool = False,
    ) -> bool:
        """Whether an incremental answer must mention this partition; notes what it will say. `is_sent_away`: the
        reader is to go on elsewhere, at another offset or with another replica."""
        if error or is_sent_away:
            self.sent_high_watermark = NEVER_SENT  # mention it again once it is well
            return True
        is_new = (
            has_records
            or high_watermark != self.sent_high_watermark
            or log_start_offset != self.sent_log_start_offset
        )
        self.sent_high_watermark = high_watermark
        self.sent_log_start_offset = log_start_offset
        return is_new


Key = tuple[TopicRef, int]


@dataclass(slots=True)
class FetchSession:
    id: int
    uses_topic_ids: bool
    partitions: dict[Key, WantedPartition]
    epoch: int
    last_used_s: float
    counted: int = 0
    """Its partitions, as they are counted with those of all sessions."""
    follower: FollowerSession | None = None
    """Where a broker fetches: it says which partitions are to be read."""

    @property
    def replica(self) -> int:
        return NO_REPLICA if self.follower is None else self.follower.replica

    def forget(self, key: Key) -> None:
        wanted = self.partitions.pop(key, None)
        if wanted is not None and self.follower is not None:
            self.follower.forget(wanted)


@dataclass(slots=True)
class FetchContext:
    """What one fetch request reads. `session` is None for a full fetch that keeps no session."""

    partitions: list[WantedPartition]
    by_key: dict[Key, WantedPartition] | None = None
    """The same of a full fetch, for the session that it may ask for."""
    session: FetchSession | None = None
    is_incremental: bool = False
    wants_session: bool = False
    error: ErrorCode = ErrorCode.none


class FetchSessions:
    def __init__(self, random: Random, slots: int) -> None:
        self._random = random
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._of_replica: dict[int, int] = {}
        """The session of each broker that fetches, its last one."""
        self.partition_count = 0
        """In all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: Any, version: int, now_s: float, replica: int = NO_REPLICA) -> FetchContext:
        """`replica`: the broker that fetches, where it is one."""
        return whole(self.opening(request, version, now_s, replica))

    def opening(
        self, request: Any, version: int, now_s: float, replica: int = NO_REPLICA
    ) -> Slices[FetchContext]:
        session_id: int = getattr(request, "session_id", NO_SESSION)
        epoch: int = getattr(request, "session_epoch", FINAL_EPOCH)
        if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return (yield from self._continue(request, version, session_id, epoch, now_s, replica))
        if session_id != NO_SESSION:
            self._drop(session_id)
        partitions: dict[Key, WantedPartition] = {}
        yield from _merge(partitions, request.topics)
        wants_session = epoch == INITIAL_EPOCH
        return FetchContext(list(partitions.values()), partitions, wants_session=wants_session)

    def _continue(
        self, request: Any, version: int, session_id: int, epoch: int, now_s: float, replica: int
    ) -> Slices[FetchContext]:
        session = self._sessions.get(session_id)
        if session is None or session.replica != replica:
            return FetchContext([], error=ErrorCode.fetch_session_id_not_found)
        self._sessions[session_id] = self._sessions.pop(session_id)  # now the most recently used
        if session.epoch != epoch:
            return FetchContext([], error=ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != (version >= TOPIC_IDS_SINCE_VERSION):
            return FetchContext([], error=ErrorCode.fetch_session_topic_id_error)
        session.last_used_s = now_s
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        try:
            for forgotten in request.forgotten_topics_data:
                for index in forgotten.partitions:
                    session.forget((_topic_of(forgotten), index))
                yield
            named = yield from _merge(session.partitions, request.topics)
        finally:  # also where the client goes away in one of the pauses
            self._count(session)
        if session_id not in self._sessions:  # it was dropped in one of them
            return FetchContext([], error=ErrorCode.fetch_session_id_not_found)
        if self.partition_count > FETCH_SESSION_PARTITIONS_MAX:
            self._drop(session_id)
            return FetchContext([], error=ErrorCode.fetch_session_id_not_found)
        if not session.partitions:
            self._drop(session_id)
            return FetchContext([])
        if session.follower is None:
            return FetchContext(list(session.partitions.values()), session=session, is_incremental=True)
        session.follower.fetched_s = now_s
        for wanted in named:
            session.follower.name(wanted)
        return FetchContext(named, session=session, is_incremental=True)

    def keep(self, context: FetchContext, version: int, now_s: float) -> int:
        """Make the session that a full fetch asked for; returns its id, or 0 where there is no room."""
        partitions = context.by_key
        if not context.wants_session or partitions is None or not self._make_room(now_s, len(partitions)):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(EPOCH_MAX - 1) + 1
        uses_topic_ids = version >= TOPIC_IDS_SINCE_VERSION
        session = FetchSession(session_id, uses_topic_ids, partitions, INITIAL_EPOCH + 1, now_s)
        self._sessions[session_id] = session
        self._count(session)
        context.session = session
        return session_id

    def give_to(self, session: FetchSession, follower: FollowerSession) -> None:
        """It is a broker's. One that it had before ends: its connection is lost, whether or not that is known here."""
        before = self._of_replica.get(follower.replica)
        if before is not None and before != session.id:
            self._drop(before)
        self._of_replica[follower.replica] = session.id
        session.follower = follower

    def on_brokers_changed(self) -> None:
        """Brokers have come or gone: followers that wait for that are heard again."""
        for session_id in self._of_replica.values():
            follower = self._sessions[session_id].follower
            if follower is not None:
                follower.ask_again()

    def _count(self, session: FetchSession) -> None:
        if session.id in self._sessions:
            self.partition_count += len(session.partitions) - session.counted
            session.counted = len(session.partitions)

    def _make_room(self, now_s: float, partitions: int) -> bool:
        """For one more session; those that have not been used for long give way."""
        if self._slots <= 0 or partitions > FETCH_SESSION_PARTITIONS_MAX:
            return False
        while (
            len(self._sessions) >= self._slots
            or self.partition_count + partitions > FETCH_SESSION_PARTITIONS_MAX
        ):
            if not self._drop_oldest(now_s, EVICTION_S):
                return False
        return True

    def drop_unused(self, now_s: float) -> None:
        """Who has not fetched for so long is gone, or fetches without it."""
        while self._drop_oldest(now_s, UNUSED_S_MAX):
            pass

    def _drop_oldest(self, now_s: float, unused_s: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_s - oldest.last_used_s < unused_s:
            return False
        self._drop(oldest.id)
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self.partition_count -= session.counted
        if session.follower is not None:
            session.follower.close()
            if self._of_replica.get(session.replica) == session_id:
                del self._of_replica[session.replica]


def rotate(session: FetchSession, served: Iterable[WantedPartition]) -> None:
    """Partitions that just gave data are read last next time."""
    partitions = session.partitions
    for partition in served:
        key = (partition.topic, partition.index)
        if partitions.pop(key, None) is not None:
            partitions[key] = partition


def _topic_of(topic: Any) -> TopicRef:
    if not hasattr(topic, "topic_id"):
        name: str = topic.topic
        return name
    return NO_TOPIC_ID if topic.topic_id is None else bytes(topic.topic_id.bytes)


def _merge(partitions: dict[Key, WantedPartition], topics: Iterable[Any]) -> Slices[list[WantedPartition]]:
    """What the request names, as it wants it now."""
    named = []
    for topic in topics:
        ref = _topic_of(topic)
        for number, wanted in enumerate(topic.partitions, 1):
            if number % PARTITIONS_PER_PAUSE == 0:
                yield
            key = (ref, wanted.partition)
            partition = partitions.get(key)
            if partition is None:
                partition = partitions[key] = WantedPartition(ref, wanted.partition)
            partition.update(wanted)
            named.append(partition)
    return named
