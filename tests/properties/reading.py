"""Reading a log as consumers do: batch after batch, waiting for cold pages; of committed records, or of all."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.log.log import Log
from moldau.log.reader import EMPTY, Slice
from moldau.log.transactions import read_marker
from moldau.records.batch import BatchHeader, read_header
from moldau.records.record import read_records
from properties.model import Row

COLD_MAX = 50


async def slice_at(log: Log, offset: int, max_bytes: int, below: int, *, whole_first_batch: bool) -> Slice:
    for _ in range(COLD_MAX):
        try:
            return log.read(offset, max_bytes, below_offset=below, whole_first_batch=whole_first_batch)
        except BlockingIOError:
            await log.warm(offset, max_bytes)
    raise AssertionError("cold for ever")


def content(found: Slice) -> bytes:
    return found.file.pread(found.length, found.position) if found.file else b""


def batches_of(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches in what was read, which must be whole ones."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        yield header, data[position : position + header.size]
        position += header.size
    assert position == len(data), "a part of a batch"


def rows_of(batch: bytes, offset: int) -> list[Row]:
    """The records of a batch from an offset on."""
    return [Row(r.offset, r.timestamp, r.key, r.value) for r in read_records(batch) if r.offset >= offset]


async def read_all(log: Log, max_bytes: int) -> list[Row]:
    """Everything from the start on, but for markers."""
    offset, end = log.log_start_offset, log.next_offset
    found: list[Row] = []
    while offset < end:
        part = await slice_at(log, offset, max_bytes, end, whole_first_batch=True)
        if part is EMPTY:  # compaction may have left nothing up to the end
            break
        for header, batch in batches_of(content(part)):
            assert header.last_offset >= offset, f"no progress at {offset}"
            if not header.is_control:
                found += rows_of(batch, offset)
            offset = header.next_offset
    return found


def last_stable_offset(log: Log) -> int:
    first = log.producing.state.open.first_unstable_offset(log.next_offset)
    return log.next_offset if first is None else max(first, log.log_start_offset)


async def read_committed(log: Log, max_bytes: int) -> list[Row]:
    """What a consumer with read_committed shows: it leaves out what the answers say was aborted."""
    offset, end = log.log_start_offset, last_stable_offset(log)
    found: list[Row] = []
    while offset < end:
        part, aborted = await _slice_and_aborted(log, offset, max_bytes, end)
        if part is EMPTY:
            break
        coming = sorted(aborted, key=lambda one: one[1], reverse=True)
        aborting: set[int] = set()
        for header, batch in batches_of(content(part)):
            while coming and coming[-1][1] <= header.last_offset:
                aborting.add(coming.pop()[0])
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.is_commit:
                    aborting.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in aborting:
                found += rows_of(batch, offset)
            offset = header.next_offset
    return found


async def _slice_and_aborted(
    log: Log, offset: int, max_bytes: int, end: int
) -> tuple[Slice, list[tuple[int, int]]]:
    for _ in range(COLD_MAX):
        part = await slice_at(log, offset, max_bytes, end, whole_first_batch=True)
        try:
            return part, log.producing.aborted_in(offset, part)
        except BlockingIOError:
            await log.warm(offset, max_bytes)
    raise AssertionError("cold for ever")
