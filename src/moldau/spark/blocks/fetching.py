"""A range of offsets by Fetch requests, until its end by position.

Whatever moves on its own is waited for: leaders, restarts, watermarks that lag behind after an election. Waiting ends
when nothing was read for `timeout_ms`; every step forward begins that time anew. The next request leaves before an
answer is handed out, so that the broker works while the records are decoded.

A range needs no record at its end: after a transaction's marker, or where compaction has left nothing, positions go on.
Where even the log's last batch lies before the end (its last record was a tombstone that compaction took), brokers
answer with nothing although the high watermark is further on: `EMPTY_ANSWERS` such answers in a row end the range.

Left out: reading from followers near by (KIP-392); and the check of KIP-320 that no unclean election has replaced
records below an offset that was planned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.spark.blocks.answers import (
    FETCH,
    TOPIC_IDS_FROM,
    VERSION_MAX,
    VERSION_MIN,
    Answer,
    fetch_request,
    parse_answer,
)
from moldau.spark.blocks.batches import Found, Scanned, scan
from moldau.spark.blocks.brokers import Brokers, Leader, NoSuchPartition, NotKnownYet
from moldau.spark.blocks.client_settings import ClientSettings
from moldau.spark.blocks.connection import ANSWER_BYTES_MAX, Connection
from moldau.spark.blocks.errors import DataLoss, ReadFailed, SecurityFailed, TopicRecreated, what_is_gone
from moldau.spark.blocks.settings import ReadSettings, Split
from moldau.wire.primitives import WireError

logger = logging.getLogger("moldau.spark")

EMPTY_ANSWERS: Final = 3
UNKNOWN_TOPIC_S: Final = 10.0
"""How long a topic that nobody knows is waited for: it may be new, and the news on its way."""
PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0
LIST_OFFSETS: Final = 2
LIST_OFFSETS_VERSIONS: Final = (6, 7)
EARLIEST, LATEST = -2, -1

PASSING: Final = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.broker_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)


class Fetched(NamedTuple):
    """Whole batches of one answer, from an offset on; valid until the next one is asked for."""

    first_offset: int
    answer: Answer
    found: list[Found]


class Fetcher:
    """Reads one split once."""

    def __init__(self, settings: ReadSettings, client: ClientSettings, split: Split) -> None:
        self.split = split
        self._settings = settings
        self._client = client
        self._brokers = Brokers(settings.bootstrap_servers, client)
        self._position = split.first_offset
        self._bytes_max = client.fetch_bytes
        self._connection: Connection | None = None
        self._leader: Leader | None = None
        self._version = VERSION_MAX
        self._failures = 0
        self._empty_answers = 0
        self._moved_s = time.monotonic()  # when the position last moved
        self._unknown_since_s: float | None = None

    def fetch(self) -> Iterator[Fetched]:
        try:
            while self._position < self.split.next_offset or self.split.to_latest:
                try:
                    if self.split.to_latest:
                        self._bind()
                        continue
                    fetched = self._take(self._ask())
                    if fetched is not None:
                        self._send_ahead()
                except (OSError, WireError, NotKnownYet) as reason:
                    self._start_over(reason)
                    continue
                if fetched is not None:
                    yield fetched
            if self._connection is not None and self._connection.is_quiet:
                self._brokers.give_back(self._connection)
                self._connection = None
        finally:
            self._drop_connection()

    def _bind(self) -> None:
        """The range ends where the log ends now: by ListOffsets, which a new leader answers when it knows (KIP-207)."""
        if self._connection is None:
            self._connect()
        latest = self._log_range(LATEST, self._settings.read_committed)
        self.split = replace(self.split, next_offset=max(latest, self.split.next_offset), to_latest=False)

    def _ask(self) -> Answer:
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        if self._connection.is_quiet:
            self._send()
        frame, position = self._connection.receive()
        return parse_answer(self._version, frame, position, self.split.partition)

    def _connect(self) -> None:
        self._leader = leader = self._find_leader()
        self._connection = self._brokers.connect(leader.address)
        by_name = VERSION_MIN if leader.topic_id is None else VERSION_MAX
        self._version = self._connection.version_of(FETCH, VERSION_MIN, by_name)
        if self._version < TOPIC_IDS_FROM:
            self._brokers.forget(self.split.topic)  # by its name, a recreated topic would not be noticed

    def _find_leader(self) -> Leader:
        try:
            leader = self._brokers.leader_of(self.split.topic, self.split.partition)
        except NoSuchPartition as reason:
            now_s = time.monotonic()
            if self._unknown_since_s is None:
                self._unknown_since_s = now_s
            elif now_s - self._unknown_since_s > UNKNOWN_TOPIC_S:
                raise DataLoss(self._sentence(str(reason))) from None
            raise
        self._unknown_since_s = None
        planned = self.split.topic_id
        if planned is not None and leader.topic_id not in (None, planned):
            self._brokers.forget(self.split.topic)  # what is known may be older than the plan
            leader = self._brokers.leader_of(self.split.topic, self.split.partition)
        if planned is not None and leader.topic_id not in (None, planned):
            raise TopicRecreated(
                self._sentence(
                    f"the topic was deleted and created anew: it had the id {planned} when the read was planned, and "
                    f"has {leader.topic_id} now. Start a new query, or set failOnDataLoss=false to skip what is gone"
                )
            )
        return leader

    def _send(self) -> None:
        assert self._connection is not None and self._leader is not None
        number = self._connection.next_correlation_id()
        by_id = self._version >= TOPIC_IDS_FROM
        frame = fetch_request(
            self._version,
            number,
            self._connection.client_id,
            self.split.topic,
            (self.split.topic_id or self._leader.topic_id) if by_id else None,
            self.split.partition,
            self._leader.epoch,
            self._position,
            self._bytes_max,
            self._settings.read_committed,
        )
        self._connection.send(FETCH, self._version, number, frame)

    def _send_ahead(self) -> None:
        """A connection that breaks here is found out by the next request."""
        if self._position < self.split.next_offset:
            try:
                self._send()
            except OSError:
                self._drop_connection()

    def _take(self, answer: Answer) -> Fetched | None:
        """What an answer brings, and the position after it; None where it brings nothing."""
        if answer.error is ErrorCode.none:
            first_offset = self._position
            scanned = scan(answer.records, first_offset, self.split.next_offset)
            self._bytes_max = self._client.fetch_bytes
            if scanned.next_offset > first_offset:
                self._move_to(scanned.next_offset)
                return Fetched(first_offset, answer, list(scanned.found))
            self._take_nothing(answer, scanned)
            return None
        if answer.error is ErrorCode.offset_out_of_range:
            self._out_of_range()
            return None
        if answer.error in PASSING:
            raise NotKnownYet(f"{self.split.topic}-{self.split.partition}: {answer.error.name}")
        if answer.error is ErrorCode.topic_authorization_failed:
            raise SecurityFailed(self._sentence("not authorized to read the topic"))
        raise ReadFailed(self._sentence(f"the broker answers {answer.error.name}"))

    def _take_nothing(self, answer: Answer, scanned: Scanned) -> None:
        if scanned.missing_bytes:
            self._bytes_max = min(ANSWER_BYTES_MAX, len(answer.records) + scanned.missing_bytes)
            return
        visible = answer.last_stable_offset if self._settings.read_committed else answer.high_watermark
        if visible >= self.split.next_offset and not answer.throttle_ms:
            self._empty_answers += 1
            if self._empty_answers >= EMPTY_ANSWERS:
                self._move_to(self.split.next_offset)
            return
        self._check_time(
            f"the log can be read up to {visible} only"
            + (": a transaction is open there" if visible < answer.high_watermark else "")
        )

    def _out_of_range(self) -> None:
        log_start, log_end = self._log_range(EARLIEST), self._log_range(LATEST)
        if log_start <= self._position <= log_end:
            raise NotKnownYet("the offset was out of range, and is not any more")
        if self.split.from_earliest and self._position < log_start:
            self._move_to(min(log_start, self.split.next_offset))
            return
        lost_to, reason = what_is_gone(self._position, self.split.next_offset, log_start, log_end)
        sentence = self._sentence(reason)
        if self._settings.fail_on_data_loss:
            raise DataLoss(sentence)
        logger.warning("%s", sentence)
        self._move_to(lost_to)

    def _log_range(self, which: int, read_committed: bool = False) -> int:
        """The log's first or next offset. What has no answer now is asked for again, with the Fetch."""
        assert self._connection is not None and self._leader is not None
        version = self._connection.version_of(LIST_OFFSETS, *LIST_OFFSETS_VERSIONS)
        wanted = SimpleNamespace(
            partition_index=self.split.partition, current_leader_epoch=self._leader.epoch, timestamp=which
        )
        answer = self._connection.ask(
            LIST_OFFSETS,
            version,
            SimpleNamespace(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=(SimpleNamespace(name=self.split.topic, partitions=(wanted,)),),
                timeout_ms=None,
            ),
        )
        try:
            found = answer.topics[0].partitions[0]
        except IndexError:
            raise WireError("the ListOffsets answer has no partition") from None
        if found.error_code:
            raise NotKnownYet(f"the log's range is not known: {found.error_code.name}")
        return int(found.offset)

    def _move_to(self, position: int) -> None:
        self._position = position
        self._moved_s = time.monotonic()
        self._failures = self._empty_answers = 0

    def _start_over(self, reason: Exception) -> None:
        """With a new connection, to whoever leads by then, after a pause that grows."""
        self._drop_connection()
        self._brokers.forget(self.split.topic)
        self._check_time(str(reason))
        time.sleep(min(PAUSE_S_MAX, PAUSE_S * 2 ** min(self._failures, 10)))
        self._failures += 1

    def _check_time(self, reason: str) -> None:
        if (time.monotonic() - self._moved_s) * 1000 > self._settings.timeout_ms:
            raise ReadFailed(
                self._sentence(
                    f"no progress at {self._position} for {self._settings.timeout_ms} ms: {reason}"
                )
            )

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _sentence(self, reason: str) -> str:
        return f"reading {self.split}: {reason}."
