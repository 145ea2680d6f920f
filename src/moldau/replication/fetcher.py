"""The driver of followers: fetches all partitions that one leader leads for us, and appends what comes (R2).

One connection and one fetch session for all of them. A request names only what has changed since the last one, so that
thousands of idle partitions cost nothing. A fetch waits at the leader for data; when something is new meanwhile (a
partition to follow, a log that was cut off) the next request is sent at once, and the leader answers the one that waits
(`Slot.hurry`). What an answer asks for is decided in `follower`, which is pure.

A partition that is cut off, or begins anew, is left out of the fetches until that is done, and is given up (`forget`)
only then: nobody leads a log that is being cut off. While its leader is asked where to begin it is given up at once.
Kafka's `ReplicaFetcherThread`.

A throttled partition that is not in sync is left out as well while the follower's quota is exceeded (KIP-73,
`RemoteLeaderEndPoint.shouldFollowerThrottle`), and asked for again when there is room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.following import BeginsEarlier
from moldau.log.log import Log
from moldau.peers.connection import PeerConnection
from moldau.peers.errors import Busy, Disconnected
from moldau.peers.peer import Peer
from moldau.replication.follower import Next, Step, after_answer, after_bounds, fetch_position
from moldau.replication.leader_bounds import leader_bounds
from moldau.replication.partition import Partition
from moldau.replication.throttle import Throttle
from moldau.runtime.ports import Runtime
from moldau.wire.frames import WireError
from moldau.wire.replica_fetch import (
    REPLICA_FETCH_MAX_VERSION,
    ReplicaFetched,
    ReplicaFetchResponse,
    WantedPartition,
    pack_replica_fetch,
    parse_fetch_response,
)

logger = logging.getLogger(__name__)

FETCH = 1
BATCHES_PER_TURN = 400
"""Batches appended before others get their turn of the loop: a few milliseconds."""
PARTITIONS_PER_REQUEST_MAX = 500
"""New places that one request tells, so that the leader looks at them within a few milliseconds."""
BACKOFF_MIN_S = 0.01
"""The first pause after an error: a new leader may hear of its election a moment after its followers."""
COMPLAINT_INTERVAL_S = 10.0
SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)
Key = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_max_s: float = 1.0
    timeout_s: float = 30.0


class LogChange:
    """A log that is to be cut off, or to begin anew."""

    __slots__ = ("is_given_up", "written")

    def __init__(self) -> None:
        self.written: asyncio.Future[None] | None = None
        """While the log is being changed: done when that is over."""
        self.is_given_up = False
        """It is not followed any more: the log stays as it is."""


class Followed:
    """A partition that this broker follows, in one leader epoch."""

    __slots__ = ("backoff_s", "busy", "committed_offset", "leader_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.busy: LogChange | None = None
        """While its log is to be changed: it is not fetched."""
        self.backoff_s = 0.0
        self.committed_offset: int | None = None
        """The leader's high watermark, as soon as it has told it: a replica that has as much is not behind."""

    @property
    def key(self) -> Key:
        return self.partition.topic_id_bytes, self.partition.topic_partition.partition

    @property
    def is_current(self) -> bool:
        """Whether it is still to be followed as it was when the request was sent."""
        partition = self.partition
        return partition.leader_epoch == self.leader_epoch and partition.leader is None


class Sent(NamedTuple):
    """A request under way."""

    answer: asyncio.Future[memoryview]
    positions: dict[Key, int]
    """The places that it tells the leader, of those that have changed."""


class Fetcher:
    def __init__(
        self,
        runtime: Runtime,
        find_peer: Callable[[], Peer],
        node_id: int,
        broker_epoch: Callable[[], int],
        checkpoint: Callable[[Log], Awaitable[None]],
        settings: FetcherSettings,
        throttle: Throttle,
    ) -> None:
        """`find_peer`: the leader, which is another peer when its broker has left the cluster and is back; Disconnected
        and Busy, also from here, where it is not known. `checkpoint`: `LogManager.write_checkpoints_of`."""
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._find_peer = find_peer
        self._peer = find_peer()
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._checkpoint = checkpoint
        self._settings = settings
        self._throttle = throttle
        self._followed: dict[Key, Followed] = {}
        self._session_id = self._session_epoch = 0
        self._asks_for_all = False
        """The leader has no room for a session: each request names every partition."""
        self._in_session: dict[Key, None] = {}
        self._positions: dict[Key, int] = {}
        """From where the leader has sent, in the request that was answered last."""
        self._to_ask: dict[Key, None] = {}
        """Partitions whose place in the leader's session is not what they need now."""
        self._to_leave: dict[Key, None] = {}
        self._held_back: dict[Key, None] = {}
        """Throttled partitions that are asked for when there is room."""
        self._wake: asyncio.Future[None] | None = None
        self._is_closed = False
        self._complaints = 0
        self._complain_again_s = 0.0
        self.fetched_bytes = 0
        self._running = self._tasks.spawn(self._run(), name=f"fetcher of {self._peer}")

    def __len__(self) -> int:
        return len(self._followed)

    # What is followed

    def follow(self, partition: Partition) -> None:
        """Fetch it from now on; again, where it has a new leader epoch."""
        followed = Followed(partition)
        before = self._followed.get(followed.key)
        if before is not None and before.busy is not None:
            followed.busy = before.busy
        self._followed[followed.key] = followed
        self._ask(followed)

    async def forget(self, partition: Partition) -> None:
        """Fetch it no more. When this returns nothing of a leader's will be written to its log."""
        key = (partition.topic_id_bytes, partition.topic_partition.partition)
        followed = self._followed.pop(key, None)
        self._held_back.pop(key, None)
        self._leave(key)
        if followed is not None and followed.busy is not None:
            followed.busy.is_given_up = True
            if followed.busy.written is not None:
                await asyncio.shield(followed.busy.written)

    def close(self) -> None:
        self._is_closed = True
        self._throttle.leave(self)
        self._running.cancel()

    def _ask(self, followed: Followed) -> None:
        """Its place is to be told to the leader with the next request."""
        if followed.busy is not None:
            return
        if followed.partition.is_throttled_as_follower and self._is_to_wait(followed):
            self._leave(followed.key)
            self._held_back[followed.key] = None
            self._throttle.when_room(self)
            return
        self._to_leave.pop(followed.key, None)
        self._to_ask[followed.key] = None
        self._awake()

    def _is_to_wait(self, followed: Followed) -> bool:
        """Whether a throttled partition is left out now; one that is in sync never is."""
        if not self._throttle.is_exceeded() or self._node_id in followed.partition.state.isr:
            return False
        committed_offset = followed.committed_offset
        return committed_offset is None or followed.partition.log.next_offset < committed_offset

    def on_room(self) -> None:
        """The quota has room again, or what is throttled has changed."""
        held_back, self._held_back = self._held_back, {}
        for key in held_back:
            if key in self._followed:
                self._ask(self._followed[key])

    def _leave(self, key: Key) -> None:
        self._to_ask.pop(key, None)
        if key in self._in_session:
            self._to_leave[key] = None

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # Fetching

    async def _run(self) -> None:
        while not self._is_closed:
            if not self._to_ask and not self._in_session:
                await self._until_new()
                continue
            try:
                self._peer = self._find_peer()
            except (Disconnected, Busy) as error:  # it has left: soon others lead
                logger.debug("nothing can be fetched: %s", error)
                await self._tasks.sleep(self._settings.backoff_max_s)
                continue
            try:
                await self._fetch_on(await self._peer.connection(self._settings.timeout_s, waits=True))
            except (Disconnected, Busy, WireError) as error:
                logger.debug("fetching from %s: %s", self._peer, error)
                self._begin_session_anew()
                await self._tasks.sleep(BACKOFF_MIN_S)

    async def _until_new(self, answer: asyncio.Future[memoryview] | None = None) -> None:
        """Wait until something is to be asked, or an answer is there."""
        self._wake = wake = asyncio.get_running_loop().create_future()
        if answer is not None:
            answer.add_done_callback(lambda _: self._awake())
        if self._to_ask or (answer is not None and answer.done()):
            wake.set_result(None)
        try:
            await wake
        finally:
            self._wake = None

    async def _fetch_on(self, connection: PeerConnection) -> None:
        """Fetch over one connection, in one session, until there is nothing to fetch or it ends."""
        self._begin_session_anew()
        sent = self._send(connection, max_wait_ms=0)
        while True:
            following: Sent | None = None
            if self._session_id:
                await self._until_new(sent.answer)
                if not sent.answer.done():
                    # The leader hurries with the answer when another request comes behind it.
                    following = self._send(connection)
            frame = await sent.answer
            self._positions |= sent.positions
            try:
                await self._take(frame)
            finally:
                connection.give_back(frame)
            if following is None:
                if not self._to_ask and not self._in_session:
                    return
                if not self._session_id:  # no room for one there: everything is asked for each time
                    self._begin_session_anew()
                following = self._send(connection)
            sent = following

    def _begin_session_anew(self) -> None:
        self._session_id = self._session_epoch = 0
        self._in_session.clear()
        self._positions.clear()
        self._to_leave.clear()
        self._to_ask = {
            key: None
            for key, followed in self._followed.items()
            if followed.busy is None and key not in self._held_back
        }

    def _send(self, connection: PeerConnection, *, max_wait_ms: int | None = None) -> Sent:
        version = self._peer.version_of(FETCH, REPLICA_FETCH_MAX_VERSION)
        topics: dict[bytes, list[WantedPartition]] = {}
        positions: dict[Key, int] = {}
        asked = self._take_asked()
        for key in asked:
            wanted = self._wanted(self._followed[key])
            topics.setdefault(key[0], []).append(wanted)
            positions[key] = wanted.fetch_offset
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in self._to_leave:
            forgotten.setdefault(topic_id, []).append(index)
            del self._in_session[topic_id, index]
            self._positions.pop((topic_id, index), None)
        self._in_session |= asked
        body = pack_replica_fetch(
            version,
            self._node_id,
            self._broker_epoch(),
            max_wait_ms=self._settings.max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.items()),
            forgotten=list(forgotten.items()),
        )
        self._to_leave = {}
        if self._session_id:
            self._session_epoch = self._session_epoch % (2**31 - 1) + 1
        return Sent(connection.send_raw(FETCH, version, body, self._settings.timeout_s), positions)

    def _take_asked(self) -> dict[Key, None]:
        """What the next request names."""
        asked = self._to_ask
        if len(asked) <= PARTITIONS_PER_REQUEST_MAX or self._asks_for_all:
            self._to_ask = {}
            return asked
        some = dict.fromkeys(islice(asked, PARTITIONS_PER_REQUEST_MAX))
        for key in some:
            del asked[key]
        return some

    def _wanted(self, followed: Followed) -> WantedPartition:
        partition = followed.partition
        position = fetch_position(partition.log.epochs, partition.log.next_offset)
        return WantedPartition(
            partition.topic_partition.partition,
            followed.leader_epoch,
            position.offset,
            position.last_fetched_epoch,
            partition.log.log_start_offset,
            self._settings.partition_max_bytes,
        )

    # Taking what comes

    async def _take(self, frame: memoryview) -> None:
        version = self._peer.version_of(FETCH, REPLICA_FETCH_MAX_VERSION)
        response: ReplicaFetchResponse = parse_fetch_response(frame, 0, version)
        error = ErrorCode(response.error_code)
        if error in SESSION_ERRORS:
            self._begin_session_anew()
            return
        if error:
            raise Disconnected(f"the leader answers {error.name}")
        if not self._session_epoch:
            self._session_id = response.session_id
            self._session_epoch = 1 if response.session_id else 0
            self._asks_for_all = not response.session_id
        unflushed: list[Log] = []
        for fetched in response.partitions:
            followed = self._followed.get((fetched[0], fetched[1]))
            if followed is not None and followed.busy is None and followed.is_current:
                try:
                    await self._act(followed, fetched, frame, unflushed)
                except Exception as failure:  # of its log alone: the others go on
                    is_a_bug = not isinstance(failure, OSError | KafkaError)
                    logger.warning("%s: %s", followed.partition.topic_partition, failure, exc_info=is_a_bug)
                    self._pause(followed, "its log failed")
        for flushed in unflushed:
            try:
                await flushed.flush()
            except OSError as failure:  # the log has failed, and its partition is offline
                logger.debug("%s cannot be flushed: %s", flushed.topic_partition, failure)

    async def _act(
        self, followed: Followed, fetched: ReplicaFetched, frame: memoryview, unflushed: list[Log]
    ) -> None:
        partition = followed.partition
        error = ErrorCode(fetched.error_code)
        if not error:
            followed.committed_offset = fetched.high_watermark
        if not error and self._positions.get(followed.key) != partition.log.next_offset:
            # Asked for before the log has changed: of what it says, only the high watermark holds.
            if fetched.diverging_epoch is None:
                partition.follow(fetched.high_watermark)
            self._ask(followed)
            return
        step = after_answer(
            error,
            has_records=fetched.records_stop > fetched.records_start,
            diverging=fetched.diverging_epoch,
            epochs=partition.log.epochs,
            next_offset=partition.log.next_offset,
            high_watermark=partition.high_watermark,
        )
        if step.next is Next.WAIT:
            self._pause(followed, error.name)
            return
        if step.next in (Next.TRUNCATE, Next.ASK_BOUNDS):
            self._change_log(followed, step)
            return
        if step.next is Next.APPEND:
            records = frame[fetched.records_start : fetched.records_stop]
            try:
                if not await self._append(followed, records, unflushed):
                    return
            finally:
                records.release()
        followed.backoff_s = 0.0
        partition.follow(fetched.high_watermark)
        start_offset = min(fetched.log_start_offset, partition.high_watermark)
        if start_offset > partition.log.log_start_offset:
            partition.log.delete_records_before(start_offset)
            self._ask(followed)

    async def _append(self, followed: Followed, records: memoryview, unflushed: list[Log]) -> bool:
        """Whether it was appended, and the partition is still followed."""
        partition = followed.partition
        self.fetched_bytes += len(records)
        if partition.is_throttled_as_follower:
            self._throttle.record(len(records))
        position = 0
        try:
            while True:
                taken_bytes, flush_due = partition.log.append_fetched(
                    records[position:], self._clock.wall_ms(), BATCHES_PER_TURN
                )
                position += taken_bytes
                partition.fetched(taken_bytes)
                if flush_due and partition.log not in unflushed:
                    unflushed.append(partition.log)
                if not taken_bytes or position == len(records):
                    break
                await self._tasks.sleep(0)
                if not followed.is_current or self._followed.get(followed.key) is not followed:
                    return False
        except BeginsEarlier as early:
            first = bytes(records[position : position + early.size])
            self._change_log(followed, Step(Next.START_OVER, early.base_offset), first)
            return False
        except KafkaError as error:
            logger.error("%s", error)
            self._pause(followed, error.code.name)
            return False
        except OSError as error:
            logger.debug("cannot append to %s: %s", partition.topic_partition, error)
            self._pause(followed, "a disk error")
            return False
        self._ask(followed)
        return True

    # Pauses, and changes of the log

    def _pause(self, followed: Followed, why: str) -> None:
        """Ask again after a while; the first time, soon."""
        followed.backoff_s = min(max(BACKOFF_MIN_S, 2 * followed.backoff_s), self._settings.backoff_max_s)
        if followed.backoff_s >= self._settings.backoff_max_s:
            self._complain(followed, why)
        self._leave(followed.key)
        self._tasks.call_later(followed.backoff_s, self._resume, followed)

    def _complain(self, followed: Followed, why: str) -> None:
        """Now and then: it may be thousands, every second."""
        self._complaints += 1
        now_s = self._clock.monotonic()
        if now_s >= self._complain_again_s:
            place, count = followed.partition.topic_partition, self._complaints - 1
            logger.info(
                "%s cannot be fetched from %s: %s; %d more since the last time", place, self._peer, why, count
            )
            self._complaints, self._complain_again_s = 0, now_s + COMPLAINT_INTERVAL_S

    def _resume(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed and not self._is_closed:
            self._ask(followed)

    def _change_log(self, followed: Followed, step: Step, first: bytes = b"") -> None:
        """Cut the log off, or begin it anew with a first batch, beside the fetches of the others."""
        self._leave(followed.key)
        followed.busy = change = LogChange()
        work = self._carry_out(followed, step, first, change)
        task = self._tasks.spawn(work, name=f"truncate {followed.partition.topic_partition}")
        task.add_done_callback(partial(self._on_changed, followed, change))

    def _on_changed(self, followed: Followed, change: LogChange, _task: asyncio.Task[None]) -> None:
        current = self._followed.get(followed.key)
        if current is not None and current.busy is change:
            current.busy = None
            if not self._is_closed:
                self._ask(current)

    async def _carry_out(self, followed: Followed, step: Step, first: bytes, change: LogChange) -> None:
        log = followed.partition.log
        try:
            if step.next is Next.ASK_BOUNDS:
                bounds = await leader_bounds(self._peer, followed.partition, self._node_id)
                if not followed.is_current:  # in another epoch by now: the next fetch tells more
                    return
                step = after_bounds(*bounds, log.next_offset)
            if not change.is_given_up:
                await self._change(followed, step, first, change)
        except (OSError, Disconnected, Busy, KafkaError) as error:
            logger.warning("%s cannot be brought into line: %s", log.topic_partition, error)
            await self._tasks.sleep(self._settings.backoff_max_s)

    async def _change(self, followed: Followed, step: Step, first: bytes, change: LogChange) -> None:
        partition = followed.partition
        log = partition.log
        change.written = written = asyncio.get_running_loop().create_future()
        try:
            if step.next is Next.TRUNCATE:
                if step.offset < log.next_offset:
                    logger.info(
                        "%s is cut off from %d to %d", log.topic_partition, log.next_offset, step.offset
                    )
                await log.truncate_to(step.offset, self._checkpoint)
            elif step.next is Next.START_OVER:
                logger.info("%s begins anew at %d", log.topic_partition, step.offset)
                await log.truncate_fully_and_start_at(step.offset, self._checkpoint)
                if first and followed.is_current and not change.is_given_up:
                    await self._append_first(log, first)
        finally:
            partition.cut_off()
            change.written = None
            written.set_result(None)

    async def _append_first(self, log: Log, batch: bytes) -> None:
        """The batch in the middle of which the leader's log begins (DeleteRecords): to be had from there on only, and
        so not by another fetch. Kafka's `Partition.appendRecordsToFollowerOrFutureReplica` does the same."""
        _, flush_due = log.append_fetched(memoryview(batch), self._clock.wall_ms(), BATCHES_PER_TURN)
        if flush_due:
            await log.flush()
