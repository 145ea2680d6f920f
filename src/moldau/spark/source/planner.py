"""The stream's plan: from where to where the next batch reads, and in which tasks. Answers to
KafkaMicroBatchStream.

`partitions` depends on its two positions and the options alone, so a batch that runs again, in another process and
on another day, reads the same ranges in the same tasks. What that needs is in the position itself: see `offsets`.

Spark asks for the latest offsets every few milliseconds while there is nothing to do. Then the answer waits for
records to come (for a moment only: a query may have other sources), and the brokers are asked whether any offset has
moved; for everything else, such as new partitions, once a second at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from moldau.spark.source.cluster import Topics
from moldau.spark.source.errors import OffsetsUnavailable, report_data_loss
from moldau.spark.source.limits import Latest
from moldau.spark.source.offsets import (
    Offsets,
    Position,
    TopicPartition,
    listed,
    read_position,
    write_position,
)
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.ranges import OffsetRange, cut, limit_offsets
from moldau.spark.source.resolve import resolve

if TYPE_CHECKING:
    from moldau.spark.source.cluster import Cluster

log = logging.getLogger(__name__)

Stored = dict[str, dict[str, int]]
WAIT_S: Final = 0.1
"""How long an answer waits for records: what another source of the same query may have to wait."""
CHECK_S: Final = 1.0
"""How often an idle query asks the brokers for new partitions."""
UNKNOWN_BYTES: Final = 1000.0
"""Of a record, where none can be looked at."""
IDLE_GAP_S: Final = 0.05
"""Spark is polling idly where it asks again as soon as this."""


class Client(Protocol):
    def wait_for_records(self, offsets: Offsets, timeout_s: float) -> bool: ...
    def commit(self, offsets: Offsets) -> None: ...
    def flush(self) -> None: ...
    def bytes_per_offset(self, offsets: Offsets) -> dict[TopicPartition, float]: ...


class Planner:
    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        client: Client,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._client = client
        self._now = now
        self._sleep = sleep
        self._initial: Stored | None = None
        self._is_first_batch = False
        self._frozen: tuple[Topics, Offsets] | None = None
        self._latest: Position | None = None
        self._triggered_at: float | None = None
        self._idle = Idle()

    def initial(self) -> Stored:
        """Where the first batch begins; the same one for the life of this process."""
        if self._initial is None:
            topics = self._frozen[0] if self._frozen else self._cluster.topics()
            offsets = resolve(
                self._options.starting or Latest(),
                self._cluster,
                topics.partitions,
                is_start=True,
                group=self._options.progress_group,
                latest=self._latest_of,
            )
            self._initial = write_position(Position(offsets, dict(topics.ids)))
            self._is_first_batch = True
        return self._initial

    def freeze(self) -> None:
        """Trigger.AvailableNow: what comes from now on is not this query's."""
        topics = self._cluster.topics()
        self._frozen = topics, self._cluster.latest(topics.partitions)

    def latest(self, stored: Stored, *, is_limited: bool) -> Stored:
        """The end of the next batch; `stored`, where the last one ended, if there is none."""
        start = read_position(stored)
        self._client.commit(start.offsets)
        if self._frozen is None and self._is_still_idle(stored):
            return stored
        end = self._next_position(stored, start, is_limited)
        if end is None:
            if self._frozen is not None:
                self._client.flush()
            return stored
        self._idle = Idle()
        return write_position(end)

    def known_latest(self) -> Stored | None:
        return None if self._latest is None else write_position(self._latest)

    def ranges(self, stored_start: Stored, stored_end: Stored) -> tuple[list[OffsetRange], Position]:
        """The tasks' ranges, and the position that they lead to."""
        self._is_first_batch = False
        start, end = read_position(stored_start), read_position(stored_end)
        first = start.offsets | end.first_offsets
        unknown = [each for each in end.offsets if each not in first]
        if unknown:
            first |= self._first_of_unknown(unknown)
        self._report_changes(start, end, first)
        ranges = [
            OffsetRange(each, first[each], after) for each, after in end.offsets.items() if each in first
        ]
        for each in ranges:
            if each.size < 0:
                self._report(
                    "PARTITION_OFFSET_CHANGED",
                    f"Partition {each.partition} offset was changed from {each.first_offset} to {each.next_offset}. "
                    "This could be either 1) a user error that the start offset is set beyond available offset when "
                    "starting query, or 2) the kafka topic-partition is deleted and re-created.",
                )
        return cut(ranges, self._options.min_partitions, self._options.max_records_per_partition), end

    def _latest_of(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Trigger.AvailableNow never starts after its end."""
        if self._frozen is None:
            return self._cluster.latest(partitions)
        return {each: self._frozen[1][each] for each in partitions}

    def _next_position(self, stored: Stored, start: Position, is_limited: bool) -> Position | None:
        topics, latest = self._frozen or self._ask(start)
        recreated = self._recreated(start, topics)
        known = {each: at for each, at in start.offsets.items() if each.topic not in recreated}
        first_of_new = self._cluster.earliest(sorted(latest.keys() - known.keys()))
        self._latest = Position(latest, dict(topics.ids))
        first = known | first_of_new
        wanted = self._limited(first, latest) if is_limited else latest
        is_first_batch = self._is_first_batch and stored == self._initial
        if wanted is None or (wanted == start.offsets and not first_of_new and not is_first_batch):
            self._idle = Idle(stored, None if wanted is None else latest, self._now(), self._now())
            return None
        begins = (
            {each: at for each, at in first.items() if each in wanted} if is_first_batch else first_of_new
        )
        return Position(wanted, dict(topics.ids), begins, self._options.min_offsets_per_task)

    def _ask(self, start: Position) -> tuple[Topics, Offsets]:
        """The partitions and their latest offsets. Offsets that move backwards are asked for again: a new leader may be
        behind for a moment."""
        topics = self._cluster.topics()
        for attempt in range(1, max(1, self._options.offset_attempts) + 1):
            latest = self._cluster.latest(topics.partitions)
            behind = [
                each
                for each, offset in latest.items()
                if offset < start.offsets.get(each, 0)
                and topics.ids.get(each.topic) == start.topic_ids.get(each.topic, topics.ids.get(each.topic))
            ]
            if not behind or attempt == self._options.offset_attempts:
                break
            log.warning("Found incorrect offsets in some partitions: %s", listed(behind))
            self._sleep(self._options.offset_retry_ms / 1000)
        return topics, latest

    def _recreated(self, start: Position, topics: Topics) -> set[str]:
        recreated = {
            topic
            for topic, topic_id in start.topic_ids.items()
            if topic in topics.ids and topics.ids[topic] != topic_id
        }
        for topic in sorted(recreated):
            self._report(
                "TOPIC_RECREATED",
                f"Topic {topic} was deleted and created anew: the query has read the one with the id "
                f"{start.topic_ids[topic]}, and now there is {topics.ids[topic]}.",
            )
        return recreated

    def _limited(self, first: Offsets, latest: Offsets) -> Offsets | None:
        """None: there is too little yet."""
        if self._options.min_offsets_per_trigger is not None and self._frozen is None:
            backlog = sum(offset - first.get(each, 0) for each, offset in latest.items())
            delay_s = self._options.max_trigger_delay_ms / 1000
            waited_long = self._triggered_at is None or self._now() - self._triggered_at >= delay_s
            if backlog < self._options.min_offsets_per_trigger and not waited_long:
                return None
            self._triggered_at = self._now()
        limits = (self._options.max_offsets_per_trigger, self._offsets_by_bytes(first, latest))
        known = [limit for limit in limits if limit is not None]
        return limit_offsets(min(known), first, latest) if known else latest

    def _offsets_by_bytes(self, first: Offsets, latest: Offsets) -> int | None:
        """How many offsets make up `maxBytesPerTrigger`, one at least; None: more than there are."""
        bytes_max = self._options.max_bytes_per_trigger
        backlog = {
            each: after - first[each] for each, after in latest.items() if after > first.get(each, after)
        }
        if bytes_max is None or not backlog:
            return None
        sizes = self._client.bytes_per_offset({each: first[each] for each in backlog})
        usual = sum(sizes.values()) / len(sizes) if sizes else UNKNOWN_BYTES
        total_bytes = sum(sizes.get(each, usual) * count for each, count in backlog.items())
        if total_bytes <= bytes_max:
            return None
        return max(1, int(sum(backlog.values()) * bytes_max / total_bytes))

    def _is_still_idle(self, stored: Stored) -> bool:
        idle = self._idle
        if idle.stored != stored or self._now() - idle.answered_at > IDLE_GAP_S:
            return False
        if idle.latest is None:
            self._sleep(WAIT_S)
        elif self._client.wait_for_records(idle.latest, WAIT_S) or self._has_moved(idle.latest):
            return False
        if self._now() - idle.asked_at >= (CHECK_S if idle.latest is not None else WAIT_S):
            return False
        idle.answered_at = self._now()
        return True

    def _has_moved(self, latest: Offsets) -> bool:
        """A long poll that brought nothing may just have begun, at a leader that had to be found. `processAllAvailable`
        takes the answer for the truth."""
        try:
            return self._cluster.latest(latest) != latest
        except OffsetsUnavailable:
            return True  # of a deleted topic, perhaps: whoever asks for everything finds out

    def _first_of_unknown(self, partitions: list[TopicPartition]) -> Offsets:
        """New in a batch that Spark's own connector had planned: its checkpoint does not say where they begin."""
        found = self._cluster.earliest(
            [each for each in partitions if each in self._cluster.topics().partitions]
        )
        if gone := [each for each in partitions if each not in found]:
            self._report(
                "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
                f"Cannot find initial offsets for partitions {listed(gone)}. They may have been deleted.",
            )
        return found

    def _report_changes(self, start: Position, end: Position, first: Offsets) -> None:
        for each in sorted(end.offsets.keys() - start.offsets.keys()):
            if first.get(each, 0) != 0:
                self._report(
                    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                    f"Added partition {each} starts from {first[each]} instead of 0.",
                )
        is_first_batch = end.first_offsets.keys() >= end.offsets.keys()
        if (gone := start.offsets.keys() - end.offsets.keys()) and not is_first_batch:
            self._report("PARTITIONS_DELETED", f"Partitions {listed(gone)} have been deleted.")

    def _report(self, name: str, reason: str) -> None:
        report_data_loss(self._options.fail_on_data_loss, name, reason)


class Idle:
    """That there was nothing to read after a position; without `latest` there was too little."""

    def __init__(
        self,
        stored: Stored | None = None,
        latest: Offsets | None = None,
        asked_at: float = 0.0,
        answered_at: float = 0.0,
    ) -> None:
        self.stored = stored
        self.latest = latest
        self.asked_at = asked_at
        self.answered_at = answered_at
