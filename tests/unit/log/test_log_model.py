"""Any sequence of appends, rolls, flushes, reads, deletions, restarts and crashes against a plain list of records."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_world import NOW_MS, Codec, World, append, batch, config, data_of, read_all

from moldau.base.errors import ErrorCode
from moldau.log.log import Log

Expected = tuple[int, int, bytes | None]


class LogAgainstList(RuleBasedStateMachine):
    log: Log

    @initialize(
        segment_bytes=st.sampled_from([300, 700, 5000]),
        interval=st.sampled_from([1, 200, 4096]),
        codec=st.sampled_from(["producer", "zstd"]),
    )
    def start(self, segment_bytes: int, interval: int, codec: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.world = World(
            config(
                segment_bytes=str(segment_bytes),
                index_interval_bytes=str(interval),
                compression_type=codec,
            )
        )
        self.log = self.run(self.world.new_log())
        self.model: list[Expected] = []
        self.start_offset = 0
        self.flushed = 0
        self.next_sequence = 0
        self.producer_batches: list[tuple[int, bytes]] = []
        self.epoch = 0

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    async def do_append(self, data: bytes) -> Any:
        result = append(self.log, data, epoch=self.epoch)
        await asyncio.sleep(0)
        return result

    @rule(
        values=st.lists(st.none() | st.binary(max_size=60), min_size=1, max_size=6),
        codec=st.sampled_from(Codec),
        timestamp=st.integers(NOW_MS - 50, NOW_MS + 50),
        idempotent=st.booleans(),
    )
    def append(self, values: list[bytes | None], codec: Codec, timestamp: int, idempotent: bool) -> None:
        producer = (
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.next_sequence} if idempotent else {}
        )
        data = batch(*values, timestamp=timestamp, codec=codec, **producer)
        result = self.run(self.do_append(data))
        if result.error is ErrorCode.record_list_too_large:
            return
        assert result.error is ErrorCode.none
        assert result.base_offset == len(self.model)
        self.model += [(result.base_offset + i, timestamp, value) for i, value in enumerate(values)]
        if idempotent:
            self.next_sequence += len(values)
            self.producer_batches.append((result.base_offset, data))

    @rule(back=st.integers(1, 5))
    def retry(self, back: int) -> None:
        """A retry of one of the last five batches is stored once, also over restarts."""
        if back > len(self.producer_batches):
            return
        offset, data = self.producer_batches[-back]
        result = self.run(self.do_append(data))
        assert (result.duplicate, result.base_offset) == (True, offset)

    @rule()
    def send_a_gap(self) -> None:
        if self.log.producers():
            data = batch(b"gap", producer_id=7, producer_epoch=0, base_sequence=self.next_sequence + 5)
            assert self.run(self.do_append(data)).error is ErrorCode.out_of_order_sequence_number

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        async def roll() -> None:
            self.log.roll(NOW_MS)
            await asyncio.sleep(0)

        self.run(roll())

    @rule()
    def flush(self) -> None:
        self.run(self.log.flush())
        self.flushed = len(self.model)

    @rule()
    def checkpoint(self) -> None:
        self.run(self.world.manager.write_checkpoints())

    @rule(share=st.floats(0, 1), remove=st.booleans())
    def delete_records(self, share: float, remove: bool) -> None:
        """The oldest records, and what segments that leaves with none."""
        self.start_offset += round(share * (len(self.model) - self.start_offset))
        self.log.delete_records_before(self.start_offset)
        self.run(self.world.manager.write_checkpoints())
        if remove:
            self.run(self.log.remove_old_segments())
            ends = self.log.segments.bases[1:]
            assert all(end > self.start_offset for end in ends)
        self.producer_batches = [b for b in self.producer_batches if b[0] >= self.start_offset]

    @rule()
    def let_time_pass(self) -> None:
        self.run(self.world.tasks.advance(61))

    @rule(offset=st.integers(0, 300), max_bytes=st.integers(0, 2000), below=st.integers(0, 300))
    def read(self, offset: int, max_bytes: int, below: int) -> None:
        if not self.start_offset <= offset <= len(self.model):
            return
        below = min(below, len(self.model))
        found = self.log.read(offset, max_bytes, below_offset=below, whole_first_batch=False)
        assert found.length <= max_bytes
        data = data_of(found)
        position = 0
        while position < len(data):  # whole batches, none of them reaching the limit
            last = int.from_bytes(data[position : position + 8], "big") + int.from_bytes(
                data[position + 23 : position + 27], "big"
            )
            assert last < below
            position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
        assert position == len(data)

    @rule(timestamp=st.integers(NOW_MS - 51, NOW_MS + 51))
    def look_up_a_timestamp(self, timestamp: int) -> None:
        late = next(((o, ts) for o, ts, _ in self.model[self.start_offset :] if ts >= timestamp), None)
        found = self.log.offset_for_timestamp(timestamp)
        assert (found and (found.offset, found.timestamp)) == late

    @rule()
    def restart(self) -> None:
        self.log = self.run(self.world.reopen(clean=True))
        assert self.log.next_offset == len(self.model)
        self.flushed = len(self.model)

    @rule(seed=st.integers(0, 10_000))
    def crash(self, seed: int) -> None:
        self.log = self.run(self.world.reopen(clean=False, rng=random.Random(seed)))
        assert self.flushed <= self.log.next_offset <= len(self.model)
        del self.model[self.log.next_offset :]
        self.producer_batches = [b for b in self.producer_batches if b[0] < len(self.model)]
        entry = next(iter(self.log.producers()), None)
        assert entry is not None or not self.producer_batches
        assert entry is None or self.producer_batches or self.start_offset
        self.next_sequence = 0 if entry is None else entry.next_sequence
        self.flushed = (
            0  # what survived is in the page cache of the machine that came back, and durable there
        )

    @invariant()
    def the_log_is_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.next_offset) == (self.start_offset, len(self.model))
        found = read_all(self.log, max_bytes=400)
        assert [(r.offset, r.timestamp, r.value) for r in found] == self.model[self.start_offset :]

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        if hasattr(self, "log"):
            assert self.log.epochs.latest <= self.epoch
            starts = [start for _, start in self.log.epochs.entries]
            assert starts == sorted(set(starts))
            assert not starts or starts[-1] <= self.log.next_offset


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
