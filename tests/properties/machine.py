"""The machine that does whatever can be done to a log, and holds it against a plain list after each step.

After each step: everything acknowledged and flushed is there, offsets are unique and in order, reads by offset and by
time agree with the list, the log begins and ends where it should, producers are known, and verifying finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from moldau.base.errors import ErrorCode, KafkaError
from moldau.config.broker import BrokerConfig
from moldau.config.topic import TopicConfig, topic_config
from moldau.log.appended import Appended
from moldau.log.inspect.findings import Kind, Severity
from moldau.log.log import Log
from moldau.log.transactions import Marker
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from properties.model import LogModel, Row, Sequence, Stored, check_compacted, check_unique
from properties.places import Outcome, Place
from properties.reading import (
    batches_of,
    content,
    last_stable_offset,
    read_all,
    read_committed,
    slice_at,
)

RETENTION_MS = 10_000
RETENTION_BYTES = 1_500
DELETE_RETENTION_MS = 5_000
PRODUCERS = (7, 8)
TRANSACTIONAL = (21, 22)
CONFIGS = st.fixed_dictionaries(
    {
        "internal.segment.bytes": st.sampled_from(["300", "700", "5000"]),
        "index.interval.bytes": st.sampled_from(["0", "200", "4096"]),
        "compression.type": st.sampled_from(["producer", "zstd"]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact,delete"]),
        "delete.retention.ms": st.just(str(DELETE_RETENTION_MS)),
        "retention.ms": st.just(str(RETENTION_MS)),
        "retention.bytes": st.sampled_from(["-1", str(RETENTION_BYTES)]),
        "file.delete.delay.ms": st.sampled_from(["0", "200", "60000"]),
    }
)
PAIRS = st.tuples(st.sampled_from([b"a", b"b", b"c", None]), st.none() | st.binary(max_size=60))
SHARES = st.floats(0, 1)


def settings_of(overrides: dict[str, str]) -> TopicConfig:
    return topic_config(BrokerConfig.parse({}), overrides)


class LogAgainstList(RuleBasedStateMachine):
    """What every place has; `start` is the subclass's."""

    place: Place

    def begin(self, place: Place) -> None:
        self.place = place
        self.model = LogModel()
        self.leader_epoch = self.epochs_from = 0
        self.epochs: dict[int, int] = {}
        self.done(place.open())

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.close()

    @property
    def log(self) -> Log:
        return self.place.log

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.done(self.place.run(work))

    @staticmethod
    def done(outcome: Outcome) -> Any:
        """What a step gave that nothing may disturb."""
        if outcome.error is not None:
            raise outcome.error
        assert not outcome.crashed
        return outcome.value

    # Appending

    @rule(
        pairs=st.lists(PAIRS, min_size=1, max_size=6),
        codec=st.sampled_from(Codec),
        age_ms=st.integers(-50, 50),
        producer=st.sampled_from([None, *PRODUCERS]),
    )
    def append(
        self, pairs: list[tuple[bytes | None, bytes | None]], codec: Codec, age_ms: int, producer: int | None
    ) -> None:
        stored = self.next_batch(pairs, codec, age_ms, producer)
        self.note(stored, self.run(self.send(stored.data)))

    def next_batch(
        self, pairs: list[tuple[bytes | None, bytes | None]], codec: Codec, age_ms: int, producer: int | None
    ) -> Stored:
        end, now_ms = self.model.end, self.place.now_ms()
        if self.log.config.compact:  # no key is refused there
            pairs = [(key or b"d", value) for key, value in pairs]
        rows = [Row(end + i, now_ms - age_ms, key, value) for i, (key, value) in enumerate(pairs)]
        sequence = None if producer is None else self.next_sequence(producer)
        fields = (
            {}
            if sequence is None
            else {
                "producer_id": sequence.producer_id,
                "producer_epoch": sequence.epoch,
                "base_sequence": sequence.first,
            }
        )
        records = [Record(i, row.timestamp, row.key, row.value) for i, row in enumerate(rows)]
        is_transactional = producer in TRANSACTIONAL
        data = build_batch(records, codec=codec, transactional=is_transactional, **fields)
        last_offset = end + len(rows) - 1
        return Stored(end, last_offset, tuple(rows), self.leader_epoch, data, sequence, is_transactional)

    def next_sequence(self, producer_id: int) -> Sequence:
        """What the log expects, as far as it is known; an unknown producer may begin anywhere."""
        its = self.model.of_producer(producer_id)
        epoch = self.epochs.get(producer_id, 0)
        if its and its[-1].sequence is not None and its[-1].sequence.epoch == epoch:
            return Sequence(producer_id, epoch, its[-1].next_sequence)
        return Sequence(producer_id, epoch, 0)

    async def send(self, data: bytes, sequence: Sequence | None = None) -> tuple[Appended, int]:
        """`sequence`: of a batch in a transaction, which its coordinator knows of."""
        now_ms, log = self.place.now_ms(), self.log
        guard = None
        if sequence is not None:
            guard = log.producing.begin_verification(
                sequence.producer_id, sequence.epoch, sequence.first, False
            )
        buffer = memoryview(bytearray(data))
        answer = log.append(buffer, 0, len(data), self.leader_epoch, now_ms, guard=guard)
        await asyncio.sleep(0)
        return answer, now_ms

    def note(self, stored: Stored, answer: tuple[Appended, int]) -> None:
        """A batch that the log has taken."""
        appended, now_ms = answer
        if appended.error is ErrorCode.record_list_too_large:
            return
        assert appended.error is ErrorCode.none, appended
        assert (appended.base_offset, appended.last_offset) == (stored.base_offset, stored.last_offset)
        if self.log.config.message_timestamp_type == "LogAppendTime":
            stored = replace(stored, rows=tuple(row._replace(timestamp=now_ms) for row in stored.rows))
        self.model.append(stored)

    # Transactions

    @rule(
        pairs=st.lists(PAIRS, min_size=1, max_size=3),
        codec=st.sampled_from(Codec),
        producer=st.sampled_from(TRANSACTIONAL),
    )
    def append_in_a_transaction(
        self, pairs: list[tuple[bytes | None, bytes | None]], codec: Codec, producer: int
    ) -> None:
        if self.model.of_producer(producer) and not self.model.is_sure_of(producer):
            return  # its marker may be all that is left of it, and the sequence is not known
        stored = self.next_batch(pairs, codec, 0, producer)
        self.note(stored, self.run(self.send(stored.data, stored.sequence)))

    @rule(producer=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end_a_transaction(self, producer: int, commit: bool) -> None:
        """What is open no longer, as far as the log knows, is not ended again."""
        if producer not in self.model.transactions().open or not self.model.is_sure_of(producer):
            return
        appended, now_ms = self.run(self.send_marker(producer, commit))
        assert appended.error is ErrorCode.none, appended
        self.model.append_marker(producer, commit, now_ms, self.leader_epoch)

    async def send_marker(self, producer: int, commit: bool) -> tuple[Appended, int]:
        now_ms = self.place.now_ms()
        marker = Marker(commit, 0)
        appended = self.log.producing.append_marker(marker, producer, 0, self.leader_epoch, now_ms)
        await asyncio.sleep(0)
        return appended, now_ms

    # Idempotence

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(1, 5))
    def retry(self, producer: int, back: int) -> None:
        """A retry of one of the last five batches is stored once, also over restarts."""
        its = self.model.of_producer(producer)
        if back > len(its) or not self.model.is_sure_of(producer) or its[-1].sequence is None:
            return
        stored = its[-back]
        if its[-1].sequence.epoch != self.epochs.get(producer, 0):
            return
        appended, _ = self.run(self.send(stored.data))
        if stored.base_offset >= max(self.model.start, self.model.compacted_to) or back == 1:
            assert (appended.duplicate, appended.base_offset) == (True, stored.base_offset), appended
        else:  # older batches may be gone
            assert appended.duplicate or appended.error is ErrorCode.out_of_order_sequence_number, appended

    @rule(producer=st.sampled_from(PRODUCERS))
    def send_a_gap(self, producer: int) -> None:
        if self.model.is_sure_of(producer):
            sequence = self.next_sequence(producer)
            gap = build_batch(
                [Record(0, self.place.now_ms(), b"k", b"gap")],
                producer_id=producer,
                producer_epoch=sequence.epoch,
                base_sequence=sequence.first + 5,
            )
            appended, _ = self.run(self.send(gap))
            assert appended.error is ErrorCode.out_of_order_sequence_number, appended

    @rule(producer=st.sampled_from(PRODUCERS))
    def begin_a_producer_epoch(self, producer: int) -> None:
        self.epochs[producer] = self.epochs.get(producer, 0) + 1

    @rule()
    def lead_in_a_new_epoch(self) -> None:
        self.leader_epoch += 1

    # What goes on beside

    @rule()
    def roll(self) -> None:
        self.run(self.roll_now())

    async def roll_now(self) -> None:
        self.log.roll(self.place.now_ms())
        await asyncio.sleep(0)

    @rule()
    def flush(self) -> None:
        self.run(self.log.flush())
        self.model.durable = self.model.end

    @rule()
    def checkpoint(self) -> None:
        self.run(self.place.manager.write_checkpoints())
        self.model.start_durable = self.model.start

    @rule(seconds=st.sampled_from([0.5, 6.0, 61.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.place.pass_time(seconds)

    # What removes records

    @rule(share=SHARES, remove=st.booleans())
    def delete_records(self, share: float, remove: bool) -> None:
        model = self.model
        model.start += round(share * (model.end - model.start))
        self.log.delete_records_before(model.start)
        if remove:
            self.checkpoint()
            self.run(self.log.remove_old_segments())
            assert all(end > model.start for end in self.log.segments.bases[1:])

    @rule()
    def enforce_retention(self) -> None:
        start = self.start_after_retention()
        self.run(self.place.manager.enforce_retention())
        if start is None:
            start = self.log.log_start_offset
            assert start >= self.model.start
        self.model.start = self.model.start_durable = start
        assert all(end > start for end in self.log.segments.bases[1:])

    def start_after_retention(self) -> int | None:
        """Kafka's rule, segment by segment: all of it too old, or enough without it. None: compaction has left too
        little of the segments to say."""
        log, model, now_ms = self.log, self.model, self.place.now_ms()
        if not log.config.delete:
            return model.start
        if model.compacted_to:
            return None
        start, left = model.start, log.size_bytes()
        ends = [*log.segments.bases[1:], *([model.end] if log.segments.active.size else [])]
        for index, end in enumerate(ends):
            segment = log.segments.by_number(index)
            newest = model.newest_in(segment.base_offset, end)
            is_old = now_ms - newest > log.config.retention_ms
            is_too_much = 0 <= log.config.retention_bytes <= left - segment.size
            if end > start and not is_old and not is_too_much:
                break
            start, left = max(start, end), left - segment.size
        return start

    @rule()
    def compact(self) -> None:
        if self.log.config.compact:
            before, dirty_from = self.before_compaction()
            failures = self.place.cleaner.counts.failures
            self.run(self.place.cleaner.clean(self.log))
            assert self.place.cleaner.counts.failures == failures, self.place.cleaner.uncleanable
            self.after_compaction(before, dirty_from)
            check_unique(self.model.rows, dirty_from)

    def before_compaction(self) -> tuple[list[Row], int]:
        """The start is checkpointed then, so what lies before it is gone."""
        self.checkpoint()
        self.run(self.log.flush())
        self.model.durable = self.model.end
        log = self.log
        return self.model.rows, log.segments.at(
            min(last_stable_offset(log), log.segments.active.base_offset)
        ).base_offset

    def after_compaction(self, before: list[Row], dirty_from: int) -> None:
        model, now_ms = self.model, self.place.now_ms()
        after = self.run(read_all(self.log, max_bytes=400))
        check_compacted(
            before,
            after,
            dirty_from=dirty_from,
            tombstones=model.tombstones,
            gone_before_ms=now_ms - DELETE_RETENTION_MS,
            aborted=model.transactions().aborted,
        )
        model.compacted(after, dirty_from, now_ms)

    @rule(share=SHARES)
    def truncate(self, share: float) -> None:
        """A follower's log is cut off where its leader's history is another one."""
        offset = self.cut_at(share)
        self.run(self.log.truncate_to(offset, self.place.manager.write_checkpoints_of))
        self.note_truncated(offset)

    def offset_at(self, share: float) -> int:
        return self.model.start + round(share * (self.model.end - self.model.start))

    def cut_at(self, share: float) -> int:
        """Below what was committed when the log was compacted nobody's history is another one."""
        return max(self.offset_at(share), self.model.committed_to)

    def note_truncated(self, offset: int) -> None:
        model = self.model
        if offset >= model.end:
            return
        end = max(model.start, model.end_at(offset))
        model.cut_off(end)
        model.start_durable, model.durable = model.start, end
        if not any(stored.last_offset >= model.start for stored in model.batches) and end == model.start:
            self.forget_what_is_gone()
        model.opened_anew(self.log.segments.first_base_offset)

    def forget_what_is_gone(self) -> None:
        self.model.forgotten.update(self.model.producer_ids())

    @rule(offset=st.integers(0, 200))
    def begin_anew(self, offset: int) -> None:
        """A follower whose leader's log begins behind its end."""
        self.run(self.log.truncate_fully_and_start_at(offset, self.place.manager.write_checkpoints_of))
        self.model.begin_anew(offset)

    # Looking

    @rule(share=SHARES, max_bytes=st.integers(0, 2000), below=SHARES)
    def read(self, share: float, max_bytes: int, below: float) -> None:
        offset, limit = self.offset_at(share), self.offset_at(below)
        data = content(self.run(slice_at(self.log, offset, max_bytes, limit, whole_first_batch=False)))
        assert len(data) <= max_bytes
        assert all(header.last_offset < limit for header, _ in batches_of(data))

    @rule(outside=st.integers(1, 1000), before=st.booleans())
    def read_outside(self, outside: int, before: bool) -> None:
        offset = self.model.start - outside if before else self.model.end + outside
        try:
            self.log.read(offset, 1000, below_offset=self.model.end, whole_first_batch=True)
        except KafkaError as refusal:
            assert refusal.code is ErrorCode.offset_out_of_range
        else:
            raise AssertionError(f"{offset} was read")

    @rule(age_ms=st.integers(-51, 20_000))
    def look_up_a_timestamp(self, age_ms: int) -> None:
        if self.model.compacted_to and self.model.has_markers:
            return  # a marker counts as a record, and it is not known which of them are left
        timestamp = self.place.now_ms() - age_ms
        found = self.run(self.log.find_timestamp(timestamp))
        wanted = self.model.first_at_or_after(timestamp)
        assert (found and found[:2]) == wanted, (found, wanted)

    @rule()
    def look_up_the_newest(self) -> None:
        """As in Kafka, it may lie below the start, in a segment that is there still."""
        model, first = self.model, self.log.segments.first_base_offset
        if model.compacted_to and (model.start != first or model.has_markers):
            return  # what is left below the start, and of markers, is not known
        found = self.run(self.log.find_max_timestamp())
        wanted = model.newest_from(first)
        if found is None and model.has_emptied:
            return  # as in Kafka: a batch that compaction keeps for its producer keeps its timestamp too
        assert (found and found[:2]) == wanted, (found, wanted)

    # Ends and beginnings

    @rule()
    def restart(self) -> None:
        self.place.stop()
        found = [f for f in self.place.verify() if f.severity is not Severity.NOTE]
        has_whole_epochs = self.model.rows and self.epochs_from <= self.model.start
        harmless = {Kind.LEFTOVER} if has_whole_epochs else {Kind.LEFTOVER, Kind.EPOCHS}
        assert {f.kind for f in found} <= harmless, found
        self.place.kill()
        self.model.start_durable, self.model.durable = self.model.start, self.model.end
        self.come_back(lowest=self.model.end)

    @rule()
    def crash(self) -> None:
        self.place.crash()
        self.come_back()

    @rule()
    def kill(self) -> None:
        """The system keeps what the process has written, and the next one makes it durable."""
        self.place.kill()
        self.come_back(lowest=self.model.end)

    def come_back(self, lowest: int | None = None) -> None:
        """Open the log again, and learn what a crash has left; nothing below `lowest` may be lost."""
        self.done(self.place.open())
        log, model = self.log, self.model
        self.epochs_from = max(self.epochs_from, model.start)
        ends, starts = model.ends_after_crash(lowest), (model.start_durable, model.start)
        assert log.next_offset in ends, (log, ends)
        assert starts[0] <= log.log_start_offset <= starts[1], (log, starts)
        model.start = model.start_durable = log.log_start_offset
        model.cut_off(log.next_offset)
        model.durable = model.end  # it is read from now on, so the next crash must not take it
        model.opened_anew(log.segments.first_base_offset)

    # What holds always

    @invariant()
    def the_log_is_the_list(self) -> None:
        if hasattr(self, "place"):
            assert (self.log.log_start_offset, self.log.next_offset) == (self.model.start, self.model.end)
            assert self.run(read_all(self.log, max_bytes=400)) == self.model.rows

    @invariant()
    def committed_readers_see_what_was_committed(self) -> None:
        if not hasattr(self, "place"):
            return
        stable, known = last_stable_offset(self.log), self.model.transactions()
        first_open = min((o for o in known.open.values() if o >= self.model.start), default=self.model.end)
        assert stable <= first_open
        if all(offset >= self.model.start for offset in known.open.values()):
            assert stable == first_open
        rows = [r for r in self.model.rows if r.offset < stable and r.offset not in known.aborted]
        assert self.run(read_committed(self.log, max_bytes=400)) == rows

    @invariant()
    def producers_are_known(self) -> None:
        if not hasattr(self, "place"):
            return
        known = {entry.producer_id: entry for entry in self.log.producers()}
        for producer_id in self.model.producer_ids():
            last = self.model.of_producer(producer_id)[-1]
            entry = known.get(producer_id)
            if entry is None or not entry.batches:  # or only a marker is left
                assert not self.model.is_sure_of(producer_id), producer_id
                continue
            assert last.sequence is not None
            assert (entry.epoch, entry.next_sequence, entry.last_offset) == (
                last.sequence.epoch,
                last.next_sequence,
                last.last_offset,
            )

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        if hasattr(self, "place"):
            starts = [start for _, start in self.log.epochs.entries]
            assert starts == sorted(set(starts))
            assert not starts or starts[-1] <= self.model.end
            # A start that a crash has undone may have cut the epochs off already.
            self.epochs_from = max(self.model.start, min(self.epochs_from, self.model.end))
            for row in (row for row in self.model.rows if row.offset >= self.epochs_from):
                assert self.log.epochs.epoch_of(row.offset) == self.model.epoch_of(row.offset)

    @rule()
    def verify(self) -> None:
        damage = [f for f in self.place.verify() if f.severity is Severity.DAMAGE]
        assert not damage, damage
