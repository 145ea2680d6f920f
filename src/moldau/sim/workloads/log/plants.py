"""Bugs on purpose in the log, the partition and the simulated disk: each must be found by the workload of logs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from moldau.controller.changes import Changes
from moldau.log import names, recovery
from moldau.log.log import Log
from moldau.log.producers import Producers
from moldau.log.segment import Segment
from moldau.metadata.image import PartitionState, Topic
from moldau.records import validate
from moldau.replication.partition import Partition
from moldau.runtime.ports import Disk
from moldau.sim.disk import SimFile
from moldau.sim.planting import Plants, patched

plant = LOG_PLANTS = Plants()


@plant("offset-given-twice", promise=2)
def offset_given_twice() -> Iterator[None]:
    """Now and then the log forgets that it gave an offset away."""
    append, turns = Log.append, count(1)

    def forgetful(self: Log, *args: Any, **kwargs: Any) -> Any:
        appended = append(self, *args, **kwargs)
        if not appended.error and not appended.duplicate and next(turns) % 20 == 0:
            self.next_offset = appended.base_offset
        return appended

    with patched(Log, "append", forgetful):
        yield


@plant("torn-tail-kept", promise=2)
def torn_tail_kept() -> Iterator[None]:
    """Recovery finds where a torn tail begins, and appends behind it."""
    check = recovery._check_segment

    def lenient(disk: Disk, opening: Any, base_offset: int, *rest: Any) -> Any:
        before = disk.read(f"{opening.folder}/{names.file_name(base_offset, names.LOG)}")
        segment, next_offset, whole = check(disk, opening, base_offset, *rest)
        if not whole:
            segment.log.pwrite(before[segment.size :], segment.size)
            segment.size = len(before)
        return segment, next_offset, whole

    with patched(recovery, "_check_segment", lenient):
        yield


@plant("bad-batch-taken", promise=7)
def bad_batch_taken() -> Iterator[None]:
    """Checksums of produced batches are not looked at."""

    class Agreeable(int):
        def __ne__(self, other: object) -> bool:
            return False

    with patched(validate, "crc32c", lambda data: Agreeable()):
        yield


@plant("visible-before-flushed", promise=1)
def visible_before_flushed() -> Iterator[None]:
    """Readers see a record while its sync is under way."""
    grown = Partition._grown

    def hasty(self: Partition, next_offset: int, added_bytes: int, flush_due: bool) -> None:
        grown(self, next_offset, added_bytes, flush_due)
        self._moved(next_offset)

    with patched(Partition, "_grown", hasty):
        yield


@plant("acknowledged-before-written", promise=1)
def acknowledged_before_written() -> Iterator[None]:
    """Now and then a batch is acknowledged that never reaches the file."""
    pwrite, turns = SimFile.pwrite, count(1)

    def lazy(self: SimFile, data: Any, position: int) -> int:
        if self.path.endswith(".log") and next(turns) % 30 == 0:
            return len(data)
        return pwrite(self, data, position)

    with patched(SimFile, "pwrite", lazy):
        yield


@plant("acknowledged-before-flushed", promise=1)
def acknowledged_before_flushed() -> Iterator[None]:
    """The answer does not wait for the sync that flush.messages asks for."""
    append = Log.append

    def hasty(self: Log, *args: Any, **kwargs: Any) -> Any:
        return append(self, *args, **kwargs)._replace(flush_due=False)

    with patched(Log, "append", hasty):
        yield


@plant("retry-appended-again", promise=3)
def retry_appended_again() -> Iterator[None]:
    """Sequence numbers are not looked at: an idempotent producer's retry is stored twice."""
    with patched(Producers, "check", lambda *_: None):
        yield


@plant("high-watermark-moves-back", promise=2)
def high_watermark_moves_back() -> Iterator[None]:
    """Now and then the high watermark forgets the last records."""
    grown, turns = Partition._grown, count(1)

    def wavering(self: Partition, next_offset: int, added_bytes: int, flush_due: bool) -> None:
        grown(self, next_offset, added_bytes, flush_due)
        if next(turns) % 15 == 0:
            self.high_watermark = max(0, self.high_watermark - 5)

    with patched(Partition, "_grown", wavering):
        yield


@plant("look-up-misses-a-batch", promise=2)
def look_up_misses_a_batch() -> Iterator[None]:
    """A look-up in the index lands one batch too far."""
    find = Segment.find

    def astray(self: Segment, offset: int, read: Any) -> Any:
        found = find(self, offset, read)
        if found is None or found.end_position >= self.size:
            return found
        return find(self, found.header.last_offset + 1, read)

    with patched(Segment, "find", astray):
        yield


@plant("retries-forgotten-at-restart", promise=3)
def retries_forgotten_at_restart() -> Iterator[None]:
    """The state of idempotent producers does not survive a restart."""
    begin = Producers.__init__

    def blank(self: Producers, entries: Any = None) -> None:
        begin(self)

    with patched(Producers, "__init__", blank):
        yield


@plant("leader-epoch-goes-on-after-a-crash", promise=2)
def leader_epoch_goes_on_after_a_crash() -> Iterator[None]:
    """A crash may take records, and others get their offsets in the same leader epoch."""
    put = Changes.put

    def lasting(self: Changes, topic: Topic, index: int, state: PartitionState) -> None:
        put(self, topic, index, state._replace(leader_epoch=topic.partitions[index].leader_epoch))

    with patched(Changes, "put", lasting):
        yield
